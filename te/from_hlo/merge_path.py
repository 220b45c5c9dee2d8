"""The steps of one thread of a merge sort: bisect a merge path, merge, sort a few elements.

The merge path of two sorted runs is the sequence of steps that a merge takes through them (Green,
McColl and Bader, GPU Merge Path, 2012). A thread bisects where its part of the path begins, and
merges that part independently of the other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.dtypes import DType, pred, s32
from ...ir.dtypes import index as index_type
from ...ir.loop.build import cast, compare, const, op, select
from ...ir.loop.nodes import Buffer, Expr, For, If, Let, Load, Stmt, Store, Var
from ...ir.loop.visit import lets, seq

Values: TypeAlias = Sequence[Expr]
"""The values that make up an element."""
Before: TypeAlias = Callable[[Values, Values], Expr]
"""Returns the condition that the first element goes before the second."""

ZERO, ONE = (const(0),), (const(1),)


def sum_type(limit: int) -> DType:
    """Return a type for sums of places below ``limit``: 32 bits where they suffice."""
    return s32 if limit < 1 << 29 else index_type


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two adjacent sorted runs: places ``base`` to ``middle``, and ``middle`` to ``end``.

    ``at`` returns the values of the element at a place below ``limit``; ``before`` takes the first
    ``compared`` of them. No run has more than ``longest`` elements. Places are of type
    ``sum_type(limit)``, as are ``heads`` and ``ends``, two registers each.
    """

    base: Expr
    middle: Expr
    end: Expr
    at: Callable[[Expr], Values]
    before: Before
    compared: int
    limit: int
    longest: int
    heads: Buffer
    ends: Buffer

    def number(self, n: int) -> Expr:
        """Return a literal of the type of places."""
        return const(n, self.heads.dtype)

    def values(self, place: Expr) -> Values:
        """Return the values at a place."""
        return self.at(cast(place, index_type))

    def keys(self, name: str, place: Expr) -> list[tuple[Var, Expr]]:
        """Return new variables with the compared values of the element at a place."""
        found = self.values(place)[: self.compared]
        return [(Var(f"{name}{i}", x.dtype), x) for i, x in enumerate(found)]

    def inside(self, place: Expr) -> Expr:
        """Return a place, or the last place if it is beyond that."""
        return op("minimum", place, self.number(self.limit - 1))

    def merged_before(self, unit: Expr, items: int) -> Expr:
        """Return the number of elements merged before unit number ``unit``, of ``items`` each."""
        whole = op("multiply", unit, self.number(items))
        return op("minimum", whole, op("subtract", self.end, self.base))


def _bisected(p: RunPair, first: Expr, step: Var) -> Stmt:
    """Bisect how many of the ``first`` merged elements are from the first run, into ``heads[0]``.

    The number is known to be between ``heads[0]`` and ``heads[1]``. Equal elements of the first run
    go before those of the second.
    """
    low, high, middle = (Var(n, first.dtype) for n in ("low", "high", "mid"))
    left = p.keys("a", op("add", p.base, middle))
    behind = op("subtract", first, op("add", middle, p.number(1)))
    right = p.keys("b", op("add", p.middle, behind))
    later = Var("later", pred)
    tried = [
        (middle, op("shift-right-arithmetic", op("add", low, high), p.number(1))),
        *left,
        *right,
        (later, p.before([v for v, _ in right], [v for v, _ in left])),
    ]
    halved = seq(
        Store(p.heads, ZERO, select(later, low, op("add", middle, p.number(1)))),
        Store(p.heads, ONE, select(later, middle, high)),
    )
    ends: list[tuple[Var, Expr]] = [(low, Load(p.heads, ZERO)), (high, Load(p.heads, ONE))]
    searched = lets(ends, If(op("lt", low, high), lets(tried, halved)))
    return For(step, const(p.longest.bit_length()), searched)


def split(p: RunPair, unit: Expr, items: int, step: Var) -> Stmt:
    """Return statements that set ``heads[0]`` to the elements of the first run before a unit."""
    first = Var("first", p.heads.dtype)
    least = op("subtract", first, op("subtract", p.end, p.middle))
    ranged = seq(
        Store(p.heads, ZERO, op("maximum", least, p.number(0))),
        Store(p.heads, ONE, op("minimum", first, op("subtract", p.middle, p.base))),
    )
    return Let(first, p.merged_before(unit, items), seq(ranged, _bisected(p, first, step)))


