"""Results that TensorFlow's lowering gives in another type than its graph declares."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import from_numpy
from nestwright.ir.frontends.tensorflow.result_types import as_declared

ONE = """HloModule one, entry_computation_layout={(f32[3]{0})->f32[3]{0}}
ENTRY e { x = f32[3]{0} parameter(0)
  ROOT n = f32[3]{0} negate(x) }
"""
TWO = """HloModule two, entry_computation_layout={(f32[3]{0})->(f32[3]{0}, s32[])}
ENTRY e { x = f32[3]{0} parameter(0)
  n = f32[3]{0} negate(x)
  c = s32[] constant(7)
  ROOT t = (f32[3]{0}, s32[]) tuple(n, c) }
"""
LOOP = """HloModule loop
body { p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  twice = f32[3] add(x, x)
  ROOT t = (s32[], f32[3]) tuple(next, twice) }
condition { p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  last = s32[] constant(3)
  ROOT less = pred[] compare(i, last), direction=LT }
ENTRY e { x = f32[3] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[3]) tuple(zero, x)
  ROOT w = (s32[], f32[3]) while(t), condition=condition, body=body }
"""
X = np.array([1.5, -2, 0.25], np.float32)


@pytest.mark.parametrize(
    ("text", "types", "values"),
    [
        (ONE, ["float16"], [-X]),
        (ONE, ["complex64"], [-X]),
        (TWO, ["float64", "int32"], [-X, 7]),
        (LOOP, ["int64", "float16"], [3, 8 * X]),
    ],
)
def test_results_have_the_declared_types(text: str, types: list[str], values: list[object]) -> None:
    wanted = [np.dtype(t) for t in types]
    module = as_declared(nw.parse(text), [from_numpy(t) for t in wanted])
    found = nw.build(module)(X)
    for a, t, v in zip(found if len(types) > 1 else [found], wanted, values, strict=True):
        assert np.asarray(a).dtype == t
        np.testing.assert_array_equal(a, v)


def test_a_module_of_the_declared_types_stays_as_it_is() -> None:
    module = nw.parse(TWO)
    assert as_declared(module, [from_numpy(np.dtype(t)) for t in ("float32", "int32")]) is module
