"""Builds that may round rows and columns to bytes: right by the reference that rounds them, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.oracle import Oracle
from nestwright.ir.accuracy import BYTE_PRODUCTS, byte_dot, tolerance
from nestwright.ir.dtypes import f32
from nestwright.ir.hlo import freeze
from nestwright.ir.target import Target

TEXT = """HloModule mlp
ENTRY main {
  x = f32[21,300] parameter(0)
  w = f32[300,270] parameter(1)
  v = f32[270,260] parameter(2)
  h = f32[21,270] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  zs = f32[21,270] broadcast(z), dimensions={}
  r = f32[21,270] maximum(h, zs)
  ROOT y = f32[21,260] dot(r, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LOOSE = Target.parse("cpu -threads=2 -accuracy=0.02")
ROUNDS = byte_dot(LOOSE) is not None


def test_the_reference_rounds_what_the_build_rounds() -> None:
    rng = np.random.default_rng(0)
    x, w, v = (
        rng.standard_normal(s).astype(np.float32) for s in ((21, 300), (300, 270), (270, 260))
    )
    module = nw.parse(TEXT)
    exe = build(module, LOOSE, constants={1: w, 2: v})
    (row,) = Oracle.of(freeze(module, {1: w, 2: v}), [x], LOOSE).judge(exe(x))
    assert row.ok and row.tolerance == tolerance(f32, True)
    forms = [r["form"] for r in exe.weights_analysis().get("weights", ())]
    assert not ROUNDS or forms == ["int8", "int8"]
    exact = np.maximum(x @ w, 0) @ v
    error = np.sqrt(np.mean(np.square(exe(x) - exact)) / np.mean(np.square(exact)))
    assert error < 2 * BYTE_PRODUCTS
    assert not ROUNDS or error > BYTE_PRODUCTS / 2


def test_tile_registers_multiply_bf16_instead() -> None:
    lanes, tiles = (f"cpu -mcpu={cpu} -accuracy=0.02" for cpu in ("cooperlake", "emeraldrapids"))
    assert byte_dot(Target.parse(lanes)) is not None
    assert byte_dot(Target.parse(tiles)) is None


def test_the_command_line_checks_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    path, constants = tmp_path / "mlp.hlo", tmp_path / "w.npz"
    path.write_text(TEXT)
    shapes = {"1": (300, 270), "2": (270, 260)}
    np.savez(constants, **{n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()})
    given = ["run", str(path), "--constants", str(constants), "--random", "0", "--check"]
    assert main([*given, "--accuracy", "0.02"]) == 0
    assert "match" in capsys.readouterr().out
