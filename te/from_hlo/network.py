"""Sort short rows by integer keys, many rows at once: a sorting network whose lanes are rows.

The keys of as many rows as a vector has lanes are transposed, so that each vector holds the keys at
one place of all these rows. A bitonic network then exchanges vectors, whatever the keys are: the
lesser of each pair of keys goes to the nearer place. Blocks of ``BLOCK`` places are sorted in
registers, and sorted again after every merge. Places behind the end count as the greatest key, so
that pairs which reach beyond it need no exchange.

If more than its key has to move with an element, its place is appended to the key as low bits. That
also keeps equal elements in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from ...ir.dtypes import DType, u32, u64
from ...ir.dtypes import index as index_type
from ...ir.loop.build import add, cast, compare, const, minimum, mul, op
from ...ir.loop.nodes import Buffer, Expr, For, If, Kind, Load, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import variables
from ..sharing import operands
from .emitter import Index
from .keys import KeyedSort
from .stages import Draft

LONGEST = 1024  # most elements of a row: the keys of all lanes are then 64 KiB
BLOCK = 16  # places that are sorted in registers
WIDTH = 64  # bytes of the keys of all lanes at one place
PLACE = 10  # bits of a place below ``LONGEST``
FEWEST = 4  # least places whose elements are transposed in registers
TURN = 16  # places that are fetched and written at a time
LITTLE = 64  # nodes up to which shared subexpressions may be evaluated twice


def network_type(dtype: DType, moves: bool) -> DType | None:
    """Return the type of the network's keys: ``dtype``, or one with room for a place below it."""
    if not moves:
        return dtype
    return {8: u32, 16: u32, 32: u64}.get(dtype.bits)


