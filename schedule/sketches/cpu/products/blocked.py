"""Products in blocks of terms, each scaled in registers: weights of 4 and 8 bits with many scales.

A register tile holds the sums of one block beside those of all blocks before it. The codes of a
panel of columns, and their scales, are packed ahead of time, so that memory delivers two streams.
Where an instruction adds up several products of narrow numbers in a lane, the terms it takes are
innermost (``lane_dots``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.lane_dots import LaneDot, lane_dot
from .....ir.loop.nodes import BlockAxis
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo, frozen_inputs, point_reads
from ....space.lookup import block_node, own_loops, read_number
from ....space.space import Choice, Choices, Sketch, cheapest
from ..nests.contraction import consumers_of, heaviest
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops
from ..nests.registers import keep_result, vectorize_init, vectorize_tile
from .skinny import CONVERSIONS

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
SCALING = 2.0  # instructions that scale a vector of sums and add it to another
LINE_RATE = 5.0  # bytes a cycle of two streams that memory delivers to one core
TILE = 30.0  # cycles beside the blocks of a tile, for each of which there are some, too
BLOCK = 6.0


@dataclass(frozen=True, slots=True)
class BlockedProduct:
    """The roles of a product whose blocks of terms are scaled and summed up.

    ``product`` has the axes block, row and column, ``total`` row and column, and the block as its
    reduction. ``consumer`` reads the total pointwise, if there is one. ``dot`` is an instruction
    that adds up several products in a lane, or None.
    """

    product: BlockInfo
    total: BlockInfo
    consumer: BlockInfo | None
    shared: AccessPattern
    codes: AccessPattern
    scales: tuple[AccessPattern, ...]
    dot: LaneDot | None

    @property
    def row(self) -> BlockAxis:
        """The rows of the product."""
        return self.product.spatial[1]

    @property
    def column(self) -> BlockAxis:
        """Its columns, which become lanes."""
        return self.product.spatial[2]

    @property
    def depth(self) -> BlockAxis:
        """The terms of a block."""
        return self.product.reduce[0]

    @property
    def parts(self) -> int:
        """The codes in a byte, which are so many parts of a block's terms."""
        return self.depth.extent // self.codes.buffer.shape[1]

    @property
    def count(self) -> int:
        """The number of blocks."""
        return self.product.spatial[0].extent

    def lanes(self, target: Target) -> int:
        """Return the columns of a vector."""
        sums = self.total.stores[0].buffer.dtype
        return min(self.column.extent, target.lanes(sums) if self.dot is None else self.dot.lanes)


def find_blocked(work: FuncInfo, target: Target) -> BlockedProduct | None:
    """Return the roles of a function's blocks; None if it is no such product."""
    product = heaviest(work.blocks)
    if product is None or len(product.spatial) != 3 or len(product.reduce) != 1:
        return None
    readers = consumers_of(work.blocks, product)
    if len(readers) != 1 or any(s.buffer not in work.func.allocs for s in product.stores):
        return None
    (total,) = readers
    after = consumers_of(work.blocks, total)
    if len(after) > 1 or work.besides(product, total, *after) or not _sums(total, product):
        return None
    if any(not _reads_in_order(b, total) for b in after) or product.spatial[2].extent == 1:
        return None
    column, frozen = product.spatial[2].var, frozen_inputs(work.func)
    codes = [a for a in product.inputs if a.buffer in frozen and a.step(column) == 1]
    shared = [a for a in product.inputs if not a.uses(column)]
    if len(codes) != 1 or len(shared) != 1 or len(product.inputs) != 2:
        return None
    scales = tuple(
        a for a in total.inputs if a.buffer in frozen and a.stride(total.spatial[1].var) == 1
    )
    dot = _instruction(shared[0], codes[0], product, target)
    return BlockedProduct(product, total, (*after, None)[0], shared[0], codes[0], scales, dot)


