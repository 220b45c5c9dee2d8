"""A loop's state is written where it is, without a copy, if nothing reads it later."""

from __future__ import annotations

import numpy as np

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.nodes import CopyThunk, WhileThunk
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

SCAN = """HloModule scan
more { s = (s32[], f32[40], f32[9,40], f32[9,40]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT r = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[40], f32[9,40], f32[9,40]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = f32[40] get-tuple-element(s), index=1
  made = f32[9,40] get-tuple-element(s), index=2
  x = f32[9,40] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  row = f32[1,40] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,40}
  flat = f32[40] reshape(row)
  next = f32[40] subtract(flat, c)
  old = f32[1,40] reshape(c)
  put = f32[9,40] dynamic-update-slice(made, old, i, zero)
  ROOT r = (s32[], f32[40], f32[9,40], f32[9,40]) tuple(j, next, put, x) }
ENTRY main { x = f32[9,40] parameter(0)
  c = f32[40] parameter(1)
  i = s32[] constant(0)
  nought = f32[] constant(0)
  made = f32[9,40] broadcast(nought), dimensions={}
  s = (s32[], f32[40], f32[9,40], f32[9,40]) tuple(i, c, made, x)
  w = (s32[], f32[40], f32[9,40], f32[9,40]) while(s), condition=more, body=step
  end = f32[40] get-tuple-element(w), index=1
  rows = f32[9,40] get-tuple-element(w), index=2
  ROOT r = (f32[40], f32[9,40]) tuple(end, rows)
}
"""


def test_the_present_value_is_stored_before_the_next_one_is_made() -> None:
    module = parse(SCAN)
    exe = build(module)
    loop = next(t for t in exe.plan.thunks if isinstance(t, WhileThunk))
    assert not any(isinstance(t, CopyThunk) for t in loop.body)
    rng = np.random.default_rng(4)
    x, c = rng.standard_normal((9, 40), np.float32), rng.standard_normal(40, np.float32)
    for got, want in zip(exe(x, c), evaluate(module, [x, c]), strict=True):
        np.testing.assert_array_equal(got, want)
