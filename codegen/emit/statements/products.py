"""Find the matrices that a nest of sums multiplies, and the loops around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....ir.loop.affine import linear
from ....ir.loop.build import as_int
from ....ir.loop.nodes import Buffer, Const, Expr, For, Stmt, Store, Var
from ....ir.loop.simplify import simplify
from ....ir.loop.visit import free_vars, substitute_expr
from ....ir.target import Target
from ....ir.tile_dots import TileDot, fits, tile_dot
from .lane_dots import added_terms

LISTED = 8
"""Most iterations of a loop along which the indices have no constant steps."""


@dataclass(frozen=True, slots=True)
class StridedMatrix:
    """A matrix in memory: its first element, and the distance of its rows in elements."""

    buffer: Buffer
    first: Expr
    pitch: int


@dataclass(frozen=True, slots=True)
class TermLoop:
    """A loop over terms around the tiles: its trip count, and its steps in a and b, in elements."""

    trips: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class TileProduct:
    """``c[m, n] += a[m, k] b[k, n]``, in each step of the loops ``around``.

    The terms are ``groups`` of as many as the instruction takes together: a row of b. All of it is
    done once from each of ``starts``, which are so many elements after the first of a and of b.
    """

    dot: TileDot
    rows: int
    columns: int
    groups: int
    sums: StridedMatrix
    left: StridedMatrix
    right: StridedMatrix
    around: tuple[TermLoop, ...]
    starts: tuple[tuple[int, int], ...] = ((0, 0),)


@dataclass(frozen=True, slots=True)
class _LoopSteps:
    """A loop, and the distance of its steps in c, a and b, in elements."""

    trips: int
    sums: int
    left: int
    right: int


def tile_product(s: For, target: Target) -> TileProduct | None:
    """Return what a nest multiplies; None if tile registers cannot do it.

    Around the terms of a group are loops over rows, columns and groups, and over other terms.
    """
    loops = _perfect(s)
    found = added_terms(loops[-1])
    if found is None or not found[3].is_whole:
        return None
    depth, store, x, factor = found
    w = factor.load
    dot = tile_dot(target, x.buffer.dtype, w.buffer.dtype)
    if dot is None or (dot.sums, dot.depth) != (store.buffer.dtype, depth):
        return None
    at = (store.index[0], x.index[0], w.index[0])
    loops, listed = _listed(loops, at)
    starts, first = _starts(listed, [_at_first(e, loops) for e in at])
    ways = _steps(loops, [_at_first(e, listed) for e in at])
    if ways is None or not starts or ways.pop() != _LoopSteps(depth, 0, 1, 1):
        return None
    found_roles = _roles(dot, ways, first, (store.buffer, x.buffer, w.buffer))
    return None if found_roles is None else replace(found_roles, starts=starts)


def clears(s: Stmt, product: TileProduct) -> bool:
    """True if a statement sets all the sums to 0, and does nothing else."""
    if not isinstance(s, For):
        return False
    loops, sums = _perfect(s), product.sums
    match loops[-1].body:
        case Store(buffer=buffer, index=(at,), value=Const(value=0 | 0.0 as zero)):
            if str(zero).startswith("-"):
                return False
        case _:
            return False
    ways = _steps(loops, (at,))
    if buffer is not sums.buffer or ways is None:
        return False
    if linear(_at_first(at, loops)) != linear(sums.first):
        return False
    steps = sorted((w.sums, w.trips) for w in ways if w.trips > 1)
    mine = [(1, product.columns), (sums.pitch, product.rows)]
    return _joined(steps) == _joined(sorted(x for x in mine if x[1] > 1))


def _perfect(s: For) -> list[For]:
    """Return a loop and those directly in it, the innermost last."""
    loops = [s]
    while isinstance(inner := loops[-1].body, For):
        loops.append(inner)
    return loops


def _at_first(e: Expr, loops: Sequence[For]) -> Expr:
    """Return an index in the first iteration of some loops."""
    return simplify(substitute_expr(e, {x.var: Const(0) for x in loops}), {}) if loops else e


def _listed(loops: list[For], at: Sequence[Expr]) -> tuple[list[For], list[For]]:
    """Return the loops along which indices have steps, and those along which they have none."""
    inside = [free_vars(t) for e in at for t in linear(e).terms if not isinstance(t, Var)]
    odd = frozenset[Var]().union(*inside)
    return [x for x in loops if x.var not in odd], [x for x in loops if x.var in odd]


def _starts(
    listed: Sequence[For], at: Sequence[Expr]
) -> tuple[tuple[tuple[int, int], ...], list[Expr]]:
    """Return where the terms of each iteration of up to one loop begin in a and b, after those of
    the first, and the indices in that; nothing if they do not lie at constant distances.
    """
    first = [_at_first(e, listed) for e in at]
    if not listed:
        return ((0, 0),), first
    trips = as_int(listed[0].extent) or 0
    if len(listed) > 1 or trips > LISTED:
        return (), first
    found = []
    for n in range(trips):
        here = [simplify(substitute_expr(e, {listed[0].var: Const(n)}), {}) for e in at]
        apart = [linear(x) - linear(y) for x, y in zip(here, first, strict=True)]
        if any(d.terms for d in apart) or apart[0].constant:
            return (), first
        found.append((apart[1].constant, apart[2].constant))
    return tuple(found), first


def _steps(loops: Sequence[For], at: Sequence[Expr]) -> list[_LoopSteps] | None:
    """Return the steps of up to three indices along each loop; None if they have none."""
    mine = {x.var for x in loops}
    forms = [linear(e) for e in at]
    inside = (t for form in forms for t in form.terms if not isinstance(t, Var))
    trips = [as_int(x.extent) for x in loops]
    if any(free_vars(t) & mine for t in inside) or not all(trips):
        return None
    steps = [[form.terms.get(x.var, 0) for form in forms] for x in loops]
    return [_LoopSteps(n or 0, *(*s, 0, 0)[:3]) for n, s in zip(trips, steps, strict=True)]


def _joined(steps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return strides and trip counts, ascending, with loops that go on where others end as one."""
    found: list[tuple[int, int]] = []
    for stride, trips in steps:
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = found[-1][0], found[-1][1] * trips
        else:
            found.append((stride, trips))
    return found


