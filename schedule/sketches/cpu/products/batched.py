"""Products of many small matrices, numbered: tiles of registers, and passes around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....ir.arrays import Array
from .....ir.loop.nodes import Var
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.lookup import block_node, own_loops
from ....space.space import Choices, Columns
from ..nests.contraction import MOST_FMAS, Contraction, tile_of

BESIDE = 0.25  # of L1: a panel that stays there beside rows and results
CROWDED = 0.4  # of the ways of a set of L1: what rows may take of it beside a panel
PANEL_WAITED, ROWS_WAITED = 0.3, 0.9
"""Of the time in which a panel and a tile's rows come from L2: what products do not hide."""


def inline_ends(sch: Schedule, k: Contraction, consumer: BlockInfo | None, copy: BlockRef) -> str:
    """Inline what feeds a rewritten contraction, and the copy of its result into its consumer.

    Returns the block that writes the result: the consumer, or without one the copy.
    """
    for info in k.feeders:
        sch.compute_inline(info.name)
    if consumer is None:
        return copy.name
    sch.compute_inline(copy)
    return consumer.name


def result_axes(sch: Schedule, k: Contraction, out: str) -> dict[Var, LoopRef]:
    """Map the axes of a contraction's result to the loops of the block ``out`` that copies it."""
    own, old = own_loops(sch, out), k.anchor.spatial
    axes = block_node(sch, out).axes
    return {a.var: own[b.var] for a, b in zip(old, axes, strict=True) if b.var in own}


def tile_fits(c: Columns, terms: Array | int, target: Target) -> Array:
    """True where the register tile leaves room for operands, and its steps for decoded code."""
    tile, unroll = c["rows"] * c["vectors"], c["unroll"]
    full = (tile + c["vectors"] + 1 > target.registers - 1) & (tile > 1)
    return np.asarray(~full & (unroll <= terms) & (tile * unroll <= MOST_FMAS))


def tile_cycles(c: Columns, terms: Array | int, target: Target) -> Array:
    """Estimate the cycles of a tile's products, and of storing them.

    Rows come from L2 once. So do panels of columns, again for each tile unless they fit in L1
    beside rows and results. L2 is also filled with what comes next, so that a part of the time in
    which it is read is waited for: more of that of rows, which are short streams.
    """
    core, rows, vectors, bits = target.core, c["rows"], c["vectors"], 32 * c["lanes"]
    turns, width = np.maximum(1.0, bits / core.vector_bits), 4 * vectors * c["lanes"]
    busy = np.maximum(rows * vectors / core.fmas, (rows + vectors) / core.loads) * turns
    busy = np.maximum(busy, core.fma_latency)
    far = np.where(width * terms > BESIDE * core.l1.size, width / core.l2.rate, 0.0)
    shared = rows * np.gcd(4 * terms, core.l1.period) / core.l1.period  # of them in one set
    late = ROWS_WAITED * np.where(shared > CROWDED * core.l1.ways, 4.0, 1.0)
    waited = PANEL_WAITED * far + late * 4 * rows / core.l2.rate
    step = np.maximum(busy, far) + waited + 1.0 / c["unroll"]
    return np.asarray(terms * step + 2 * rows * vectors / core.stores + 20.0)


def tile_products(
    sch: Schedule,
    name: str,
    c: Choices,
    at: LoopRef,
    weights: BlockRef,
    order: Sequence[int],
    target: Target,
) -> LoopRef:
    """Compute the products ``name`` at a loop, in tiles of registers.

    Their axes are number, row, column and term; ``weights`` computes the operand of the columns,
    indexed by number, term and column, which is laid out by ``order`` with panels of columns split
    off. Returns the loop over numbers and panels.
    """
    rows, vectors, lanes = tile_of(c)
    store = sch.cache_write(name, 0, "register")
    sch.compute_at(store, at)
    number, tile, column = sch.get_loops(store)[-3:]
    width = min(vectors * lanes, sch.extent(column))
    first, row = sch.split(tile, [None, rows])
    panel, vector, lane = sch.split(column, [None, vectors, lanes])
    sch.reorder(number, panel, first, row, vector, lane)
    sch.compute_at(name, first, True)
    loops = sch.get_loops(name)
    step, unrolled = loops[-1], []
    own_row, own_vector, own_lane = loops[-3], *sch.split(loops[-2], [vectors, lanes])
    if int(c["unroll"]) > 1:
        step, inside = sch.split(step, [None, int(c["unroll"])])
        unrolled = [inside]
    sch.reorder(step, *unrolled, own_row, own_vector, own_lane)
    init = sch.decompose_reduction(name, step)
    started = sch.get_loops(init)[-3:]
    for tile_row, tile_vector, tile_lane in ((row, vector, lane), (own_row, own_vector, own_lane)):
        _in_registers(sch, tile_row, tile_vector, tile_lane)
    _in_registers(sch, *started)
    for loop in unrolled:
        sch.unroll(loop)
    sch.transform_layout(weights, 0, order, [(2, width)])
    spread(sch, store, 0, target)
    return sch.fuse(number, panel)


def spread(sch: Schedule, block: BlockRef | str, dim: int, target: Target) -> None:
    """Put neighbors in a dimension of a block's result into different sets of L1.

    What takes a line of each, as a sum of parts that is stored under many numbers, would have them
    in one set if they were a multiple of its period apart. An odd number of lines apart, they take
    all sets in turn.
    """
    line = target.core.l1.line // block_node(sch, block).writes[0].buffer.dtype.bytes
    sch.storage_align(block, 0, dim, 2 * line, line)


def _in_registers(sch: Schedule, row: LoopRef, vector: LoopRef, lane: LoopRef) -> None:
    sch.vectorize(lane)
    sch.unroll(vector)
    sch.unroll(row)


def vectorize_ends(sch: Schedule, blocks: Sequence[BlockRef | str], lanes: int) -> None:
    """Vectorize the innermost loop of each block."""
    for block in blocks:
        loop = sch.get_loops(block)[-1]
        if sch.extent(loop) > lanes:
            _, loop = sch.split(loop, [None, lanes])
        sch.vectorize(loop)
