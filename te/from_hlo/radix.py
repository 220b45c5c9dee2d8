"""Sort by integer keys, row by row: a stable radix sort, the lowest byte of the keys first.

Each pass counts how often a byte has each value, turns the counts into the places where the values
begin, and moves every element to the next place of its value.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtypes import index as index_type
from ...ir.loop.build import add, cast, const, floormod, mul, op, sub
from ...ir.loop.nodes import Buffer, Expr, For, Let, Load, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import variables
from .emitter import Index
from .keys import KeyedSort, place_type
from .stages import Draft

BITS = 8  # bits of the keys that a pass sorts by
VALUES = 1 << BITS
SHORTEST = 64  # elements of a row, below which the counters cost more than merging does


def radix_sort(d: Draft, sort: KeyedSort) -> None:
    """Sort rows, one at a time."""
    n, dim, dtype = sort.length, sort.dim, sort.dtype
    axes = d.emitter.spatial([e for i, e in enumerate(sort.extents) if i != dim])
    row = variables(axes)

    def whole(p: Expr) -> Index:
        return (*row[:dim], p, *row[dim:])

    (fetch, turn, write) = d.emitter.reducing((n, dtype.bits // BITS, sort.wanted), "s")
    keys = d.alloc(f"{sort.name}_keys", (2, n), dtype)
    places = d.alloc(f"{sort.name}_places", (2, n), place_type(n)) if sort.moves else None
    s = _Pass(d, n, keys, places, d.alloc(f"{sort.name}_next", (VALUES,), index_type))
    first = (const(0), fetch.var)
    fetched = [blocks.store(keys, first, sort.key(whole(fetch.var)))]
    if places is not None:
        fetched.append(Store(places, first, cast(fetch.var, places.dtype)))
    last = (const(dtype.bits // BITS % 2), write.var)
    was = cast(Load(places, last), index_type) if places is not None else write.var
    written = sort.put(whole(write.var), Load(keys, last), whole(was))
    body = seq(
        For(fetch.var, const(n), seq(*fetched)),
        For(turn.var, const(dtype.bits // BITS), s.run(turn.var)),
        For(write.var, const(sort.wanted), written),
    )
    d.body.append(blocks.nest(sort.name, axes, body, notes=OPAQUE.alone(1)))


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass over ``n`` keys, from one half of the buffers to the other."""

    d: Draft
    n: int
    keys: Buffer
    places: Buffer | None
    next: Buffer

    def run(self, turn: Expr) -> Stmt:
        """Sort by byte ``turn``."""
        loops = self.d.emitter.reducing((VALUES, self.n, VALUES, self.n), "s")
        clear, count, sum_, move = (a.var for a in loops)
        source, sums = floormod(turn, 2), self.d.register(f"{self.next.name}_sum", (1,), index_type)
        begin, seen, value, to = (Var(v) for v in ("begin", "seen", "value", "to"))
        sum_at, there = Load(sums, (const(0),)), Load(self.next, (value,))
        counted = Store(self.next, (seen,), add(Load(self.next, (seen,)), 1))
        summed = seq(
            Store(sums, (const(0),), add(begin, Load(self.next, (sum_,)))),
            Store(self.next, (sum_,), begin),
        )
        moves = [
            Store(b, (sub(1, source), to), Load(b, (source, move)))
            for b in (self.keys, self.places)
            if b is not None
        ]
        moved = lets(
            [(value, self._byte(turn, source, move)), (to, there)],
            seq(*moves, Store(self.next, (value,), add(to, 1))),
        )
        return seq(
            For(clear, const(VALUES), Store(self.next, (clear,), const(0))),
            For(count, const(self.n), Let(seen, self._byte(turn, source, count), counted)),
            Store(sums, (const(0),), const(0)),
            For(sum_, const(VALUES), Let(begin, sum_at, summed)),
            For(move, const(self.n), moved),
        )

    def _byte(self, turn: Expr, half: Expr, at: Expr) -> Expr:
        key = Load(self.keys, (half, at))
        by = cast(mul(turn, BITS), key.dtype)
        low = op("and", op("shift-right-logical", key, by), const(VALUES - 1, key.dtype))
        return cast(low, index_type)
