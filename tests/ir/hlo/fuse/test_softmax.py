"""Softmax in a group: one reciprocal a row where the sum is at least 1, else divisions."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.fuse.fusion import Fusion, fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize

REDUCERS = """
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
"""
ROWS = """
  x = f32[6,5,9] parameter(0)
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[6,5] reduce(x, lowest), dimensions={2}, to_apply=max
  ms = f32[6,5,9] broadcast(m), dimensions={0,1}
  d = f32[6,5,9] subtract(x, ms)
  e = f32[6,5,9] exponential(d)
  n = f32[6,5] reduce(e, zero), dimensions={2}, to_apply=sum
  ns = f32[6,5,9] broadcast(n), dimensions={0,1}
  ROOT r = f32[6,5,9] divide(e, ns)
"""
UNITS = """
  x = f32[6,5,9] parameter(0)
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[6,5] reduce(x, lowest), dimensions={2}, to_apply=max
  m1 = f32[6,5,1] reshape(m)
  m0 = f32[6,5] reshape(m1)
  ms = f32[6,5,9] broadcast(m0), dimensions={0,1}
  d = f32[6,5,9] subtract(x, ms)
  e = f32[6,5,9] exponential(d)
  n = f32[6,5] reduce(e, zero), dimensions={2}, to_apply=sum
  n1 = f32[6,5,1] reshape(n)
  n0 = f32[6,5] reshape(n1)
  ns = f32[6,5,9] broadcast(n0), dimensions={0,1}
  ROOT r = f32[6,5,9] divide(e, ns)
"""
LOWEST = ROWS.replace("-inf", "-3.40282347e+38")
SOFTMAXES = {"rows": ROWS, "units": UNITS, "lowest": LOWEST}
OTHERS = {
    "a larger start": ROWS.replace("constant(-inf)", "constant(3)"),
    "a sum from 1": ROWS.replace("constant(0)", "constant(1)"),
    "no maximum": ROWS.replace("subtract(x, ms)", "add(x, ms)"),
    "another maximum": ROWS.replace("reduce(x,", "reduce(y,").replace(
        "  lowest", "  y = f32[6,5,9] parameter(1)\n  lowest"
    ),
    "another sum": ROWS.replace("reduce(e,", "reduce(d,"),
    "the least": ROWS.replace("to_apply=max", "to_apply=sum"),
    "another axis": ROWS.replace("[6,5]", "[6,6]")
    .replace("[6,5,9]", "[6,6,9]")
    .replace("broadcast(n), dimensions={0,1}", "broadcast(n), dimensions={1,0}"),
}


def fused(body: str) -> Fusion:
    return fuse(optimize(parse(f"HloModule m\n{REDUCERS}\nENTRY main {{{body}}}")).entry)


def divisions(fusion: Fusion) -> list[int]:
    """Return the number of dimensions of what is divided."""
    found = (i for g in fusion.groups for i in g.computation.instructions if i.opcode == "divide")
    return [i.array.rank for i in found]


@pytest.mark.parametrize("body", SOFTMAXES.values(), ids=list(SOFTMAXES))
def test_a_row_is_divided_once(body: str) -> None:
    fusion = fused(body)
    (group,) = fusion.groups
    assert divisions(fusion) == [2]
    x = np.random.default_rng(0).standard_normal((6, 5, 9), np.float32) * 30
    x[0, 0, 0] = np.nan
    x[1, 1, 1] = np.inf
    x[2] = -np.inf
    x[3, 3, :] = -np.inf
    x[3, 3, 2] = 4
    x[4] = np.float32(3.4e38)
    x[5, 1, 3] = -np.float32(3.4e38)
    with np.errstate(all="ignore"):
        found = evaluate_computation(group.computation, [x])
        expected = evaluate_computation(fusion.computation, [x])
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    normal = expected > np.finfo(np.float32).tiny
    units = np.abs(found[normal] - expected[normal]) / np.spacing(expected[normal])
    assert units.max() <= 1.5
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-37)


@pytest.mark.parametrize("body", OTHERS.values(), ids=list(OTHERS))
def test_any_other_quotient_stays(body: str) -> None:
    assert 3 in divisions(fused(body))
