"""C libraries with products in tile registers ask Linux for them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.targets.cpu.c_library.processor_check import check_text
from nestwright.ir.target import Target
from nestwright.ir.targets.processor import features_here, tiles_refused

from .conftest import Library, run

MODEL = """HloModule net
ENTRY main { x = bf16[40,96] parameter(0)
  w = bf16[96,72] parameter(1)
  ROOT y = f32[40,72] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
REQUEST = "@syscall(i64 158, i64 4131, i64 18)"
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu"
HERE = Path(__file__).parent
amx = pytest.mark.skipif(
    "amx_tile" not in features_here() or tiles_refused(), reason="this machine lacks AMX"
)


def operands() -> tuple[np.ndarray, np.ndarray]:
    """The operands of the model."""
    r = np.random.default_rng(0)
    x, w = r.standard_normal((40, 96)), r.standard_normal((96, 72))
    return x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)


def library(folder: Path, target: str) -> Library:
    """The model as a C library."""
    exe = nw.build(nw.parse(MODEL), target, constants={1: operands()[1]})
    exe.export_c(folder / "net", name="net")
    return Library(folder / "net", "net", exe)


@pytest.mark.parametrize(
    ("cpu", "asks"),
    [
        ("sapphirerapids", True),
        ("graniterapids -mattr=-amx-int8", True),
        ("sapphirerapids -mattr=-amx-tile", False),
        ("znver5", False),
    ],
)
def test_libraries_with_tile_registers_ask_and_no_others(cpu: str, asks: bool) -> None:
    assert (REQUEST in check_text(Target.parse(f"{X86}={cpu}"))) == asks


@amx
@pytest.mark.parametrize("target", ["cpu -threads=1", "cpu -threads=2", f"{X86}=sapphirerapids"])
def test_the_example_gives_what_python_gives(target: str, tmp_path: Path) -> None:
    one, (x, _) = library(tmp_path, target), operands()
    (tmp_path / "x.raw").write_bytes(x.tobytes())
    run(one.program(one.folder / "main.c"), "-o", tmp_path, tmp_path / "x.raw")
    found = np.load(tmp_path / "result_0.npy")
    assert found.tobytes() == one.exe(x).tobytes()


@amx
def test_an_instance_is_refused_where_the_system_refuses_them(tmp_path: Path) -> None:
    one = library(tmp_path, "cpu -threads=2")
    assert "or the system does not let this process use them" in run(
        one.program(HERE / "refused.c")
    )
