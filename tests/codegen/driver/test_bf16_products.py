"""Builds that may round factors to bf16: right by the reference that rounds them, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.oracle import Oracle
from nestwright.codegen.replay.run import Setting, replay
from nestwright.ir.accuracy import BF16_PRODUCTS, tolerance
from nestwright.ir.dtypes import bf16, f32
from nestwright.ir.hlo import freeze
from nestwright.ir.lane_dots import lane_dot
from nestwright.ir.target import Target

TEXT = """HloModule mlp
ENTRY main {
  x = f32[24,96] parameter(0)
  w = f32[96,72] parameter(1)
  v = f32[72,40] parameter(2)
  h = f32[24,72] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  zs = f32[24,72] broadcast(z), dimensions={}
  r = f32[24,72] maximum(h, zs)
  ROOT y = f32[24,40] dot(r, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LOOSE = Target.parse("cpu -threads=1 -accuracy=0.01")
OLDER = "-mcpu=x86-64-v4 -threads=1 -accuracy=0.01"
ROUNDS = lane_dot(LOOSE, bf16, bf16) is not None


def test_the_reference_rounds_what_the_build_rounds() -> None:
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((24, 96), (96, 72), (72, 40)))
    module = nw.parse(TEXT)
    exe = build(module, LOOSE, constants={1: w, 2: v})
    (row,) = Oracle.of(freeze(module, {1: w, 2: v}), [x], LOOSE).judge(exe(x))
    assert row.ok and row.error < 1e-4 and row.tolerance == tolerance(f32, ROUNDS)
    forms = [r["form"] for r in exe.weights_analysis().get("weights", ())]
    assert forms == ["bf16", "bf16"] * ROUNDS
    exact = np.maximum(x @ w, 0) @ v
    error = np.sqrt(np.mean(np.square(exe(x) - exact)) / np.mean(np.square(exact)))
    assert (error > 1e-4) == ROUNDS and error < 2 * BF16_PRODUCTS


@pytest.mark.parametrize("spec", [LOOSE.spec, f"llvm -mtriple=x86_64-linux-gnu {OLDER}"])
@pytest.mark.parametrize("weights", [None, "f32", "int8"])
def test_what_rounds_no_factor_is_held_to_f32(spec: str, weights: str | None) -> None:
    target = Target.parse(spec)
    rounds = weights != "f32" and target == LOOSE and ROUNDS
    module = nw.parse(TEXT)
    args = [np.ones(p.array.dims, np.float32) for p in module.entry.parameters]
    oracle = Oracle.of(module, args, BuildOptions(target, weights=weights))
    (row,) = oracle.judge(oracle.strict * np.float32(1.01))
    assert row.tolerance == tolerance(f32, rounds) and row.ok == rounds


def test_replay_and_the_command_line_check_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = nw.parse(TEXT)
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    found = replay(module, args, Setting(BuildOptions(LOOSE)))
    assert found.ok and found.rows[0].error < 1e-4
    path = tmp_path / "mlp.hlo"
    path.write_text(TEXT)
    assert main(["run", str(path), "--random", "0", "--check", "--accuracy", "0.01"]) == 0
    assert "match" in capsys.readouterr().out
