"""The elements that the threads of a block touch, thread by thread: who may meet whom.

The question is whether two accesses, in the same iteration of the loops around both, may touch one
element from different threads. It is answered by going through all threads and all iterations of
the inner loops; what hangs on the outer loops has to cancel, or to repeat after a few iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import reduce

import numpy as np

from ....ir.arrays import Array
from ....ir.elementwise import TABLE
from ....ir.loop.affine import Interval, Linear, bounds, linear, to_expr
from ....ir.loop.build import number_of, sub
from ....ir.loop.intrinsics import WARP
from ....ir.loop.nodes import Buffer, Const, Expr, Op, Var
from ....ir.loop.simplify import simplify
from ....ir.loop.visit import free_vars, substitute_expr, walk_expr

MOST = 1 << 20  # points that are looked at; beyond, threads are taken to conflict


class Conflict(IntEnum):
    """The widest scope in which two threads may touch one element."""

    NONE = 0
    IN_WARP = 1
    IN_BLOCK = 2


@dataclass(frozen=True, slots=True, eq=False)
class ElementAccess:
    """A box of a buffer (``starts`` and ``sizes``) that each thread touches.

    ``loops`` are those around it in the launch, outermost first, with their extents; ``guards`` the
    conditions under which it happens.
    """

    buffer: Buffer
    starts: tuple[Expr, ...]
    sizes: tuple[int, ...]
    write: bool
    loops: tuple[tuple[Var, int], ...]
    guards: tuple[Expr, ...]

    def at(self, var: Var, value: int) -> ElementAccess:
        """Return the same in one iteration of an outer loop."""
        by: Mapping[Var, Expr] = {var: Const(value)}
        starts = tuple(substitute_expr(e, by) for e in self.starts)
        guards = tuple(substitute_expr(e, by) for e in self.guards)
        return replace(self, starts=starts, guards=guards)


@dataclass(frozen=True)
class BlockThreads:
    """The threads of a block: the variables of threadIdx.x, .y and .z, each with its extent."""

    vars: tuple[tuple[Var | None, int], ...]

    @property
    def count(self) -> int:
        """The number of threads."""
        return int(np.prod([n for _, n in self.vars]))

    def meet(self, a: ElementAccess, b: ElementAccess, depth: int) -> Conflict:
        """Return the conflict of two accesses, one of which writes, in the same iteration of the
        first ``depth`` loops around them."""
        outer = dict(a.loops[:depth])
        dims = []
        whole = self.together(a, b, depth)
        for x, y, m, n in zip(a.starts, b.starts, a.sizes, b.sizes, strict=True):
            parts = self.without_outer(a, x, depth), self.without_outer(b, y, depth)
            if parts[0] is not None and parts[1] is not None and parts[0][1] == parts[1][1]:
                dims.append((parts[0][0], m, parts[1][0], n))
                continue
            if whole is not None:
                dims.append(whole)
                whole = None
                continue
            var, times = _repeats((x, y), outer)
            if var is not None:
                return max(self.meet(a.at(var, k), b.at(var, k), depth) for k in range(times))
        one = self.points(a, [(e, m) for e, m, _, _ in dims], depth)
        two = self.points(b, [(e, n) for _, _, e, n in dims], depth)
        if one is None or two is None:
            return Conflict.IN_BLOCK
        return _compared(one, two)

    def together(
        self, a: ElementAccess, b: ElementAccess, depth: int
    ) -> tuple[Expr, int, Expr, int] | None:
        """Return positions in the whole buffer, if they tell more than each index alone.

        Indices may be the digits of one number.
        """
        if any(n != 1 for n in (*a.sizes, *b.sizes)) or len(a.sizes) < 2:
            return None
        for boxes in (tuple((0, n) for n in a.buffer.shape), _reached(a, b)):
            parts = [self.without_outer(x, self.number(x, boxes), depth) for x in (a, b)]
            if parts[0] is not None and parts[1] is not None and parts[0][1] == parts[1][1]:
                return parts[0][0], 1, parts[1][0], 1
        return None

    def number(self, a: ElementAccess, boxes: Sequence[Interval]) -> Expr:
        """Return the number of an element in a box: by axis, where that begins, and its extent."""
        places = [sub(e, low) for e, (low, _) in zip(a.starts, boxes, strict=True)]
        total = number_of(places, [n for _, n in boxes])
        inside = (*self.vars, *a.loops)
        return simplify(total, {v: (0, n - 1) for v, n in inside if v is not None})

    def misses(self, read: ElementAccess, writes: Sequence[ElementAccess]) -> bool:
        """True if a thread reads an element that it does not write. False where it is unknown."""
        known: list[tuple[list[Array], Array]] = []
        rests: set[tuple[Expr, ...]] = set()
        for a in (read, *writes):
            parts = [self.without_outer(a, e, 0) for e in a.starts]
            if any(p is None for p in parts):
                return False
            inner = [(p[0], n) for p, n in zip(parts, a.sizes, strict=True) if p is not None]
            rests.add(tuple(to_expr(p[1]) for p in parts if p is not None))
            points = self.points(a, inner, 0, every=True)
            if points is None:
                return False
            known.append(points)
        if len(rests) > 1:
            return False
        mine, *others = _numbered([[*where, threads] for where, threads in known])
        there = np.concatenate([np.zeros(0, np.int64), *others])
        return bool(len(mine)) and not bool(np.isin(mine, there).all())

    def without_outer(self, a: ElementAccess, e: Expr, depth: int) -> tuple[Expr, Linear] | None:
        """Return an index as a part over threads and inner loops, and one over what is outside."""
        inside = {v for v, _ in (*self.vars, *a.loops[depth:]) if v is not None}
        form = linear(e)
        inner, rest = Linear({}, form.constant), Linear({})
        for atom, k in form.terms.items():
            names = free_vars(atom)
            if not _is_plain(atom):
                return None
            if names <= inside:
                inner += Linear({atom: k})
            elif names.isdisjoint(inside):
                rest += Linear({atom: k})
            else:
                return None
        return to_expr(inner), rest

    def points(
        self, a: ElementAccess, dims: list[tuple[Expr, int]], depth: int, every: bool = False
    ) -> tuple[list[Array], Array] | None:
        """Return the elements that threads touch in inner iterations, and the threads' numbers.

        Of threads that touch the same, the first and the last will do, unless ``every`` counts.
        """
        inside = [*self.vars, *a.loops[depth:]]
        known = {v for v, _ in inside if v is not None}
        guards = [g for g in a.guards if free_vars(g) <= known and _is_plain(g)]
        used = frozenset[Var]().union(*(free_vars(e) for e, _ in dims), *map(free_vars, guards))
        if any(n > MOST for v, n in a.loops[depth:] if v in used):
            return None
        axes = self.axes(a.loops[depth:], None if every else used, used)
        axes = {v: _allowed(v, values, guards) for v, values in axes.items()}
        boxes = [np.arange(n) for _, n in dims]
        if np.prod([len(x) for x in (*axes.values(), *boxes)], dtype=float) > MOST:
            return None
        grid = np.ix_(*axes.values(), *boxes)
        placed = dict(zip(axes, grid, strict=False))
        number, step = np.zeros((), np.int64), 1
        for v, n in self.vars:
            number = number if v is None else number + placed[v] * step
            step *= n
        where = [_value(e, placed) + x for (e, _), x in zip(dims, grid[len(axes) :], strict=True)]
        return _where_true([_value(g, placed) for g in guards], where, number)

    def axes(
        self,
        loops: Sequence[tuple[Var, int]],
        threads: frozenset[Var] | None,
        used: frozenset[Var],
    ) -> dict[Var, Array]:
        """Return the values to look at of each thread index and of the loops that are used.

        Of thread indices that are not among ``threads``, the first and the last.
        """
        found: dict[Var, Array] = {}
        for v, n in self.vars:
            if v is not None:
                every = threads is None or v in threads or n == 1
                found[v] = np.arange(n) if every else np.array([0, n - 1])
        return found | {v: np.arange(n) for v, n in loops if v in used}


def _allowed(v: Var, values: Array, guards: Sequence[Expr]) -> Array:
    """Return the values of a variable that conditions on it alone allow."""
    for g in guards:
        if free_vars(g) == {v}:
            values = values[np.broadcast_to(_value(g, {v: values}), values.shape)]
    return values


def _reached(a: ElementAccess, b: ElementAccess) -> tuple[Interval, ...]:
    """Return the box that two accesses stay in, such as a piece of a concatenation."""
    inside = {v: (0, n - 1) for v, n in (*a.loops, *b.loops)}
    found = []
    for x, y, n in zip(a.starts, b.starts, a.buffer.shape, strict=True):
        ends = bounds(x, inside), bounds(y, inside)
        low, high = max(min(e[0] for e in ends), 0), min(max(e[1] for e in ends), n - 1)
        found.append((low, max(high - low + 1, 1)))
    return tuple(found)


def _where_true(
    guards: list[Array], where: list[Array], number: Array
) -> tuple[list[Array], Array]:
    every = np.broadcast_arrays(number, *where, *guards)
    flat = [np.ravel(x) for x in every]
    if guards:
        mask = reduce(np.logical_and, flat[1 + len(where) :])
        flat = [x[mask] for x in flat]
    return flat[1 : 1 + len(where)], flat[0]


def _compared(one: tuple[list[Array], Array], two: tuple[list[Array], Array]) -> Conflict:
    """Return the conflict of threads that touch ``one`` with others that touch ``two``."""
    (a, s), (b, t) = one, two
    if not len(s) or not len(t):
        return Conflict.NONE
    p, q = _numbered([[*a, np.zeros_like(s)], [*b, np.zeros_like(t)]])
    size = int(max(p.max(), q.max())) + 1
    if size > 8 * MOST:
        names = np.unique(np.concatenate([p, q]), return_inverse=True)[1]
        p, q, size = names[: len(p)], names[len(p) :], len(names)
    if not _apart(p, s, q, t, size):
        same_warp = _apart(p, s // WARP, q, t // WARP, size)
        return Conflict.IN_WARP if same_warp else Conflict.IN_BLOCK
    return Conflict.NONE


def _numbered(lists: Sequence[Sequence[Array]]) -> list[Array]:
    """Return a number for each row of each list of columns, the same for equal rows."""
    result = [np.zeros(len(columns[0]), np.int64) for columns in lists]
    size = 1
    for same in zip(*lists, strict=True):
        every = np.concatenate(same)
        low, high = (int(every.min()), int(every.max())) if len(every) else (0, 0)
        result = [r + (x - low) * size for r, x in zip(result, same, strict=True)]
        size *= high - low + 1
    return result


def _apart(p: Array, s: Array, q: Array, t: Array, size: int) -> bool:
    """True if each element in both lists is touched by one and the same thread."""
    first = np.full(size, -1, np.int64)
    first[p] = s
    several = np.zeros(size, bool)
    several[p[first[p] != s]] = True
    there = first[q]
    return not bool(np.any((there >= 0) & ((there != t) | several[q])))


def _repeats(index: tuple[Expr, Expr], outer: Mapping[Var, int]) -> tuple[Var | None, int]:
    """Return an outer variable on which indices depend only modulo a period, and the period."""
    for var, extent in outer.items():
        period = 1
        for e in index:
            for atom in linear(e).terms:
                match atom:
                    case Op(name="floormod", args=(x, Const(value=int(m)))):
                        if var in free_vars(atom) and var in linear(x).terms:
                            period = int(np.lcm(period, m))
        if 1 < period <= 16:
            return var, min(period, extent)
        if extent <= 16 and any(var in free_vars(e) for e in index):
            return var, extent
    return None, 0


def _is_plain(e: Expr) -> bool:
    return all(isinstance(x, Var | Const | Op) for x in walk_expr(e))


def _value(e: Expr, by: Mapping[Var, Array]) -> Array:
    match e:
        case Var():
            return by[e]
        case Const(value=value):
            return np.asarray(value)
        case Op(name=name, args=args):
            result: Array = TABLE[name].numpy(*(_value(a, by) for a in args))
            return result
        case _:
            raise AssertionError(f"not a plain index: {e}")