def network_sort(d: Draft, s: KeyedSort) -> None:
    """Sort rows of at most ``LONGEST`` elements; ``network_type`` has to know a type."""
    wide = network_type(s.dtype, s.moves)
    assert wide is not None
    n, dim, extents = s.length, s.dim, s.extents
    others = [i for i in range(len(extents)) if i != dim]
    across = max(others, key=lambda i: extents[i], default=None)
    count = 1 if across is None else extents[across]
    lanes = min(WIDTH // wide.bytes, _power(count))
    outer = [i for i in others if i != across]
    axes = d.emitter.spatial((*(extents[i] for i in outer), -(-count // lanes)))
    *point, strip = variables(axes)
    k = _Network(d, s.name, n, d.alloc(f"{s.name}_keys", (_padded(n), lanes), wide))
    whole = count // lanes  # strips whose lanes are all rows

    def at(row: Expr, p: Expr) -> Index:
        index = dict(zip(outer, point, strict=True)) | {dim: p}
        if across is not None:
            index[across] = row
        return tuple(index[i] for i in range(len(extents)))

    def row_of(lane: Expr) -> Expr:
        return add(mul(strip, lanes), lane)

    def fetched(lane: Expr, p: Expr) -> Stmt:
        row = minimum(row_of(lane), max(count - 1, 0)) if count % lanes else row_of(lane)
        found = cast(s.key(at(row, p)), wide)
        if s.moves:
            found = op("or", op("shift-left", found, const(PLACE, wide)), cast(p, wide))
        return _stored(k.keys, (p, lane), found)

    def written(lane: Expr, p: Expr) -> Stmt:
        found, row = Load(k.keys, (p, lane)), row_of(lane)
        if not s.moves:
            return s.put(at(row, p), found, at(row, p))
        was = cast(op("and", found, const((1 << PLACE) - 1, wide)), index_type)
        ranked = op("shift-right-logical", found, const(PLACE, wide))
        return s.put(at(row, p), cast(ranked, s.dtype), at(row, was))

    def guarded(lane: Expr, p: Expr) -> Stmt:
        return If(compare("lt", row_of(lane), const(count)), written(lane, p))

    out = k.turns(written, _Order.SERIAL if s.moves else _Order.LANES, s.wanted)
    if count % lanes:
        out = If(compare("lt", strip, const(whole)), out, k.turns(guarded, _Order.SERIAL, s.wanted))
    body = seq(k.turns(fetched, _Order.PLACES, n), k.padding(), k.sort(), out)
    d.body.append(blocks.nest(s.name, axes, body, notes=OPAQUE.alone(1)))


def _stored(buffer: Buffer, at: Index, value: Expr) -> Stmt:
    """Return a store; shared values get names only if evaluating them twice is expensive.

    Code generation can transpose only plain stores in registers.
    """
    few = sum(1 for _ in zip(_tree(value), range(LITTLE + 1), strict=False)) <= LITTLE
    return Store(buffer, at, value) if few else blocks.store(buffer, at, value)


def _tree(e: Expr) -> Iterator[Expr]:
    """Yield the nodes of an expression as a tree: shared ones as often as they are used."""
    yield e
    for x in operands(e):
        yield from _tree(x)


def _power(n: int) -> int:
    """Return the least power of two that is at least ``n``, and 1 for 0."""
    return 1 << max(n - 1, 0).bit_length()


def _padded(n: int) -> int:
    block = min(BLOCK, _power(n))
    return -(-n // block) * block


def _exchanges(size: int, merged: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places whose exchange sorts ``size`` places, or finishes their merge.

    A pair of sorted halves is merged by comparing one with the reverse of the other, and then
    places ever nearer to each other (Batcher's bitonic merge with all exchanges in one direction).
    """
    width = 2
    while width <= size and not merged:
        for base in range(0, size, width):
            yield from ((base + i, base + width - 1 - i) for i in range(width // 2))
        yield from _nearer(size, width // 4)
        width *= 2
    if merged:
        yield from _nearer(size, size // 2)


def _nearer(size: int, stride: int) -> Iterator[tuple[int, int]]:
    while stride:
        for base in range(0, size, 2 * stride):
            yield from ((base + i, base + i + stride) for i in range(stride))
        stride //= 2


class _Order(Enum):
    """The vector loop in which squares of keys move: over places, over rows (lanes), or none."""

    PLACES = "places"
    LANES = "lanes"
    SERIAL = "serial"


@dataclass(frozen=True, slots=True)
class _Network:
    """A network over the first dimension of ``keys``, of which ``n`` places are in use."""

    d: Draft
    name: str
    n: int
    keys: Buffer

    @property
    def places(self) -> int:
        """The number of places, a multiple of the block's."""
        return self.keys.shape[0]

    @property
    def block(self) -> int:
        """The places that are sorted in registers."""
        return min(BLOCK, self.places)

    def lanes(self, body: Callable[[Var], Stmt]) -> Stmt:
        """Return a statement for every lane."""
        lane = self.d.loop(self.keys.shape[1])
        return For(lane, const(self.keys.shape[1]), body(lane), Kind.VECTOR)

    def turns(self, step: Callable[[Expr, Expr], Stmt], order: _Order, count: int) -> Stmt:
        """Return a step for each lane and the first ``count`` places, ``TURN`` places at a time."""
        whole, rest = divmod(count, TURN)
        parts = ((whole, TURN, 0), (1, rest, whole * TURN))
        return seq(*(self._turn(step, order, *part) for part in parts if part[0] and part[1]))

    def _turn(
        self, step: Callable[[Expr, Expr], Stmt], order: _Order, turns: int, length: int, first: int
    ) -> Stmt:
        count = self.keys.shape[1]
        turn, lane, near = self.d.loop(turns), self.d.loop(count), self.d.loop(length)
        done = step(lane, add(add(mul(turn, length), near), first))
        if (length < TURN and order is _Order.PLACES) or length < FEWEST:
            order = _Order.SERIAL
        match order:
            case _Order.PLACES:
                inner = For(near, const(length), done, Kind.VECTOR)
                done = For(lane, const(count), inner, Kind.UNROLLED)
            case _Order.LANES:
                inner = For(lane, const(count), done, Kind.VECTOR)
                done = For(near, const(length), inner, Kind.UNROLLED)
            case _Order.SERIAL:
                done = For(lane, const(count), For(near, const(length), done))
        return For(turn, const(turns), done)

    def padding(self) -> Stmt:
        """Return the statement that fills unused places with the greatest key."""
        unused = self.places - self.n
        if not unused:
            return seq()
        p = self.d.loop(unused)
        last = const((1 << self.keys.dtype.bits) - 1, self.keys.dtype)
        put = self.lanes(lambda lane: Store(self.keys, (add(p, self.n), lane), last))
        return For(p, const(unused), put)

    def sort(self) -> Stmt:
        """Return the statements that sort all places: blocks first, then ever longer runs."""
        levels = max(-(-self.places // self.block) - 1, 0).bit_length()
        tile = self.d.register(
            f"{self.name}_tile", (self.block, self.keys.shape[1]), self.keys.dtype
        )
        if self.places < 2:
            return seq()
        level = self.d.loop(levels)
        merges = [
            If(compare("eq", level, const(n)), self._merge(2 * self.block << n))
            for n in range(levels)
        ]
        finished = self._in_registers(tile, _exchanges(self.block, merged=True))
        return seq(
            self._in_registers(tile, _exchanges(self.block)),
            For(level, const(levels), seq(*merges, finished)),
        )

    def _merge(self, width: int) -> Stmt:
        """Merge the halves of runs of ``width`` places, except for exchanges within a block."""
        steps = [self._pairs(width, width // 2, lambda i: add(width - 1, op("negate", i)), True)]
        stride = width // 4
        while stride >= self.block:
            steps.append(self._pairs(2 * stride, stride, partial(add, stride), False))
            stride //= 2
        return seq(*steps)

    def _pairs(self, width: int, count: int, other: Callable[[Expr], Expr], flipped: bool) -> Stmt:
        """Exchange places ``i`` and ``other(i)`` of every run, where the latter exists."""
        whole, rest = divmod(self.places, width)
        run, i = self.d.loop(whole), self.d.loop(count)
        base = mul(run, width)
        each = self._exchange(add(base, i), add(base, other(i)))
        done = For(run, const(whole), For(i, const(count), each))
        left = max(0, rest - count)  # pairs of the last, shorter run
        if not left:
            return done
        first, j = whole * width, self.d.loop(left)
        near = add(j, count - left) if flipped else j
        tail = self._exchange(add(near, first), add(other(near), first))
        return seq(done, For(j, const(left), tail))

    def _exchange(self, near: Expr, far: Expr) -> Stmt:
        return self.lanes(lambda lane: self._ordered(self.keys, (near, lane), (far, lane)))

    def _ordered(self, buffer: Buffer, near: Index, far: Index) -> Stmt:
        a, b = Var("a", buffer.dtype), Var("b", buffer.dtype)
        lesser = Store(buffer, near, op("minimum", a, b))
        greater = Store(buffer, far, op("maximum", a, b))
        return lets([(a, Load(buffer, near)), (b, Load(buffer, far))], seq(lesser, greater))

    def _in_registers(self, tile: Buffer, exchanges: Iterator[tuple[int, int]]) -> Stmt:
        """Return a loop over blocks that does the exchanges of each in registers."""
        block = self.d.loop(self.places // self.block)

        def kept(n: int, lane: Expr) -> Index:
            return add(mul(block, self.block), n), lane

        def held(n: int, lane: Expr) -> Index:
            return const(n), lane

        def fetch(n: int, lane: Var) -> Stmt:
            return Store(tile, held(n, lane), Load(self.keys, kept(n, lane)))

        def exchange(near: int, far: int, lane: Var) -> Stmt:
            return self._ordered(tile, held(near, lane), held(far, lane))

        def keep(n: int, lane: Var) -> Stmt:
            return Store(self.keys, kept(n, lane), Load(tile, held(n, lane)))

        steps = [
            *(self.lanes(partial(fetch, n)) for n in range(self.block)),
            *(self.lanes(partial(exchange, near, far)) for near, far in exchanges),
            *(self.lanes(partial(keep, n)) for n in range(self.block)),
        ]
        return For(block, const(self.places // self.block), seq(*steps))