def _roles(
    dot: TileDot, ways: Sequence[_LoopSteps], first: Sequence[Expr], buffers: Sequence[Buffer]
) -> TileProduct | None:
    """Tell rows, columns and terms by what moves along each loop."""
    depth = dot.depth
    moving = [w for w in ways if w.trips > 1]
    terms = [w for w in moving if not w.sums]
    rows = [w for w in moving if w.sums and not w.right]
    columns = _joined(sorted((w.sums, w.trips) for w in moving if w.sums and not w.left))
    whole = all(w.right == depth * w.sums for w in moving if w.sums and not w.left)
    known = len(terms) + len(rows) + sum(bool(w.sums and not w.left) for w in moving)
    if known != len(moving) or len(rows) > 1 or not whole:
        return None
    if len(columns) > 1 or (columns and columns[0][0] != 1):
        return None
    row = rows[0] if rows else _LoopSteps(1, 0, 0, 0)
    width = columns[0][1] if columns else 1
    groups = next((w for w in terms if w.left == depth), _LoopSteps(1, 0, 0, 0))
    around = tuple(TermLoop(w.trips, w.left, w.right) for w in terms if w is not groups)
    sums, left, right = (
        StridedMatrix(buffer, at, pitch)
        for buffer, at, pitch in zip(
            buffers, first, (row.sums, row.left, groups.right), strict=True
        )
    )
    if not fits(row.trips, width) or (rows and abs(row.sums) < width):
        return None
    return TileProduct(dot, row.trips, width, groups.trips, sums, left, right, around)
