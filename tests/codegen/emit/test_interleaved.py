"""Unrolled iterations whose lanes interleave: stored together only where that is the same."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import s32
from nestwright.ir.loop.build import add, floordiv, mul
from nestwright.ir.loop.nodes import Buffer, Const, Expr, For, Func, Kind, Load, Op, Store, Var
from nestwright.ir.target import Target

SIZE = 512
DEPTHS = (2, 3, 4, 5, 6, 7)


def nest(depth: int, lanes: int, again: bool, gap: int) -> Func:
    """``for n, k: x[at + n] = y[n, k]``, ``at = d k + gap (k // 8)``; ``again``: plus ``x[at]``."""
    x, y = Buffer("x", (SIZE,), s32), Buffer("y", (depth * lanes,), s32)
    n, k = Var("n"), Var("k")
    start = add(mul(k, depth), mul(floordiv(k, 8), gap)) if gap else mul(k, depth)
    value: Expr = Load(y, (add(mul(n, lanes), k),))
    if again:
        value = Op("add", (value, Load(x, (start,))), s32)
    store = Store(x, (add(start, n),), value)
    inner = For(k, Const(lanes), store, Kind.VECTOR)
    return Func("interleaved", (y, x), 1, For(n, Const(depth), inner, Kind.UNROLLED))


def stored(x: Array, y: Array, depth: int, lanes: int, again: bool, gap: int) -> None:
    k = np.arange(lanes)
    start = depth * k + gap * (k // 8)
    for n in range(depth):
        own = y[n * lanes : (n + 1) * lanes]
        x[start + n] = own + x[start] if again else own


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("lanes", [32, 20, 3])
@pytest.mark.parametrize(("again", "gap"), [(False, 0), (True, 0), (False, 40)])
def test_every_element_is_stored_in_order(depth: int, lanes: int, again: bool, gap: int) -> None:
    func = nest(depth, lanes, again, gap)
    y = np.arange(1000, 1000 + depth * lanes, dtype=np.int32)
    x = np.arange(SIZE, dtype=np.int32)
    wanted = x.copy()
    stored(wanted, y, depth, lanes, again, gap)
    NativeFunc.load(compile_flat(func, Target.parse("cpu"))).run_at([a.ctypes.data for a in (y, x)])
    np.testing.assert_array_equal(x, wanted)
    elsewhere = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    assert ("masked.scatter" in emit(func, elsewhere)) == (again or bool(gap))