def _sums(total: BlockInfo, product: BlockInfo) -> bool:
    """True if a block sums a product of ``[block, row, column]`` over its blocks."""
    if len(total.spatial) != 2 or len(total.reduce) != 1 or total.opaque or len(total.stores) != 1:
        return False
    made = product.stores[0].buffer
    order = [total.reduce[0], *total.spatial]
    reads = [a.coefficients for a in total.loads if a.buffer is made]
    if len(reads) != 1:
        return False
    at = [{} if n == 1 else form for form, n in zip(reads[0], made.shape, strict=True)]
    return at == [{a.var: 1} if a.extent > 1 else {} for a in order]


def _reads_in_order(consumer: BlockInfo, total: BlockInfo) -> bool:
    """True if a block reads each row and column once, and has the columns of a row last."""
    part = point_reads(consumer, total)
    if part is None or len(consumer.spatial) < 2:
        return False
    own = [part.get(a.var) for a in consumer.spatial if a.extent > 1]
    return own == [(a.var, 1) for a in total.spatial if a.extent > 1]


def _instruction(
    shared: AccessPattern, codes: AccessPattern, product: BlockInfo, target: Target
) -> LaneDot | None:
    dot = lane_dot(target, shared.buffer.dtype, codes.buffer.dtype)
    terms, depth = codes.buffer.shape[1], product.reduce[0]
    if dot is None or dot.sums != product.stores[0].buffer.dtype or terms % dot.depth:
        return None
    return dot if shared.stride(depth.var) == 1 else None


