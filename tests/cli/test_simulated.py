"""The command and simulated GPUs: what is right, what is shown, and how a race ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nestwright.codegen.targets.sim import backend
from nestwright.ir.loop.nodes import Func, Intrinsic, Seq, Stmt
from nestwright.ir.loop.visit import map_stmt

TARGET = ("--target", "cuda-sim -arch=sm_80")
PRODUCT = """
HloModule product
ENTRY main {
  a = f32[64,48] parameter(0)
  b = f32[48,64] parameter(1)
  ROOT c = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture
def product(tmp_path: Path) -> Path:
    path = tmp_path / "product.hlo"
    path.write_text(PRODUCT)
    return path


def without_barriers(func: Func) -> Func:
    def drop(s: Stmt) -> Stmt:
        if isinstance(s, Intrinsic) and s.name in ("barrier", "warp_barrier"):
            return Seq(())
        return map_stmt(s, drop, lambda e: e)

    return Func(
        func.name, func.params, func.outputs, drop(func.body), func.allocs, func.symbols, func.notes
    )


def test_a_simulated_run_is_checked(nestwright, product: Path) -> None:
    said = nestwright("run", product, *TARGET, "--random", 0, "--check", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)


@pytest.mark.parametrize("stage", ["flat", "llvm", "asm", "plan"])
def test_stages_show(nestwright, product: Path, stage: str) -> None:
    said = nestwright("show", product, "--stage", stage, *TARGET)
    assert said.status == 0, said.err
    assert {"flat": "threadIdx", "llvm": "nw_sim_launch", "asm": ".resume", "plan": "call"}[
        stage
    ] in said.out


def test_a_race_is_a_fault_of_ours(
    nestwright, product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "roll", without_barriers)
    said = nestwright("run", product, *TARGET, "--random", 0)
    assert said.status == 3
    assert not said.out
    assert "Traceback" not in said.err
    assert "kernel nw_" in said.err
    assert "seed 0" in said.err
    assert "race on" in said.err or "before anything is written" in said.err
