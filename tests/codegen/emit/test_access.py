"""Loads of lanes in any order, some of them inactive: the right elements, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.loop.build import add, compare, const, mul
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, If, Kind, Load, Store, Var
from nestwright.ir.target import Target

SIZE = 256
TARGETS = [t for t in map(Target.parse, ("cpu", "cpu -mcpu=haswell")) if t.is_host]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "s8", "pred"])
@pytest.mark.parametrize("lanes", [16, 13])
@pytest.mark.parametrize("step", [-1, 1, -2, 2, 0])
def test_lanes_of_any_step(step: int, lanes: int, dtype: str, target: Target) -> None:
    """``x[k] = y[first + step k]``, of elements up to the end of ``y`` and from its start on."""
    y, x = (Buffer(n, (SIZE,), BY_NAME[dtype]) for n in "yx")
    k, place = Var("k"), abs(step) * (lanes - 1)
    for first in {0 if step >= 0 else place, SIZE - 1 - (place if step >= 0 else 0)}:
        load = Load(y, (add(mul(k, step), first),))
        body = For(k, Const(lanes), Store(x, (k,), load), Kind.VECTOR)
        given = np.random.default_rng(0).integers(0, 100, SIZE).astype(to_numpy(y.dtype))
        found = np.zeros(SIZE, given.dtype)
        code = compile_flat(Func("lanes", (y, x), 1, body), target)
        NativeFunc.load(code).run_at([a.ctypes.data for a in (given, found)])
        np.testing.assert_array_equal(found[:lanes], given[first + step * np.arange(lanes)])
        assert not found[lanes:].any()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("lanes", [16, 13])
@pytest.mark.parametrize("on", [[], [3], [0, 12]])
def test_one_element_is_stored_if_a_lane_is_on(on: list[int], lanes: int, target: Target) -> None:
    """``x[0] = 7`` in the lanes of a mask: once, or not at all."""
    y, x = (Buffer(n, (16,), BY_NAME["s32"]) for n in "yx")
    k = Var("k")
    stored = Store(x, (const(0),), Const(7, x.dtype))
    body = If(compare("ne", Load(y, (k,)), Const(0, y.dtype)), stored)
    mask, found = np.zeros(16, np.int32), np.zeros(16, np.int32)
    mask[on] = 1
    loop = For(k, Const(lanes), body, Kind.VECTOR)
    code = compile_flat(Func("uniform", (y, x), 1, loop), target)
    NativeFunc.load(code).run_at([a.ctypes.data for a in (mask, found)])
    assert found.tolist() == [7 * bool(on)] + 15 * [0]
