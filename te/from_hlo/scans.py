"""Running reductions: cumulative sums, products, maxima, along one dimension.

Along rows, a CPU thread carries several chains in registers and advances them in turn, so that the
latency of one addition is hidden behind the others. The chains are neighboring rows. If there are
few rows, they are segments of a row, each of which starts from the reduction of all segments before
it. A thread of a GPU has a single chain, since other threads hide its latency; few rows are cut
into thousands of segments, and the reductions of all segments before each are computed in parallel.

Across rows (along a dimension other than the last) neighbors in memory are independent, and code
generation turns them into lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...ir.dtypes import index as index_type
from ...ir.loop.build import add, compare, const, mul, op, sub
from ...ir.loop.nodes import Buffer, Expr, For, If, Kind, Load, Op, Stmt, Store
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import seq
from .. import blocks
from ..blocks import variables
from ..sharing import postorder
from .stages import Draft

CHAINS = 8  # chains of one thread of a CPU
TURN = 8  # elements by which a chain advances before it is the next one's turn
SHORTEST = 2048  # least elements of a segment
SEGMENTS = 64  # segments of all rows together, at most; each thread takes ``CHAINS`` at a time

LANES = 4096  # segments of all rows together on a GPU, where each has a thread of its own
LONGEST_ROW = 2048  # elements below which one thread takes less time than further launches
SHORTEST_LANE = 64  # least elements of a segment on a GPU

SMALL = 3  # loads and operations per element up to which a turn is unrolled

Place = tuple[Expr, ...]
_Where = Callable[[Place, int, Expr], Place]
"""Returns the index of element ``t`` of chain ``c`` in an instance of the block."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running reduction of one array by one operation.

    ``term`` and ``first`` are elements and the initial value in the accumulator's type ``dtype``;
    ``out`` is written along ``dim`` of ``extents``, from the end if ``backward``.
    """

    name: str
    role: str
    extents: tuple[int, ...]
    dim: int
    backward: bool
    dtype: DType
    out: Buffer
    first: Expr
    term: Callable[[Place], Expr]
    combine: Callable[[Expr, Expr], Expr]
    neutral: Expr

    @property
    def length(self) -> int:
        """The number of elements along the dimension."""
        return self.extents[self.dim]


def scan_rows(d: Draft, s: Running) -> None:
    """Write a running reduction along rows."""
    free = [n for n, e in enumerate(s.extents) if n != s.dim and e != 1]
    rows = math.prod(s.extents[n] for n in free)
    count = _segments(rows, s.length) if d.vectors else _lanes(rows, s.length)
    if count > 1:
        _segmented(d, s, free, count)
        return
    if not free:
        _append_rows(d, s, s.name, (), 1, lambda at, c, t: _place(s, free, (), t))
        return
    wide = [n for n in free if s.extents[n] >= CHAINS]
    axis = wide[-1] if wide else max(free, key=lambda n: s.extents[n])
    outer = [n for n in free if n != axis]
    most = CHAINS if d.vectors else 1
    whole, rest = divmod(s.extents[axis], most)
    for groups, chains in ((whole, most), (1, rest)):
        if groups == 0 or chains == 0:
            continue
        begin = 0 if chains == most else whole * most

        def place(at: Place, c: int, t: Expr, begin: int = begin) -> Place:
            row = add(mul(at[-1], most), begin + c)
            return _place(s, [*outer, axis], (*at[:-1], row), t)

        extents = (*(s.extents[n] for n in outer), groups)
        _append_rows(d, s, d.fresh(s.name) if begin else s.name, extents, chains, place)


def _segments(rows: int, length: int) -> int:
    """Return the segments per row on a CPU; 1 if there are enough rows, or they are too short."""
    if rows >= 2 * CHAINS:
        return 1
    most = min(SEGMENTS // max(1, rows), length // SHORTEST) // CHAINS * CHAINS
    return max(1, most)


def _lanes(rows: int, length: int) -> int:
    """Return the segments per row on a GPU; 1 if the rows are many or short."""
    if length < LONGEST_ROW:
        return 1
    size = max(SHORTEST_LANE, -(-length // max(1, LANES // max(1, rows))))
    return -(-length // size)


def _place(s: Running, free: Sequence[int], row: Sequence[Expr], t: Expr) -> Place:
    """Return the index of element ``t`` of the row at index ``row`` of the ``free`` dimensions."""
    at: list[Expr] = [const(0)] * len(s.extents)
    for n, e in zip(free, row, strict=True):
        at[n] = e
    at[s.dim] = sub(s.length - 1, t) if s.backward else t
    return tuple(at)


def _segmented(d: Draft, s: Running, free: Sequence[int], count: int) -> None:
    """Reduce every segment but the last, then scan all segments from the reductions before them."""
    size = -(-s.length // count)
    rows = tuple(s.extents[n] for n in free)
    sums = d.alloc(f"{s.name}_sums", (*rows, count - 1), s.dtype)
    axes = (*d.emitter.spatial((*rows, count - 1)), *d.emitter.reducing((size,)))
    *row, segment, k = variables(axes)
    term = s.term(_place(s, free, row, add(mul(segment, size), k)))
    at = (*row, segment)
    total = blocks.store(sums, at, s.combine(Load(sums, at), term))
    name = d.fresh(f"{s.name}_{s.role}")
    d.body.append(blocks.nest(name, axes, total, Store(sums, at, s.neutral)))

    chains = CHAINS if d.vectors else 1

    def place(at: Place, c: int, t: Expr) -> Place:
        first = mul(add(mul(at[-1], chains), c), size)
        return _place(s, free, at[:-1], add(first, t))

    if d.vectors:
        _append_segments(d, s, rows, sums, size, place)
    else:
        _append_lanes(d, s, _before(d, s, sums), size, place)


def _before(d: Draft, s: Running, sums: Buffer) -> Buffer:
    """Append a block that reduces the sums of all segments before each one; return its results."""
    *rows, count = sums.shape
    found = d.alloc(f"{s.name}_before", (*rows, count + 1), s.dtype)
    axes = (*d.emitter.spatial(found.shape), *d.emitter.reducing((count,)))
    *row, segment, k = variables(axes)
    term = op("select", compare("lt", k, segment), Load(sums, (*row, k)), s.neutral)
    at = (*row, segment)
    total = blocks.store(found, at, s.combine(Load(found, at), term))
    name = d.fresh(f"{s.name}_before_{s.role}")
    d.body.append(blocks.nest(name, axes, total, Store(found, at, s.neutral)))
    return found


def _append_lanes(d: Draft, s: Running, before: Buffer, size: int, place: _Where) -> None:
    """Append a block whose instances scan one segment of a row each."""
    axes = d.emitter.spatial(before.shape)
    at = variables(axes)
    k = _chains(d, s, s.name, 1, place, at)
    last = before.shape[-1] - 1
    rest = s.length - last * size  # elements of the last segment

    def guarded(c: int, t: Expr) -> Stmt:
        return If(compare("lt", at[-1], const(last)), k.advance(c, t))

    start = k.start(0, s.combine(s.first, Load(before, at)))
    body = seq(start, k.run(0, rest, k.advance), k.run(rest, size, guarded))
    d.body.append(blocks.nest(s.name, axes, body, notes=OPAQUE.alone(1)))


@dataclass(frozen=True, slots=True)
class _Chains:
    """The chains of an instance of a block; ``place(c, t)`` is the index of element ``t`` of ``c``.

    ``last`` holds the value that each chain has reached.
    """

    d: Draft
    s: Running
    last: Buffer
    place: Callable[[int, Expr], Place]

    @property
    def count(self) -> int:
        """The number of chains."""
        return self.last.shape[0]

    def start(self, c: int, value: Expr) -> Stmt:
        """Return the statement that starts a chain from a value."""
        return Store(self.last, (const(c),), value)

    def reached(self, c: int) -> Expr:
        """Return the value of a chain so far."""
        return Load(self.last, (const(c),))

    def advance(self, c: int, t: Expr) -> Stmt:
        """Return the statement that adds element ``t`` to a chain and writes the result."""
        here = self.place(c, t)
        new = self.s.combine(self.reached(c), self.s.term(here))
        taken = blocks.store(self.last, (const(c),), new)
        return seq(taken, Store(self.s.out, here, self.reached(c)))

    def run(self, begin: int, end: int, step: Callable[[int, Expr], Stmt]) -> Stmt:
        """Return steps ``begin`` to ``end - 1`` of all chains, ``TURN`` steps of each in turn."""
        if self.count == 1:
            return self._turns(begin, 1, end - begin, step, Kind.SERIAL)
        whole, rest = divmod(end - begin, TURN)
        kind = Kind.UNROLLED if self._is_small() else Kind.SERIAL
        behind = self._turns(begin + whole * TURN, 1, rest, step, kind)
        return seq(self._turns(begin, whole, TURN, step, kind), behind)

    def _turns(
        self, begin: int, turns: int, length: int, step: Callable[[int, Expr], Stmt], kind: Kind
    ) -> Stmt:
        turn = self.d.emitter.reducing((turns,), "t")[0].var
        first = add(mul(turn, length), begin)
        chains = []
        for c in range(self.count):
            u = self.d.emitter.reducing((length,), "u")[0].var
            chains.append(For(u, const(length), step(c, add(first, u)), kind))
        return For(turn, const(turns), seq(*chains))

    def _is_small(self) -> bool:
        """True if an element is so little code that a turn may be unrolled."""
        element = self.s.term(self.place(0, const(0)))
        parts = [x for x in postorder([element]) if isinstance(x, Load | Op)]
        return sum(x.dtype != index_type for x in parts) <= SMALL


def _chains(d: Draft, s: Running, name: str, chains: int, place: _Where, at: Place) -> _Chains:
    last = d.register(f"{name}_last", (chains,), s.dtype)
    return _Chains(d, s, last, lambda c, t: place(at, c, t))


def _append_rows(
    d: Draft, s: Running, name: str, extents: Sequence[int], chains: int, place: _Where
) -> None:
    """Append a block whose instances scan ``chains`` rows each."""
    axes = d.emitter.spatial(extents)
    k = _chains(d, s, name, chains, place, variables(axes))
    starts = [k.start(c, s.first) for c in range(chains)]
    body = seq(*starts, k.run(0, s.length, k.advance))
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))


def _append_segments(
    d: Draft, s: Running, rows: Sequence[int], sums: Buffer, size: int, place: _Where
) -> None:
    """Append a block whose instances scan ``CHAINS`` segments of a row each."""
    count = sums.shape[-1] + 1
    axes = d.emitter.spatial((*rows, count // CHAINS))
    at = variables(axes)
    k = _chains(d, s, s.name, CHAINS, place, at)
    rest = s.length - (count - 1) * size  # elements of the last segment

    def guarded(c: int, t: Expr) -> Stmt:
        if c < CHAINS - 1:
            return k.advance(c, t)
        return If(compare("lt", at[-1], const(count // CHAINS - 1)), k.advance(c, t))

    first, before = mul(at[-1], CHAINS), d.emitter.reducing((count - 1,), "b")[0].var

    def sum_of(segment: Expr) -> Expr:
        return Load(sums, (*at[:-1], segment))

    starts = [
        k.start(c, s.combine(k.reached(c - 1), sum_of(add(first, c - 1)))) for c in range(1, CHAINS)
    ]
    earlier = For(before, first, k.start(0, s.combine(k.reached(0), sum_of(before))))
    body = seq(
        k.start(0, s.first),
        earlier,
        *starts,
        k.run(0, rest, k.advance),
        k.run(rest, size, guarded),
    )
    d.body.append(blocks.nest(s.name, axes, body, notes=OPAQUE.alone(1)))
