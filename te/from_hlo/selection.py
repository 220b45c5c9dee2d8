"""Find the first few elements of each row by bisection on the bits of their keys.

A key is an unsigned integer, larger for elements that come earlier. The ``count``-th largest key of
a row is found bit by bit, from the highest: a bit is set if at least that many keys reach the
number so far. The first elements are those with larger keys, and as many of those with an equal key
as are still wanted, lowest index first.

A long row is cut into chunks first. By (largest key, index of the chunk) the first ``count`` chunks
hold the first ``count`` elements: any other is behind the largest of each of these chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...ir.dtypes import DType, s32
from ...ir.dtypes import index as index_type
from ...ir.loop.build import (
    add,
    cast,
    compare,
    const,
    floordiv,
    floormod,
    lt,
    minimum,
    mul,
    op,
    select,
    sub,
)
from ...ir.loop.nodes import Buffer, Expr, For, If, Kind, Load, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import variables
from .stages import Draft

LANES = 64  # keys that are compared and counted at once
RUN = 256  # elements that are sorted by comparing each with each
SHORTEST = 8  # elements of a chunk below which its largest key saves no work

Key = Callable[[tuple[Expr, ...]], Expr]


def chunk(n: int, count: int) -> int:
    """Return the elements of a chunk; 1 if rows are not cut.

    There are about as many chunks as ``count`` chunks have elements.
    """
    best = 1 << round(math.log2(n / count) / 2)
    return best if best >= SHORTEST else 1


def first_places(
    d: Draft, name: str, extents: Sequence[int], count: int, dtype: DType, key: Key
) -> Buffer:
    """Return the places of the ``count`` largest keys of each row: s64[..., count].

    Every ``RUN`` of them are sorted; places of equal keys are in ascending order.
    """
    n = extents[-1]
    size = chunk(n, count)
    axes = d.emitter.spatial(extents[:-1])
    row = variables(axes)
    out = d.alloc(f"{name}_chosen", (*extents[:-1], count), index_type)
    s = _Scratch(d, name, n if size == 1 else max(-(-n // size), count * size), count, dtype)
    if size == 1:
        body = seq(s.fill(n, lambda at: key((*row, at))), s.pick(n, "picked"))
    else:
        tops = _tops(d, name, extents, size, dtype, key)
        body = seq(
            s.fill(-(-n // size), lambda at: Load(tops, (*row, at))),
            s.pick(-(-n // size), "chunks"),
            _fetched(s, n, count, size, lambda at: key((*row, at))),
            s.pick(count * size, "picked"),
        )

    def place(at: Expr) -> Expr:
        if size == 1:
            return at
        return add(mul(s.picked("chunks", floordiv(at, size)), size), floormod(at, size))

    written = s.ranked(lambda at, found: blocks.store(out, (*row, at), place(found)))
    d.body.append(blocks.nest(name, axes, seq(body, written), notes=OPAQUE.alone(1)))
    return out


def _tops(d: Draft, name: str, extents: Sequence[int], size: int, dtype: DType, key: Key) -> Buffer:
    """Append blocks that compute the largest key of each chunk; the last one may be shorter."""
    rows, n = extents[:-1], extents[-1]
    out = d.alloc(f"{name}_tops", (*rows, -(-n // size)), dtype)
    for full, length in ((n // size, size), (1, n % size)):
        if length == 0:
            continue
        axes = d.emitter.spatial((*rows, full))
        (term,) = d.emitter.reducing((length,))
        first = 0 if length == size else n // size
        *row, c = variables(axes)
        at = (*row, add(c, first))
        value = key((*row, add(mul(add(c, first), size), term.var)))
        new = op("maximum", Load(out, at), value)
        init = Store(out, at, const(0, dtype))
        made = d.fresh(f"{name}_tops")
        d.body.append(blocks.nest(made, (*axes, term), blocks.store(out, at, new), init))
    return out


def _fetched(s: _Scratch, n: int, count: int, size: int, key: Callable[[Expr], Expr]) -> Stmt:
    """Copy the keys of the picked chunks, one after the other; 0 behind the end of the row."""
    c, j, first = s.d.loop(count), s.d.loop(size), Var("first")
    at = add(first, j)
    value = key(at if n % size == 0 else minimum(at, n - 1))
    if n % size:
        value = select(lt(at, const(n)), value, const(0, s.dtype))
    put = blocks.store(s.keys, (add(mul(c, size), j),), value)
    found = [(first, mul(s.picked("chunks", c), size))]
    return seq(For(c, const(count), lets(found, For(j, const(size), put))), s.cleared(count * size))


@dataclass(slots=True)
class _Scratch:
    """The keys of a row, and the state of a bisection over them.

    Keys are padded with zeros, which are the least keys, to a multiple of ``LANES``. ``bound`` is
    the bisected key, ``tally`` the last count of keys, ``state`` the number of places found and the
    number of keys equal to the bound that are still wanted.
    """

    d: Draft
    name: str
    most: int
    count: int
    dtype: DType
    keys: Buffer = field(init=False)
    bound: Buffer = field(init=False)
    tally: Buffer = field(init=False)
    state: Buffer = field(init=False)
    places: dict[str, Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Allocate what every bisection shares."""
        new = self.d.alloc
        self.keys = new(f"{self.name}_keys", (_padded(self.most),), self.dtype)
        self.bound = self.d.register(f"{self.name}_bound", (1,), self.dtype)
        self.tally = new(f"{self.name}_tally", (1,), s32)
        self.state = self.d.register(f"{self.name}_state", (2,), index_type)

    def picked(self, which: str, at: Expr) -> Expr:
        """Return one of the places that ``pick`` wrote under the name ``which``."""
        return Load(self.places[which], (at,))

    def fill(self, n: int, key: Callable[[Expr], Expr]) -> Stmt:
        """Write ``n`` keys, and zeros behind them."""
        at = self.d.loop(n)
        return seq(For(at, const(n), blocks.store(self.keys, (at,), key(at))), self.cleared(n))

    def cleared(self, n: int) -> Stmt:
        """Write zeros behind ``n`` keys."""
        return self._zeros(self.keys, n, _padded(n))

    def _zeros(self, keys: Buffer, start: int, stop: int) -> Stmt:
        at = self.d.loop(stop - start)
        return For(at, const(stop - start), Store(keys, (add(at, start),), const(0, self.dtype)))

    def pick(self, n: int, which: str) -> Stmt:
        """Write the places of the ``count`` largest of ``n`` keys, in ascending order."""
        out = self.d.alloc(f"{self.name}_{which}", (self.count,), index_type)
        self.places[which] = out
        zero, one = const(0), const(1)
        bound, key = Var("bound", self.dtype), Var("key", self.dtype)
        at, filled, spare = self.d.loop(n), Load(self.state, (zero,)), Load(self.state, (one,))
        equal = compare("eq", key, bound)
        taken = seq(
            Store(out, (filled,), at),
            Store(self.state, (zero,), add(filled, one)),
            Store(self.state, (one,), sub(spare, cast(equal, index_type))),
        )
        wanted = op("or", compare("gt", key, bound), compare("gt", spare, zero))
        step = lets(
            [(key, Load(self.keys, (at,)))],
            If(compare("ge", key, bound), If(wanted, taken)),
        )
        above = cast(Load(self.tally, (zero,)), index_type)
        kept = seq(
            self._counted(self.keys, zero, n, "gt", bound),
            Store(self.state, (zero,), zero),
            Store(self.state, (one,), sub(const(self.count), above)),
            For(at, const(n), step),
        )
        return seq(self._bisected(n), lets([(bound, Load(self.bound, (zero,)))], kept))

    def ranked(self, put: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """Sort the places found by ``pick`` in runs, and pass each to ``put`` with its rank.

        The rank of an element counts larger keys in its run, and equal ones that came earlier.
        """
        width = min(RUN, _padded(self.count))
        kept = self.d.alloc(f"{self.name}_kept", (-(-self.count // width) * width,), self.dtype)
        behind = self.d.alloc(f"{self.name}_behind", (width,), index_type)
        run, at, fetch, clear = map(self.d.loop, (kept.shape[0] // width, width, self.count, width))
        first, place, rank = mul(run, width), Var("place"), Var("rank")
        key = Load(self.keys, (self.picked("picked", fetch),))
        larger = self._counted(kept, first, width, "gt", Load(kept, (place,)))
        equals = Load(behind, (rank,))
        moved = seq(
            put(add(first, add(rank, equals)), self.picked("picked", place)),
            Store(behind, (rank,), add(equals, 1)),
        )
        found = [(rank, cast(Load(self.tally, (const(0),)), index_type))]
        step = lets([(place, add(first, at))], seq(larger, lets(found, moved)))
        runs = seq(
            For(clear, const(width), Store(behind, (clear,), const(0))),
            For(at, minimum(width, sub(const(self.count), first)), step),
        )
        return seq(
            For(fetch, const(self.count), blocks.store(kept, (fetch,), key)),
            self._zeros(kept, self.count, kept.shape[0]),
            For(run, const(kept.shape[0] // width), runs),
        )

    def _bisected(self, n: int) -> Stmt:
        """Set the bound to the ``count``-th largest key."""
        zero, bits, trial = const(0), self.dtype.bits, Var("trial", self.dtype)
        bit = self.d.loop(bits)
        place = cast(sub(const(bits - 1), bit), self.dtype)
        tried = op("or", Load(self.bound, (zero,)), op("shift-left", const(1, self.dtype), place))
        reached = compare("ge", Load(self.tally, (zero,)), const(self.count, s32))
        step = seq(
            self._counted(self.keys, zero, n, "ge", trial),
            If(reached, Store(self.bound, (zero,), trial)),
        )
        return seq(
            Store(self.bound, (zero,), const(0, self.dtype)),
            For(bit, const(bits), lets([(trial, tried)], step)),
        )

    def _counted(self, keys: Buffer, first: Expr, n: int, direction: str, bound: Expr) -> Stmt:
        """Set the tally to the number of keys that are ``gt`` or ``ge`` than a bound."""
        step, lane, zero = self.d.loop(_padded(n) // LANES), self.d.loop(LANES), (const(0),)
        at = add(add(first, mul(step, LANES)), lane)
        held = compare(direction, Load(keys, (at,)), bound)
        more = Store(self.tally, zero, op("add", Load(self.tally, zero), cast(held, s32)))
        lanes = For(lane, const(LANES), more, Kind.VECTOR)
        return seq(
            Store(self.tally, zero, const(0, s32)), For(step, const(_padded(n) // LANES), lanes)
        )


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES
