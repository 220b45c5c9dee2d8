"""What is recognized as codes, a zero point and scales stands for the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate, evaluate_computation
from nestwright.ir.hlo.passes.weights.quantized.dequantized import dequantized
from nestwright.ir.hlo.rewrite import assemble
from nestwright.ir.hlo.text import parse

TEXT = """
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
ENTRY main {
  q = CODE[4,6] parameter(0)
  r = OTHER[4,6] parameter(1)
  low = f32[] constant(-inf)
  c = f32[4,6] convert(q)
  d = f32[4,6] convert(r)
  z = f32[] constant(3)
  zs = f32[4,6] broadcast(z), dimensions={}
  o = f32[] constant(OTHER_ZERO)
  os = f32[4,6] broadcast(o), dimensions={}
  s = f32[] constant(0.5)
  ss = f32[4,6] broadcast(s), dimensions={}
  t = f32[] constant(OTHER_SCALE)
  ts = f32[4,6] broadcast(t), dimensions={}
  rows = f32[4] constant({1, 2, 0.5, 4})
  by_row = f32[4,6] broadcast(rows), dimensions={0}
  columns = f32[6] constant({1, 2, 0.5, 4, 3, 8})
  by_column = f32[4,6] broadcast(columns), dimensions={1}
  x = f32[4,6] subtract(c, zs)
  y = f32[4,6] multiply(x, ss)
  v = f32[4,6] subtract(d, os)
  w = f32[4,6] multiply(v, ts)
  m = f32[4,6] multiply(by_row, y)
  n = f32[4,6] multiply(x, by_column)
  ROOT
}
"""
FORMS = {
    "converted": "out = f32[4,6] copy(c)",
    "scaled": "out = f32[4,6] copy(y)",
    "by row": "out = f32[4,6] copy(m)",
    "by row, transposed": "out = f32[6,4] transpose(m), dimensions={1,0}",
    "by column, transposed": "out = f32[6,4] transpose(n), dimensions={1,0}",
    "by row, reshaped": "out = f32[4,2,3] reshape(m)",
    "by column, reshaped": "out = f32[2,2,6] reshape(n)",
    "sliced": "out = f32[2,3] slice(m), slice={[1:4:2], [0:3]}",
    "columns sliced": "out = f32[2,3] slice(n), slice={[1:3], [0:6:2]}",
    "scaled twice": "out = f32[4,6] multiply(m, ss)",
    "joined": "out = f32[8,6] concatenate(y, w), dimensions={0}",
    "pooled": "out = f32[4,3] reduce-window(y, low), window={size=1x2 stride=1x2}, to_apply=max",
}
OTHERS = {
    "columns taken apart": "out = f32[4,2,3] reshape(n)",
    "rows taken apart": "out = f32[2,2,6] reshape(m)",
    "scales of both": "out = f32[4,6] multiply(m, by_column)",
    "shifted after scaling": "out = f32[4,6] subtract(y, zs)",
    "shifted by a fraction": "out = f32[4,6] subtract(c, ss)",
    "shifted by data": "out = f32[4,6] subtract(c, d)",
    "joined with scales by row": "out = f32[8,6] concatenate(y, m), dimensions={0}",
}
CODES = np.random.default_rng(0).integers(0, 128, (2, 4, 6))


def found(form: str, **facts: str) -> tuple[Any, Any]:
    """Return what an array is recognized as, and its numbers."""
    named = {"OTHER_ZERO": "3", "OTHER_SCALE": "0.5", "OTHER": "u8", "CODE": "u8"} | facts
    text = TEXT
    for word in sorted(named, key=len, reverse=True):
        text = text.replace(word, named[word])
    module = parse(text.replace("  ROOT\n", f"  ROOT {form}\n"))
    root = module.entry.root
    value = root.operands[0] if root.opcode == "copy" else root
    args = [
        c.astype(named[n].replace("u8", "uint8").replace("s8", "int8"))
        for c, n in zip(CODES, ("CODE", "OTHER"), strict=True)
    ]
    result = dequantized(value)
    if result is None:
        return None, None
    codes = evaluate_computation(assemble("codes", module.entry.parameters, result.codes), args)
    scale = np.asarray(result.scale, np.float64)
    if result.axis is not None:
        shape = [1] * np.ndim(codes)
        shape[result.axis] = -1
        scale = scale.reshape(shape)
    return (np.asarray(codes, np.float64) - result.zero) * scale, evaluate(module, args)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", ["s8", "u8"])
def test_codes_stand_for_the_same_numbers(form: str, code: str) -> None:
    made, wanted = found(FORMS[form], CODE=code, OTHER=code)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("form", OTHERS)
def test_other_arrays_are_no_codes(form: str) -> None:
    assert found(OTHERS[form]) == (None, None)


@pytest.mark.parametrize(
    ("word", "value"), [("OTHER_ZERO", "4"), ("OTHER_SCALE", "0.25"), ("OTHER", "s8")]
)
def test_codes_that_stand_for_other_numbers_are_not_joined(word: str, value: str) -> None:
    assert found(FORMS["joined"], **{word: value}) == (None, None)


def test_a_negative_scale_turns_the_order_of_codes() -> None:
    pooled = FORMS["pooled"].replace("(y, low)", "(w, low)")
    assert found(pooled)[0] is not None
    assert found(pooled, OTHER_SCALE="-0.5") == (None, None)