@CPU.row(7)
def match_blocked(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a product in blocks of terms with constant codes."""
    k = find_blocked(work, target)
    if k is None:
        return None
    decisions = _decisions(k, target)

    def valid(c: Choices) -> bool:
        return _is_valid(k, c, target)

    def cost(c: Choices) -> float:
        return _seconds(k, c, target)

    return Sketch(
        name="blocked@1",
        kind="contraction",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: _apply(k, sch, c),
        valid=valid,
        cost=cost,
    )


def _decisions(k: BlockedProduct, target: Target) -> dict[str, tuple[Choice, ...]]:
    lanes = k.lanes(target)
    steps = k.codes.buffer.shape[1] // (1 if k.dot is None else k.dot.depth)
    return {
        "rows": tuple(r for r in ROWS if r <= k.row.extent),
        "vectors": tuple(v for v in (1, 2, 3, 4, 6) if v == 1 or (v - 1) * lanes < k.column.extent),
        "lanes": (lanes,),
        "unroll": tuple(n for n in (1, 2, 4, 8) if n <= steps),
        "parallel": (1, 0) if may_share_flops(k.product.flops, target) else (0,),
    }


def _is_valid(k: BlockedProduct, c: Choices, target: Target) -> bool:
    rows, vectors = int(c["rows"]), int(c["vectors"])
    return 2 * rows * vectors + vectors + 2 <= target.registers


def _seconds(k: BlockedProduct, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run: instructions or memory, whichever takes longer."""
    core, rows, vectors = target.core, int(c["rows"]), int(c["vectors"])
    lanes, unroll = int(c["lanes"]), int(c["unroll"])
    turns = max(1.0, lanes * 32 / core.vector_bits)
    if k.dot is None:
        steps, work = k.depth.extent, vectors * (rows + CONVERSIONS) / core.fmas
    else:
        steps = k.depth.extent // k.dot.depth
        work = vectors * rows * (1.0 if k.dot.adding else 2.0) / core.fmas
    loads = (rows + vectors) / core.loads
    step = max(work * turns, loads * turns, core.fma_latency * 1.0) + 1.0 / unroll
    block = steps * step + SCALING * rows * vectors * turns / core.fmas + BLOCK
    tiles = math.ceil(k.row.extent / rows) * math.ceil(k.column.extent / (vectors * lanes))
    cycles = tiles * (k.count * block + TILE)
    size = math.prod(k.codes.buffer.shape) * k.codes.buffer.dtype.bytes
    streamed = size / LINE_RATE if size > target.l2 else 0.0
    again = max(0, math.ceil(k.row.extent / rows) - 1) * size / core.l2.rate
    cycles = max(cycles, streamed) + 0.1 * min(cycles, streamed) + 0.1 * again
    if not c["parallel"]:
        return core.seconds(cycles)
    share = math.ceil(tiles / target.threads) / tiles
    return core.seconds(cycles * share + core.sharing + core.claim * tiles / target.threads)


def _apply(k: BlockedProduct, sch: Schedule, c: Choices) -> None:
    product, total = k.product.name, k.total.name
    sch.set_scope(product, 0, "register")
    out = keep_result(sch, total, k.consumer)
    at, tile = _tile_result(k, sch, c, out)
    sch.compute_at(total, at)
    block = _tile_total(k, sch, c, at)
    sch.compute_at(product, block)
    _tile_product(k, sch, c, block)
    _pack(k, sch, c, product, k.codes)
    for scale in k.scales:
        _pack(k, sch, c, total, scale)
    vectorize_tile(sch, tile)


def _tile_result(
    k: BlockedProduct, sch: Schedule, c: Choices, out: str
) -> tuple[LoopRef, list[LoopRef]]:
    """Tile the result's loops; return the innermost around a tile, and those of the tile."""
    own = own_loops(sch, out)
    row, column = (own.get(a.var) for a in block_node(sch, out).axes[-2:])
    assert column is not None
    share, *tile = sch.split(column, [None, int(c["vectors"]), int(c["lanes"])])
    if row is not None:
        around, row = sch.split(row, [None, int(c["rows"])])
        tile = [row, *tile]
        sch.reorder(share, around, *tile)
        share = sch.fuse(share, around)
    if c["parallel"]:
        sch.parallel(share)
    return share, tile


def _tile_total(k: BlockedProduct, sch: Schedule, c: Choices, at: LoopRef) -> LoopRef:
    """Tile the sum over blocks, and start it before its loop, which is returned."""
    own = own_loops(sch, k.total.name, at)
    row, column = (own.get(a.var) for a in k.total.spatial)
    assert column is not None
    block = own[k.total.reduce[0].var]
    lanes = sch.split(column, [int(c["vectors"]), int(c["lanes"])])
    tile = [*([row] if row is not None else []), *lanes]
    sch.reorder(block, *tile)
    init = sch.decompose_reduction(k.total.name, block)
    vectorize_tile(sch, tile)
    vectorize_init(sch, init, len(tile))
    return block


def _tile_product(k: BlockedProduct, sch: Schedule, c: Choices, at: LoopRef) -> None:
    """Tile the product of one block, and start its sums before the loop over its terms."""
    own = own_loops(sch, k.product.name, at)
    row, column = (own.get(a.var) for a in (k.row, k.column))
    assert column is not None
    terms = own[k.depth.var]
    parts: list[LoopRef] = []
    if k.parts > 1:
        *parts, terms = sch.split(terms, [k.parts, None])
    inner: list[LoopRef] = []
    if k.dot is not None:
        terms, *inner = sch.split(terms, [None, k.dot.depth])
    steps: list[LoopRef] = []
    if int(c["unroll"]) > 1:
        terms, *steps = sch.split(terms, [None, int(c["unroll"])])
    lanes = sch.split(column, [int(c["vectors"]), int(c["lanes"])])
    tile = [*([row] if row is not None else []), *lanes]
    sch.reorder(terms, *steps, *parts, *tile, *inner)
    init = sch.decompose_reduction(k.product.name, terms)
    vectorize_tile(sch, tile)
    vectorize_init(sch, init, len(tile))
    for loop in (*steps, *parts):
        sch.unroll(loop)


def _pack(
    k: BlockedProduct, sch: Schedule, c: Choices, reader: str, weights: AccessPattern
) -> None:
    """Pack constants as ``[columns / width, block, .., width]``, or with the terms of an
    instruction behind that.
    """
    block = sch.get_block(reader)
    packed = sch.cache_read(block, read_number(sch, block, weights.buffer), "global")
    rank = len(weights.buffer.shape)
    width = min(int(c["vectors"]) * int(c["lanes"]), weights.buffer.shape[-1])
    splits = [(rank - 1, width)]
    order = [rank - 1, *range(rank - 1), rank]
    if k.dot is not None and weights is k.codes:
        splits.append((1, k.dot.depth))
        order.append(rank + 1)
    sch.transform_layout(packed, 0, order, splits)
