"""Statements of a thread that merges: bisection along a merge path, a few steps, a short sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.dtypes import index as index_type
from ...ir.dtypes import pred
from ...ir.loop.build import add, cast, compare, const, maximum, minimum, op, select, sub
from ...ir.loop.nodes import Buffer, Expr, For, If, Let, Load, Stmt, Store, Var
from ...ir.loop.visit import seq
from ..blocks import lets

Values = Sequence[Expr]
Before = Callable[[Values, Values], Expr]


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two sorted runs, one behind the other: places ``base`` to ``middle``, and on to ``end``.

    ``at`` gives the values of the element at a place below ``limit``, of which the first
    ``compared`` are compared. No run has more than ``longest`` elements.
    """

    base: Expr
    middle: Expr
    end: Expr
    at: Callable[[Expr], Values]
    before: Before
    compared: int
    limit: int
    longest: int

    def keys(self, name: str, place: Expr) -> list[tuple[Var, Expr]]:
        """Names for what is compared of the element at a place."""
        found = self.at(minimum(place, self.limit - 1))[: self.compared]
        return [(Var(f"{name}{i}", x.dtype), x) for i, x in enumerate(found)]


def bisected(p: RunPair, first: Expr, state: Buffer, step: Var) -> Stmt:
    """The number of elements of the first run among the ``first`` merged, as ``state[0]``.

    Equal elements of the first run go before those of the second.
    """
    low, high, middle = Var("low"), Var("high"), Var("mid")
    left = p.keys("a", add(p.base, middle))
    right = p.keys("b", sub(add(p.middle, first), add(middle, 1)))
    later = Var("later", pred)
    tried = [
        (middle, op("shift-right-arithmetic", add(low, high), const(1))),
        *left,
        *right,
        (later, p.before([v for v, _ in right], [v for v, _ in left])),
    ]
    halved = seq(
        Store(state, (const(0),), select(later, low, add(middle, 1))),
        Store(state, (const(1),), select(later, middle, high)),
    )
    ends = [(low, Load(state, (const(0),))), (high, Load(state, (const(1),)))]
    searched = lets(ends, If(compare("lt", low, high), lets(tried, halved)))
    return seq(
        Store(state, (const(0),), maximum(sub(first, sub(p.end, p.middle)), 0)),
        Store(state, (const(1),), minimum(first, sub(p.middle, p.base))),
        For(step, const(p.longest.bit_length()), searched),
    )


def merged(
    p: RunPair,
    first: Expr,
    heads: Buffer,
    step: Var,
    count: int,
    write: Callable[[Expr, Values], Stmt],
) -> Stmt:
    """Write the next ``count`` elements behind the ``first`` merged; ``heads[0]`` is as bisected.

    Behind the last element anything is written.
    """
    taken, left, right, take = Var("taken"), Var("left"), Var("right"), Var("take", pred)
    start = seq(
        Store(heads, (const(0),), add(p.base, taken)),
        Store(heads, (const(1),), sub(add(p.middle, first), taken)),
    )
    a, b = p.keys("a", left), p.keys("b", right)
    earlier = p.before([v for v, _ in b], [v for v, _ in a])
    chosen = op("or", compare("ge", left, p.middle), earlier)
    names = [
        (left, Load(heads, (const(0),))),
        (right, Load(heads, (const(1),))),
        *a,
        *b,
        (take, op("and", compare("lt", right, p.end), chosen)),
    ]
    source = minimum(select(take, right, left), p.limit - 1)
    keys = [select(take, y, x) for (x, _), (y, _) in zip(a, b, strict=True)]
    moved = cast(take, index_type)
    move = seq(
        write(step, [*keys, *p.at(source)[p.compared :]]),
        Store(heads, (const(0),), sub(add(left, 1), moved)),
        Store(heads, (const(1),), add(right, moved)),
    )
    begin = Let(taken, Load(heads, (const(0),)), start)
    return seq(begin, For(step, const(count), lets(names, move)))


def exchanged(
    held: Sequence[Buffer], valid: Expr, turn: Var, before: Before, compared: int
) -> Stmt:
    """Sort the first ``valid`` elements of registers by exchanging neighbours, equals never."""
    (n,) = held[0].shape
    pairs = [*range(0, n - 1, 2), *range(1, n - 1, 2)]
    steps = [_exchange(held, i, valid, before, compared) for i in pairs]
    return For(turn, const(-(-n // 2)), seq(*steps))


def _exchange(held: Sequence[Buffer], i: int, valid: Expr, before: Before, compared: int) -> Stmt:
    near, far = (const(i),), (const(i + 1),)
    a = [(Var(f"a{n}", h.dtype), Load(h, near)) for n, h in enumerate(held)]
    b = [(Var(f"b{n}", h.dtype), Load(h, far)) for n, h in enumerate(held)]
    wrong = before([v for v, _ in b[:compared]], [v for v, _ in a[:compared]])
    swap = Var("swap", pred)
    names: list[tuple[Var, Expr]] = [
        *a,
        *b,
        (swap, op("and", compare("lt", const(i + 1), valid), wrong)),
    ]
    stores = [
        s
        for h, (x, _), (y, _) in zip(held, a, b, strict=True)
        for s in (Store(h, near, select(swap, y, x)), Store(h, far, select(swap, x, y)))
    ]
    return lets(names, seq(*stores))
