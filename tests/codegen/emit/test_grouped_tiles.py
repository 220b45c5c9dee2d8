"""Tiles that move a few neighbors at a time: transposed in registers only where no order shows."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import u8
from nestwright.ir.loop.build import add, mul
from nestwright.ir.loop.nodes import Buffer, Const, Expr, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

DEPTH, NEAR, LANES = 4, 4, 16
SIZE = 4096

Steps = tuple[int, int]
"""The elements from one iteration to the next, and from one lane to the next."""


def tile(into: Steps, out: Steps, alone: bool) -> Func:
    """``for i, lane, n: x[..] = y[..]``, or of ``x`` alone."""
    x, y = Buffer("x", (SIZE,), u8), Buffer("y", (SIZE,), u8)
    i, lane, n = Var("i"), Var("lane"), Var("n")

    def at(steps: Steps) -> tuple[Expr]:
        return (add(add(mul(i, steps[0]), mul(lane, steps[1])), n),)

    store = Store(x, at(into), Load(x if alone else y, at(out)))
    inner = For(lane, Const(LANES), For(n, Const(DEPTH), store, Kind.SERIAL), Kind.VECTOR)
    return Func("tile", (y, x), 1, For(i, Const(NEAR), inner, Kind.UNROLLED))


def moved(x: Array, y: Array, into: Steps, out: Steps) -> None:
    """What the loops do: lanes read before they write, all else in order."""
    for i in range(NEAR):
        for n in range(DEPTH):
            read = [y[i * out[0] + lane * out[1] + n] for lane in range(LANES)]
            for lane, value in enumerate(read):
                x[i * into[0] + lane * into[1] + n] = value


@pytest.mark.parametrize(
    ("into", "out", "alone", "transposed"),
    [
        ((DEPTH, 64), (64, DEPTH), False, True),
        ((DEPTH, DEPTH), (64, DEPTH), False, False),  # lanes write over one another
        ((DEPTH, 64), (64, DEPTH), True, False),  # reads what it writes
        ((DEPTH + 1, 64), (64, DEPTH), False, False),
        ((DEPTH, 64), (64, DEPTH + 1), False, False),
    ],
)
def test_what_is_moved(into: Steps, out: Steps, alone: bool, transposed: bool) -> None:
    func = tile(into, out, alone)
    y = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)
    x = y[::-1].copy()
    wanted = x.copy()
    moved(wanted, wanted if alone else y, into, out)
    NativeFunc.load(compile_flat(func, Target.parse("cpu"))).run_at([a.ctypes.data for a in (y, x)])
    np.testing.assert_array_equal(x, wanted)
    elsewhere = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    assert ("masked.scatter" in emit(func, elsewhere)) != transposed