def split_in_turn(p: RunPair, unit: Expr, items: int, units: int, level: Var, step: Var) -> Stmt:
    """Return statements that set ``ends`` to the elements of the first run before and after a unit.

    For a ``before`` that may be inconsistent: the middle of all ``units`` is bisected first, then
    the middle of each half between known ends, and so on. So every element is in exactly one unit,
    whatever ``before`` returns.
    """
    half, near, at = (Var(n, p.heads.dtype) for n in ("half", "near", "at"))
    low, high, first, behind = (Var(n, p.heads.dtype) for n in ("from", "till", "first", "behind"))
    top = p.number(units // 2)
    names: list[tuple[Var, Expr]] = [
        (half, op("shift-right-arithmetic", top, cast(level, p.heads.dtype))),
        (near, op("and", unit, op("multiply", half, p.number(-2)))),
        (low, Load(p.ends, ZERO)),
        (high, Load(p.ends, ONE)),
        (first, p.merged_before(op("add", near, half), items)),
        (behind, p.merged_before(op("add", op("add", near, half), half), items)),
    ]
    earlier = op("subtract", p.merged_before(near, items), low)
    ranged = seq(
        Store(
            p.heads, ZERO, op("maximum", low, op("subtract", first, op("subtract", behind, high)))
        ),
        Store(p.heads, ONE, op("minimum", high, op("subtract", first, earlier))),
    )
    upper = op("ne", op("and", unit, half), p.number(0))
    kept = seq(
        Store(p.ends, ZERO, select(upper, at, low)),
        Store(p.ends, ONE, select(upper, high, at)),
    )
    turn = seq(ranged, _bisected(p, first, step), Let(at, Load(p.heads, ZERO), kept))
    return seq(
        Store(p.ends, ZERO, p.number(0)),
        Store(p.ends, ONE, op("subtract", p.middle, p.base)),
        For(level, const((units - 1).bit_length()), lets(names, turn)),
    )


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a merge: ``count`` elements, which ``write`` stores, given their number.

    ``front`` are registers for the compared values of the elements at both heads; ``left`` and
    ``right`` are the places where the parts of the two runs end.
    """

    front: Sequence[Buffer]
    left: Expr
    right: Expr
    step: Var
    count: int
    write: Callable[[Expr, Values], Stmt]


def merged(p: RunPair, first: Expr, taken: Expr, s: Steps) -> Stmt:
    """Return statements that write the elements after the ``first`` merged ones.

    ``taken`` of those are from the first run. What is written after the last element is undefined.
    """
    filled = [
        Store(f, at, x)
        for at in (ZERO, ONE)
        for f, x in zip(s.front, p.values(p.inside(Load(p.heads, at))), strict=False)
    ]
    return seq(
        Store(p.heads, ONE, op("subtract", op("add", p.middle, first), taken)),
        Store(p.heads, ZERO, op("add", p.base, taken)),
        *filled,
        For(s.step, const(s.count), _step(p, s)),
    )


def _step(p: RunPair, s: Steps) -> Stmt:
    """Write the element at one head, and advance that head."""
    left, right, source = (Var(n, p.heads.dtype) for n in ("left", "right", "source"))
    a = [(Var(f"a{i}", f.dtype), Load(f, ZERO)) for i, f in enumerate(s.front)]
    b = [(Var(f"b{i}", f.dtype), Load(f, ONE)) for i, f in enumerate(s.front)]
    take = Var("take", pred)
    earlier = p.before([v for v, _ in b], [v for v, _ in a])
    chosen = op("or", op("ge", left, s.left), earlier)
    names: list[tuple[Var, Expr]] = [
        (left, Load(p.heads, ZERO)),
        (right, Load(p.heads, ONE)),
        *a,
        *b,
        (take, op("and", op("lt", right, s.right), chosen)),
        (source, select(take, right, left)),
    ]
    rest = p.values(p.inside(source))[p.compared :]
    keys = [select(take, y, x) for (x, _), (y, _) in zip(a, b, strict=True)]
    after = op("add", source, p.number(1))
    new = p.keys("c", p.inside(after))
    moves = [
        Store(p.heads, ZERO, select(take, left, after)),
        Store(p.heads, ONE, select(take, after, right)),
    ]
    for f, (x, _), (y, _), (z, _) in zip(s.front, a, b, new, strict=True):
        moves += [Store(f, ZERO, select(take, x, z)), Store(f, ONE, select(take, z, y))]
    return lets(names, seq(s.write(s.step, [*keys, *rest]), lets(new, seq(*moves))))


def exchanged(
    held: Sequence[Buffer], valid: Expr, turn: Var, before: Before, compared: int
) -> Stmt:
    """Return a stable odd-even sort of the first ``valid`` elements in registers."""
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
