"""C libraries that flush denormals beside others, in a program that keeps its own."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

import nestwright as nw

from .conftest import Library, need, run

COUNT = 1 << 18
HALF = f"""HloModule half
ENTRY main {{
  x = f32[{COUNT}] parameter(0)
  h = f32[] constant(0.5)
  b = f32[{COUNT}] broadcast(h), dimensions={{}}
  ROOT y = f32[{COUNT}] multiply(x, b)
}}
"""
CROSS = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def made(folder: Path, target: str) -> list[Library]:
    found = []
    for denormals in ("flush", "keep"):
        exe = nw.build(nw.parse(HALF), target, denormals=denormals)
        exe.export_c(folder / denormals, name=denormals)
        found.append(Library(folder / denormals, denormals, exe))
    return found


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="has no such mode")
@pytest.mark.parametrize("threads", [1, 2])
def test_each_library_computes_in_its_own_mode(tmp_path: Path, threads: int) -> None:
    flush, keep = made(tmp_path, f"cpu -threads={threads}")
    program = flush.program(Path(__file__).parent / "denormals.c", keep)
    assert run(program).split() == ["3", str(3 * COUNT), str(3 * COUNT)]


def test_aarch64_computes_the_same(tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64")
    flush, keep = made(tmp_path, f"{CROSS} -threads=2")
    source = Path(__file__).parent / "denormals.c"
    program = flush.program(source, keep, flags=["-static"], compiler="aarch64-linux-gnu-gcc")
    assert run("qemu-aarch64", program).split() == ["3", str(3 * COUNT), str(3 * COUNT)]
