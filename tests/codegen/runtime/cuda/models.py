"""Small models for the runtime's tests, their arguments, and arrays of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.hlo.interp.evaluate import evaluate

ADD = """HloModule add
ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT z = f32[64] add(x, y)
}
"""
CHAIN = """HloModule chain
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[32,48] parameter(0)
  w = f32[48,16] parameter(1)
  d = f32[32,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[32,16] tanh(d)
  zero = f32[] constant(0)
  s = f32[32] reduce(e, zero), dimensions={1}, to_apply=add
  ROOT t = (f32[32,16], f32[32]) tuple(e, s)
}
"""
COUNT = """HloModule count
body { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  w = f32[8] add(v, v)
  ROOT r = (s32[], f32[8]) tuple(n, w) }
more { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT r = pred[] compare(i, ten), direction=LT }
ENTRY main {
  i = s32[] parameter(0)
  v = f32[8] parameter(1)
  s = (s32[], f32[8]) tuple(i, v)
  ROOT r = (s32[], f32[8]) while(s), condition=more, body=body
}
"""
CHOOSE = """HloModule choose
left { x = f32[8] parameter(0)
  ROOT r = f32[8] add(x, x) }
middle { x = f32[8] parameter(0)
  ROOT r = f32[8] negate(x) }
right { x = f32[8] parameter(0)
  ROOT r = f32[8] multiply(x, x) }
ENTRY main {
  n = s32[] parameter(0)
  x = f32[8] parameter(1)
  ROOT r = f32[8] conditional(n, x, x, x), branch_computations={left, middle, right}
}
"""


def arguments(exe: Executable, seed: int = 0) -> list[Any]:
    return exe.random_arguments(seed)


def assert_right(exe: Executable, args: list[Any], result: Any) -> None:
    expected = evaluate(exe.module, args)
    for got, want in zip(_leaves(result), _leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


def _leaves(x: Any) -> list[Any]:
    return [y for part in x for y in _leaves(part)] if isinstance(x, tuple) else [x]


class Foreign:
    """An array of another library, in the stand-in's device memory, through the array interface."""

    def __init__(self, array: Any, stream: int | None = None) -> None:
        self.array = array
        facts = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": facts["data"],
            "strides": facts["strides"],
            "version": 3,
            "stream": stream,
        }


def aligned(values: Any, offset: int = 0) -> Any:
    """The values in memory that begins ``offset`` bytes after a multiple of 64."""
    values = np.ascontiguousarray(values)
    room = np.zeros(values.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    made = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made
