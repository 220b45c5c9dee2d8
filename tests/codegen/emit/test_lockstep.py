"""Vectors of long chains are computed side by side; what depends on an order keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.emit.llvm.lockstep import CHAIN, lockstep
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32
from nestwright.ir.loop.build import add, mul
from nestwright.ir.loop.nodes import (
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Load,
    Op,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target

TYPE = "<16 x float>"


def chain(first: int, count: int = CHAIN, start: str = "%x") -> list[str]:
    """Return additions ``%v<first>`` and on, each of the one before."""
    names = [start, *(f"%v{first + k}" for k in range(count))]
    return [f"  {b} = fadd {TYPE} {a}, {a}" for a, b in pairwise(names)]


def test_chains_take_turns() -> None:
    a, b, c = chain(100), chain(200), chain(300, CHAIN + 2)
    merged = lockstep([a, b, c])
    assert merged[:6] == [a[0], b[0], c[0], a[1], b[1], c[1]]
    assert merged[-2:] == c[-2:]


@pytest.mark.parametrize(
    "pieces",
    [
        [chain(100, CHAIN - 1), chain(200, CHAIN - 1)],
        [chain(100), [*chain(200), "arm1:"]],
        [[f"  %v{k} = fadd {TYPE} %x, %y" for k in range(n, n + 20)] for n in (100, 200)],
        [[f"  %v{k} = add i64 %v{k - 1}, 1" for k in range(n, n + 20)] for n in (100, 200)],
    ],
    ids=["short", "control flow", "no chain", "no vectors"],
)
def test_others_follow_each_other(pieces: Sequence[Sequence[str]]) -> None:
    assert lockstep(pieces) == [line for piece in pieces for line in piece]


def test_a_value_of_an_earlier_piece_is_there() -> None:
    a, b = chain(100), chain(200, start="%v105")
    merged = lockstep([a, b])
    assert merged.index(b[0]) > merged.index(a[5])
    assert sorted(merged) == sorted(a + b)


@pytest.mark.parametrize(
    "access",
    [
        f"store {TYPE} %v%, ptr %p",
        f"store {TYPE} %v%, ptr %slot7",
        f"%v9% = load {TYPE}, ptr %slot7",
    ],
)
def test_stores_and_slots_keep_their_order(access: str) -> None:
    """Also where a later piece comes to them first."""
    own = ["  " + access.replace("%v9%", f"%v9{k}").replace("%v%", f"%v{k}00") for k in (1, 2)]
    a, b = [*chain(100), own[0]], [*chain(200, 1), own[1], *chain(201)]
    merged = lockstep([a, b])
    assert merged.index(own[0]) < merged.index(own[1])
    assert sorted(merged) == sorted(a + b)


def test_calls_that_store_keep_their_order() -> None:
    a, b = (
        ["  call void @llvm.masked.store(%p)", *chain(100)],
        [*chain(200), "  store i32 0, ptr %q"],
    )
    merged = lockstep([b, a])
    assert merged.index(a[0]) > merged.index(b[-1])


X, OUT, TOTAL = Buffer("x", (80,), f32), Buffer("out", (80,), f32), Buffer("total", (1,), f32)
HOST = Target.parse("cpu")
LANES = HOST.lanes(f32)


def run(body: Stmt) -> tuple[str, list[Array]]:
    """Return the code of a function of ``X`` and what it makes of ``OUT`` and ``TOTAL``."""
    func = Func("f", (X, OUT, TOTAL), 2, body)
    x = np.linspace(-2, 2, 80, dtype=np.float32)
    out, total = np.full(80, 7, np.float32), np.zeros(1, np.float32)
    arrays = [x, out, total]
    NativeFunc.load(compile_flat(func, HOST)).run_at([a.ctypes.data for a in arrays])
    return emit(func, HOST), arrays


def exp(e: Expr) -> Expr:
    return Op("exponential", (e,), f32)


def jumps(text: str) -> int:
    """Return how often a chain of fused multiply-adds goes on in another line than the next."""
    lines = [s.split() for s in text.splitlines() if "@llvm.fma." in s]
    return sum(a[0] not in " ".join(b[2:]) for a, b in pairwise(lines))


def test_vectors_and_their_sum() -> None:
    """``out[i] = exp(x[i])``, which is added up: vectors side by side, one sum after the other."""
    i = Var("i")
    e = exp(Load(X, (i,)))
    zero = Const(0)
    total = Store(TOTAL, (zero,), Op("add", (Load(TOTAL, (zero,)), e), f32))
    text, (x, out, sum_) = run(For(i, Const(80), seq(Store(OUT, (i,), e), total), Kind.VECTOR))
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(sum_, np.exp(x).sum(), rtol=1e-5)
    assert jumps(text) > 80 // LANES * 4


@pytest.mark.parametrize("own", [True, False], ids=["recurrence", "apart"])
def test_unrolled_vectors(own: bool) -> None:
    """``out[i + 1] = exp(out[i])`` runs in order; ``out[i + 1] = exp(x[i])`` need not."""
    i, lane = Var("i"), Var("l")
    at = add(mul(i, LANES), lane)
    stored = Store(
        OUT, (add(at, LANES),), exp(Op("negate", (Load(OUT if own else X, (at,)),), f32))
    )
    rows = 80 // LANES - 1
    inner = For(lane, Const(LANES), stored, Kind.VECTOR)
    text, (x, out, _) = run(For(i, Const(rows), inner, Kind.UNROLLED))
    wanted = np.full(80, 7, np.float32)
    for k in range(LANES, LANES * (rows + 1)):
        wanted[k] = np.exp(-(wanted if own else x)[k - LANES])
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    assert (jumps(text) > rows * 4) != own
