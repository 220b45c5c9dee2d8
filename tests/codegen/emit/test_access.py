"""Loads of lanes in any order, some of them inactive: the right elements, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.loop.build import add, mul
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
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
