"""Attention whose threads hold scores and results as products leave them, in registers.

A block of threads has a tile of queries of one head; it walks over the keys in parts, whose tiles
are copied to shared memory ahead. The threads of a warp, or of a group of warps, hold scores as the
first product leaves them, which is as the second one takes its left factor. So maxima, exponentials
and sums are computed where the scores are, a row by four threads (``fragments``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from .....ir.loop.intrinsics import HELD_COLUMNS, HELD_ROWS
from .....ir.loop.notes import ASYNC, BULK_COPIES, PIPELINE
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.attention import (
    Attention,
    SoftmaxParts,
    in_order,
    is_full,
    merged_parts,
    pieces,
    take_parts,
)
from ....space.lookup import below
from ....space.space import Choices
from ..fallback import schedule_fallback
from ..launches.machine import vector_width
from ..launches.threads import BLOCKS, X, Y, Z
from ..products.tiles import BlockDim, can_copy_ahead, divide_among_threads, swizzle_chunks
from .simt import flat, skip_hidden

MULTIPLE = 16  # of the columns of a product that are computed
WARP_ROWS = 16  # of a tile of sums that a warp holds


class HeldAttention(ABC):
    """A schedule in progress: its products, and the loops over units and over parts.

    A unit, a warp or a group of ``each`` warps, makes products of 16 queries a warp; a block has
    ``units``. ``scope`` is where a unit holds its tiles, ``depth`` the terms of an instruction;
    with ``stores_pairs`` a thread stores two neighbors of narrow exponentials at once. ``bulk``
    copies are started by one thread, where they are boxes of matrices.
    """

    scope: ClassVar[str]
    stores_pairs: ClassVar[bool]
    depth: int

    def __init__(
        self, k: Attention, sch: Schedule, c: Choices, target: Target, units: int, each: int
    ) -> None:
        self.k, self.sch, self.target = k, sch, target
        self.units, self.each, self.rows_each = units, each, each * WARP_ROWS
        self.keys, self.stages = (int(c[n]) for n in ("keys", "stages"))
        self.bulk = bool(c.get("bulk", 0))
        self.threads = BlockDim(units, each * HELD_ROWS, HELD_COLUMNS)

    @abstractmethod
    def multiply_scores(
        self,
        queries: BlockRef,
        keys: BlockRef,
        layout: str,
        places: tuple[LoopRef, LoopRef],
    ) -> None:
        """Multiply the queries of a unit with the keys of a part."""

    @abstractmethod
    def multiply_values(self, parts: SoftmaxParts, values: BlockRef, inside: LoopRef) -> None:
        """Multiply the exponentials of a part with its values."""

    def apply(self) -> None:
        """Schedule the attention."""
        k, sch = self.k, self.sch
        assert k.exponential is not None
        for info in k.others:
            schedule_fallback(sch, info, self.target)
        layout = "nk" if k.by_key else "kn"
        rows = self.units * self.rows_each
        queries, keys, scores = sch.to_matmul(
            k.scores.name, (rows, self.keys, self.depth), ("mk", layout)
        )
        sch.compute_inline(scores)
        weights, values, result = sch.to_matmul(
            k.values.name, (rows, MULTIPLE, self.keys), ("mk", "kn")
        )
        host = result.name
        if k.consumer is not None:
            sch.compute_inline(result)
            host = k.consumer.name
        sch.narrow(weights)
        parts = take_parts(sch, k.exponential, self.keys)
        block = pieces(k, sch, host, rows)
        unit, _ = sch.split(below(sch, host, block)[0], [self.units, None])
        for name in reversed(in_order(k, parts)):
            if name == k.values.name:
                sch.compute_at(name, unit, True, (1, self.rows_each, MULTIPLE, 1))
            elif name != host:
                sch.compute_at(name, unit, True)
        inside = merged_parts(k, sch, parts, self.keys, unit)
        sch.compute_at(k.scores.name, inside, False, (1, self.rows_each, self.keys, self.depth))
        sch.bind(block, BLOCKS)
        sch.bind(unit, Z)
        self.hold(parts, host, weights, (unit, inside))
        self.place(parts, weights)
        self.multiply_scores(queries, keys, layout, (unit, inside))
        self.multiply_values(parts, values, inside)
        for name in parts.partial:
            sch.decompose_reduction(name, below(sch, name, unit)[0])
        if k.shown is not None and k.skips and k.length > self.keys:
            skip_hidden(sch, inside)
        sch.online(inside)
        sch.powers_of_two(k.exponential)
        if self.stages > 1:
            sch.annotate(inside, PIPELINE.key, self.stages)
            if self.bulk:
                sch.annotate(inside, BULK_COPIES.key, 1)

    def hold(
        self,
        parts: SoftmaxParts,
        host: str,
        weights: BlockRef,
        places: tuple[LoopRef, LoopRef],
    ) -> None:
        """Give each thread of a unit the scores and the results that it holds."""
        k, sch = self.k, self.sch
        unit, inside = places
        for info in k.stages:
            if info.name in parts.partial:
                *rows, part = below(sch, info.name, unit)
                sch.reorder(part, *rows)
                self.rows(rows[-1])
                self.elements(below(sch, parts.partial[info.name], inside)[-2:])
            elif is_full(k, info):
                self.elements(below(sch, info.name, inside)[-2:])
            else:
                self.rows(below(sch, info.name, unit)[-1])
        self.rows(below(sch, parts.scale, unit)[-1])
        *rows, m, n, part = below(sch, k.values.name, unit)
        sch.reorder(part, *rows, m, n)
        self.elements([m, n])
        pair = self.elements(below(sch, weights, inside)[-2:])
        if self.stores_pairs:
            sch.vectorize(pair)
        e = self.elements(below(sch, host, unit)[-2:])
        if k.width % 2 == 0:
            sch.vectorize(e)

    def rows(self, loop: LoopRef) -> None:
        """Give each thread of threadIdx.y every eighth row of those of its warp."""
        sch = self.sch
        if self.each == 1:
            _, row = sch.split(loop, [None, HELD_ROWS])
        else:
            halves = WARP_ROWS // HELD_ROWS
            _, warp, half, row = sch.split(loop, [None, self.each, halves, HELD_ROWS])
            sch.reorder(half, warp, row)
            row = sch.fuse(warp, row)
        sch.bind(row, Y)

    def elements(self, loops: list[LoopRef]) -> LoopRef:
        """Give each thread pairs of columns of its rows; return the loop over a pair."""
        row, column = loops
        self.rows(row)
        _, pair, each = self.sch.split(column, [None, HELD_COLUMNS, 2])
        self.sch.bind(pair, X)
        return each

    def place(self, parts: SoftmaxParts, weights: BlockRef) -> None:
        """Keep products and weights in fragments, all else in registers."""
        k, sch = self.k, self.sch
        stages = [b.name for b in k.stages]
        sums = [x for n, x in parts.partial.items() if n != k.values.name]
        for name in (*stages, *sums, parts.scale):
            sch.set_scope(name, 0, "register")
        for block in (k.scores.name, k.values.name, weights):
            sch.set_scope(block, 0, self.scope)

    def copy(self, block: BlockRef, at: LoopRef, ahead: bool) -> None:
        """Copy a tile to shared memory with all threads, in vectors."""
        sch = self.sch
        loops, size = below(sch, block, at), self.k.keys.buffer.dtype.bytes
        (source,) = {r.buffer for r in sch.block(block).reads}
        row = sch.extent(loops[-1])
        if chunks := swizzle_chunks(row * size):
            sch.swizzle(block, 0, chunks)
        lanes = vector_width([size], source.shape[-1], row)
        divide_among_threads(sch, flat(sch, loops), self.threads, lanes)
        if ahead and self.stages > 1 and can_copy_ahead(self.target) and lanes > 1:
            sch.annotate(block, ASYNC.key, 1)
