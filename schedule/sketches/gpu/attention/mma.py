"""Attention on tensor cores: a warp for 16 queries, scores and exponentials in its registers.

A block of threads has a tile of queries of one head, whose fragments stay in registers; it walks
over the keys in parts, whose tiles are copied to shared memory ahead. The threads of a warp hold
scores as the first product leaves them, which is as the second one takes its left factor. So
maxima, exponentials and sums are computed where the scores are, a row by four threads
(``fragments``).
"""

from __future__ import annotations

from .....ir.dtypes import f32
from .....ir.loop.intrinsics import HELD_COLUMNS, HELD_ROWS, TABLE, IntrinsicDef
from .....ir.loop.nodes import CHUNK
from .....ir.loop.notes import ASYNC, PIPELINE
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import product_operands
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
from ..mma import COLUMNS, ROWS
from ..threads import BLOCKS, X, Y, Z
from ..tiles import BlockDim, can_copy_ahead, divide_among_threads
from .simt import WIDEST, flat, skip_hidden

SUMS = 2  # reductions of a softmax: the maximum and the sum


def attention_core(k: Attention, target: Target) -> IntrinsicDef | None:
    """Return the matrix instruction of both products; None if tiles of queries are not whole.

    The exponentials become as narrow as the values, so the result has to be that narrow, too. None
    as well where rows of scores have other reductions than those of the softmax.
    """
    pairs = [product_operands(x) or () for x in (k.scores, k.values)]
    weights = {b.stores[0].buffer for b in k.stages}
    dtypes = {a.buffer.dtype for pair in pairs for a in pair if a.buffer not in weights}
    dtypes |= {a.buffer.dtype for a in (k.consumer or k.values).stores}
    sums = [b for b in k.stages if b.reduce and not is_full(k, b)]
    if len(sums) != SUMS:
        return None
    if len(dtypes) != 1 or k.dtype != f32 or k.queries % ROWS:
        return None
    (dtype,) = dtypes
    for row in TABLE.values():
        x = row.matrix
        if x is not None and x.operands == dtype and x.sums == f32 and row.on(target.gpu):
            return row if dtype.bytes == 2 else None
    return None


def apply_mma(k: Attention, core: IntrinsicDef, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule an attention on tensor cores with the given decisions."""
    _Attention(k, core, sch, c, target).apply()


class _Attention:
    """The schedule in progress: its products, and the loops over warps and over parts."""

    def __init__(
        self, k: Attention, core: IntrinsicDef, sch: Schedule, c: Choices, target: Target
    ) -> None:
        assert core.matrix is not None
        self.k, self.sch, self.target = k, sch, target
        self.name, self.depth = core.name, core.matrix.k
        self.warps, self.keys, self.stages = (int(c[n]) for n in ("warps", "keys", "stages"))
        self.threads = BlockDim(self.warps, HELD_ROWS, HELD_COLUMNS)

    def apply(self) -> None:
        k, sch = self.k, self.sch
        assert k.exponential is not None
        for info in k.others:
            sch.become(schedule_fallback(sch, info, self.target))
        layout = "nk" if k.by_key else "kn"
        rows = self.warps * ROWS
        queries, keys, scores = sch.to_matmul(
            k.scores.name, (rows, self.keys, self.depth), ("mk", layout)
        )
        sch.compute_inline(scores)
        weights, values, result = sch.to_matmul(
            k.values.name, (rows, ROWS, self.keys), ("mk", "kn")
        )
        host = result.name
        if k.consumer is not None:
            sch.compute_inline(result)
            host = k.consumer.name
        sch.narrow(weights)
        parts = take_parts(sch, k.exponential, self.keys)
        block = pieces(k, sch, host, rows)
        warp, _ = sch.split(below(sch, host, block)[0], [self.warps, None])
        for name in reversed(in_order(k, parts)):
            if name == k.values.name:
                sch.compute_at(name, warp, True, (1, ROWS, ROWS, 1))
            elif name != host:
                sch.compute_at(name, warp, True)
        inside = merged_parts(k, sch, parts, self.keys, warp)
        sch.compute_at(k.scores.name, inside, False, (1, ROWS, self.keys, self.depth))
        sch.bind(block, BLOCKS)
        sch.bind(warp, Z)
        self.hold(parts, host, weights, (warp, inside))
        self.place(parts, weights)
        self.multiply_scores(queries, keys, layout, (warp, inside))
        self.multiply_values(parts, values, inside)
        for name in parts.partial:
            sch.decompose_reduction(name, below(sch, name, warp)[0])
        if k.shown is not None and k.skips and k.length > self.keys:
            skip_hidden(sch, inside)
        sch.online(inside)
        if self.stages > 1:
            sch.annotate(inside, PIPELINE.key, self.stages)

    def hold(
        self,
        parts: SoftmaxParts,
        host: str,
        weights: BlockRef,
        places: tuple[LoopRef, LoopRef],
    ) -> None:
        """Give each thread of a warp the scores and the results that it holds."""
        k, sch = self.k, self.sch
        warp, inside = places
        for info in k.stages:
            if info.name in parts.partial:
                *rows, part = below(sch, info.name, warp)
                sch.reorder(part, *rows)
                self.rows(rows[-1])
                self.elements(below(sch, parts.partial[info.name], inside)[-2:])
            elif is_full(k, info):
                self.elements(below(sch, info.name, inside)[-2:])
            else:
                self.rows(below(sch, info.name, warp)[-1])
        self.rows(below(sch, parts.scale, warp)[-1])
        *rows, m, n, part = below(sch, k.values.name, warp)
        sch.reorder(part, *rows, m, n)
        self.elements([m, n])
        self.elements(below(sch, weights, inside)[-2:])
        e = self.elements(below(sch, host, warp)[-2:])
        if k.width % 2 == 0:
            sch.vectorize(e)

    def rows(self, loop: LoopRef) -> None:
        """Give each thread of threadIdx.y every eighth row."""
        _, row = self.sch.split(loop, [None, HELD_ROWS])
        self.sch.bind(row, Y)

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
            sch.set_scope(block, 0, "warp")

    def multiply_scores(
        self,
        queries: BlockRef,
        keys: BlockRef,
        layout: str,
        places: tuple[LoopRef, LoopRef],
    ) -> None:
        """Multiply the queries, whose fragments stay, with the keys of a part."""
        k, sch = self.k, self.sch
        warp, inside = places
        name = k.scores.name
        sch.set_scope(queries, 0, "shared")
        sch.set_scope(keys, 0, "shared")
        held = self.fragment(name, queries)
        sch.compute_at(held, warp)
        sch.compute_at(queries, warp)
        step, box = self.tiles(name, inside)
        part = self.fragment(name, keys)
        sch.compute_at(part, step)
        sch.compute_at(keys, inside)
        init = sch.decompose_reduction(name, step)
        sch.tensorize(below(sch, init, inside)[-2], "zero_matrix")
        self.load(held, warp, "load_matrix_a", "mk")
        self.load(part, step, "load_matrix_b", layout)
        sch.tensorize(box, self.name)
        self.copy(queries, warp, ahead=False)
        self.copy(keys, inside, ahead=True)

    def multiply_values(self, parts: SoftmaxParts, values: BlockRef, inside: LoopRef) -> None:
        """Multiply the exponentials of a part with its values."""
        sch, name = self.sch, parts.partial[self.k.values.name]
        sch.set_scope(values, 0, "shared")
        step, box = self.tiles(name, inside)
        init = sch.decompose_reduction(name, step)
        self.elements(below(sch, init, inside)[-2:])
        sch.set_scope(name, 0, "warp")
        part = self.fragment(name, values)
        sch.compute_at(part, step)
        sch.compute_at(values, inside)
        self.load(part, step, "load_matrix_b", "kn")
        sch.tensorize(box, self.name)
        self.copy(values, inside, ahead=True)

    def tiles(self, product: str, inside: LoopRef) -> tuple[LoopRef, LoopRef]:
        """Divide a product into tiles; return the loop over the depth and the tile's outermost."""
        sch = self.sch
        m, n, depth = below(sch, product, inside)[-3:]
        m, row = sch.split(m, [None, ROWS])
        n, column = sch.split(n, [None, COLUMNS])
        step, term = sch.split(depth, [None, self.depth])
        sch.reorder(step, m, n, row, column, term)
        for loop in (step, m, n):
            sch.unroll(loop)
        return step, row

    def fragment(self, product: str, operand: BlockRef) -> BlockRef:
        """Return the copy of an operand's tiles in the registers of a warp."""
        buffer = self.sch.block(operand).writes[0].buffer
        at = [r.buffer for r in self.sch.block(product).reads].index(buffer)
        return self.sch.cache_read(product, at, "warp")

    def load(self, fragment: BlockRef, at: LoopRef, name: str, layout: str) -> None:
        """Load tiles of 16 rows, or columns, by the depth of the instruction."""
        i, j = below(self.sch, fragment, at)[-2:]
        rows, columns = (self.depth, ROWS) if layout[0] == "k" else (ROWS, self.depth)
        outer_i, outer_j, box, _ = self.sch.tile(i, j, rows, columns)
        self.sch.tensorize(box, name)
        self.sch.unroll(outer_i)
        self.sch.unroll(outer_j)

    def copy(self, block: BlockRef, at: LoopRef, ahead: bool) -> None:
        """Copy a tile to shared memory with all threads, in vectors."""
        sch = self.sch
        loops, size = below(sch, block, at), self.k.keys.buffer.dtype.bytes
        (source,) = {r.buffer for r in sch.block(block).reads}
        row = sch.extent(loops[-1])
        chunks = next((n for n in (8, 4, 2) if row * size % (n * CHUNK) == 0), 0)
        if chunks:
            sch.swizzle(block, 0, chunks)
        lanes = WIDEST // size
        while lanes > 1 and (source.shape[-1] % lanes or row % lanes):
            lanes //= 2
        divide_among_threads(sch, flat(sch, loops), self.threads, lanes)
        if ahead and self.stages > 1 and can_copy_ahead(self.target) and lanes > 1:
            sch.annotate(block, ASYNC.key, 1)
