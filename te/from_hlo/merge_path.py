"""Statements of a thread that merges: bisection along a merge path, a few steps, a short sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType, pred, s32
from ...ir.dtypes import index as index_type
from ...ir.loop.build import cast, compare, const, op, select
from ...ir.loop.nodes import Buffer, Expr, For, If, Let, Load, Stmt, Store, Var
from ...ir.loop.visit import lets, seq

Values = Sequence[Expr]
Before = Callable[[Values, Values], Expr]

ZERO, ONE = (const(0),), (const(1),)


def place_type(limit: int) -> DType:
    """Return the type of places up to ``2 * limit``: of 64 bits only where it must be."""
    return s32 if limit < 1 << 29 else index_type


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two sorted runs, one behind the other: places ``base`` to ``middle``, and on to ``end``.

    ``at`` gives the values of the element at a place below ``limit``, of which the first
    ``compared`` are compared. No run has more than ``longest`` elements. Places are of
    ``place_type(limit)``, as are ``heads`` and ``ends``, two registers each.
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
        """Return a literal among places."""
        return const(n, self.heads.dtype)

    def values(self, place: Expr) -> Values:
        """Return the values at a place."""
        return self.at(cast(place, index_type))

    def keys(self, name: str, place: Expr) -> list[tuple[Var, Expr]]:
        """Names for what is compared of the element at a place."""
        found = self.values(place)[: self.compared]
        return [(Var(f"{name}{i}", x.dtype), x) for i, x in enumerate(found)]

    def inside(self, place: Expr) -> Expr:
        """Return a place, or the last one there is."""
        return op("minimum", place, self.number(self.limit - 1))

    def merged_before(self, unit: Expr, items: int) -> Expr:
        """Return the number of elements merged before those of a unit, of ``items`` each."""
        whole = op("multiply", unit, self.number(items))
        return op("minimum", whole, op("subtract", self.end, self.base))


def _bisected(p: RunPair, first: Expr, step: Var) -> Stmt:
    """The number of elements of the first run among the ``first`` merged, as ``heads[0]``.

    It is from ``heads[0]`` to ``heads[1]``. Equal elements of the first run go before those of the
    second.
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
    """Find, as ``heads[0]``, the number of elements of the first run before those of a unit."""
    first = Var("first", p.heads.dtype)
    least = op("subtract", first, op("subtract", p.end, p.middle))
    ranged = seq(
        Store(p.heads, ZERO, op("maximum", least, p.number(0))),
        Store(p.heads, ONE, op("minimum", first, op("subtract", p.middle, p.base))),
    )
    return Let(first, p.merged_before(unit, items), seq(ranged, _bisected(p, first, step)))


def split_in_turn(p: RunPair, unit: Expr, items: int, units: int, level: Var, step: Var) -> Stmt:
    """Return the same for a unit and the one behind it, as ``ends``, if ``before`` may be
    inconsistent.

    The middle of all units is found first, then that of each half between what is known, so that
    every element is in just one unit, whatever ``before`` says.
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
    """The steps of a merge: ``count`` elements, written by ``write`` with their number.

    ``front`` are registers for what is compared of the elements at both heads; ``left`` and
    ``right`` say where the parts of the runs end.
    """

    front: Sequence[Buffer]
    left: Expr
    right: Expr
    step: Var
    count: int
    write: Callable[[Expr, Values], Stmt]


def merged(p: RunPair, first: Expr, taken: Expr, s: Steps) -> Stmt:
    """Write the elements behind the ``first`` merged, ``taken`` of which are of the first run.

    Behind the last element anything is written.
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
    """Write the element at one head, and move that head on."""
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
    """Sort the first ``valid`` elements of registers by exchanging neighbors, equals never."""
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
