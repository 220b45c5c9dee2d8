"""Products of arrays whose scales and zero points are computed: which multiply bytes."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import freeze, optimize, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule

TEXT = """HloModule measured
ENTRY main {
  q = CODE[2,3,8] parameter(0)
  s = f32[SIZES] parameter(1)
  z = ZERO[SIZES] parameter(2)
  w = s8[8,5] parameter(3)
  t = f32[5] parameter(4)
  f = f32[2,3,8] convert(q)
  zf = f32[SIZES] convert(z)
  zs = f32[2,3,8] broadcast(zf), dimensions={PLACES}
  d = f32[2,3,8] subtract(f, zs)
  ss = f32[2,3,8] broadcast(s), dimensions={PLACES}
  x = f32[2,3,8] multiply(ss, d)
  m = f32[6,8] reshape(x)
  g = f32[8,5] convert(w)
  ts = f32[8,5] broadcast(t), dimensions={1}
  v = f32[8,5] multiply(g, ts)
  ROOT y = f32[6,5] dot(m, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
ONE, ROWS, COLUMNS = ("", ""), ("2,3", "0,1"), ("8", "2")


def module(
    code: str, zero: str, form: tuple[str, str], frozen: bool = True
) -> tuple[HloModule, list[np.ndarray]]:
    text = TEXT.replace("CODE", code).replace("ZERO", zero)
    text = text.replace("SIZES", form[0]).replace("PLACES", form[1])
    m, rng = parse(text), np.random.default_rng(0)
    kinds = {"u8": np.uint8, "s8": np.int8, "s32": np.int32, "s64": np.int64}
    dims = [p.array.dims for p in m.entry.parameters]
    given = [
        rng.integers(0, 120, dims[0]).astype(kinds[code]),
        rng.uniform(0.01, 0.1, dims[1]).astype(np.float32),
        rng.integers(0, 120, dims[2]).astype(kinds[zero]),
        rng.integers(-128, 128, dims[3]).astype(np.int8),
        rng.uniform(0.01, 0.1, dims[4]).astype(np.float32),
    ]
    return (freeze(m, {3: given[3], 4: given[4]}), given[:3]) if frozen else (m, given)


def sums(m: HloModule) -> str:
    (dot,) = (i for i in optimize(m).entry.instructions if i.opcode == "dot")
    return dot.array.dtype.name


@pytest.mark.parametrize("code", ["u8", "s8"])
@pytest.mark.parametrize("zero", ["u8", "s8"])
@pytest.mark.parametrize("form", [ONE, ROWS], ids=["one", "rows"])
def test_bytes_are_multiplied(code: str, zero: str, form: tuple[str, str]) -> None:
    m, given = module(code, zero, form)
    assert sums(m) == "s32"
    np.testing.assert_allclose(evaluate(optimize(m), given), evaluate(m, given), rtol=2e-6)


@pytest.mark.parametrize(
    ("zero", "form", "frozen"),
    [("s32", ROWS, True), ("u8", COLUMNS, True), ("u8", ONE, False)],
    ids=["zero points of any size", "scales of columns", "weights that are given"],
)
def test_others_are_floats(zero: str, form: tuple[str, str], frozen: bool) -> None:
    m, given = module("u8", zero, form, frozen)
    assert sums(m) == "f32"
    np.testing.assert_allclose(evaluate(optimize(m), given), evaluate(m, given), rtol=1e-5)


def test_zero_points_that_are_held_within_a_range() -> None:
    text = TEXT.replace("CODE", "u8").replace("ZERO", "s64").replace("SIZES", "")
    text = text.replace("PLACES", "").replace("convert(z)", "convert(held)")
    limits = "low = s64[] constant(0)\n  high = s64[] constant(255)\n"
    held = f"{limits}  held = s64[] clamp(low, z, high)\n  w = s8"
    rng = np.random.default_rng(0)
    weights = {3: rng.integers(-128, 128, (8, 5)).astype(np.int8), 4: np.float32(rng.random(5))}
    assert sums(freeze(parse(text.replace("w = s8", held)), weights)) == "s32"
