"""Register-tiled reductions: matrix products, convolutions, pooling, sums down the columns.

The reduction's last spatial axis is contiguous in memory and becomes vectors (the *columns*); a few
neighbours on another axis become *rows*; rows x vectors of accumulators stay in registers while the
reduction runs. A consumer that reads the result at its own point is computed on the tile while
it is still in registers. The cost model is the usual one for such kernels: FMA and load ports inside
a tile, then cache footprints (Low et al., Analytical Modeling Is Enough for High-Performance BLIS,
TOMS 2016, for the shape of the argument; the constants are ours).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...ir.loop.nodes import BlockAxis
from ...ir.target import Target
from ..cursor import LoopRef
from ..schedule import Schedule
from .analyze import Access, BlockInfo, identity_reads, product_operands
from .pointwise import PARALLEL_WORK, schedule_pointwise
from .space import Choices, Sketch, cheapest

CYCLE = 1 / 3.0e9  # seconds; only ratios matter
L2_BYTES_PER_CYCLE = 24.0
L3_BYTES_PER_CYCLE = 8.0
FORK_CYCLES = 6000.0


@dataclass(frozen=True, slots=True)
class Contraction:
    """The roles of the axes of one reduction block.

    ``column`` is vectorized. ``row`` is the register tile's other side (None when there is no
    second axis). ``outer`` axes are those that both operands depend on: every iteration has
    its own panel of weights. ``sweep`` axes, like the row, reuse the weights.
    """

    anchor: BlockInfo
    consumer: BlockInfo | None
    column: BlockAxis
    row: BlockAxis | None
    outer: tuple[BlockAxis, ...]
    sweep: tuple[BlockAxis, ...]
    weights: Access | None
    dtype: DType

    @property
    def depth(self) -> int:
        """Points of the reduction."""
        return math.prod(a.extent for a in self.anchor.reduce)


def find_contraction(info: BlockInfo, consumers: tuple[BlockInfo, ...]) -> Contraction | None:
    """The roles of a reduction block's axes; None where its last axis is not contiguous."""
    if not info.reduce or not info.spatial or info.opaque or len(info.stores) != 1:
        return None
    column = info.spatial[-1]
    strides = [a.stride(column.var) for a in info.inputs]
    if info.stores[0].stride(column.var) != 1 or any(s not in (0, 1) for s in strides):
        return None
    if 1 not in strides or column.extent < 2:
        return None
    pair = product_operands(info)
    weights = None
    if pair is not None:
        with_column = [a for a in pair if a.uses(column.var)]
        weights = with_column[-1] if with_column else None
    others = info.spatial[:-1]
    fixed = [
        a for a in others if weights is not None and weights.uses(a.var) and a.extent > 1
    ]
    free = [a for a in others if a not in fixed]
    real = [a for a in free if a.extent > 1]
    row = real[-1] if real else None
    after = [c for c in consumers if identity_reads(c, info.stores[0].buffer)]
    consumer = after[0] if len(after) == 1 and len(consumers) == 1 else None
    return Contraction(
        anchor=info,
        consumer=consumer,
        column=column,
        row=row,
        outer=tuple(fixed),
        sweep=tuple(a for a in free if a is not row),
        weights=weights,
        dtype=info.stores[0].buffer.dtype,
    )


def _register_limit(target: Target) -> int:
    return target.registers - 2


def _tile(c: Choices) -> tuple[int, int, int]:
    return int(c["rows"]), int(c["vectors"]), int(c["lanes"])


def contraction_cost(k: Contraction, c: Choices, target: Target) -> float:
    """Estimated seconds of one run of the anchor block."""
    rows, vectors, lanes = _tile(c)
    row_extent = k.row.extent if k.row else 1
    columns = k.column.extent
    width = vectors * lanes
    outer = math.prod(a.extent for a in k.outer)
    sweep = math.prod(a.extent for a in k.sweep)
    tiles_i, tiles_j = math.ceil(row_extent / rows), math.ceil(columns / width)
    vectors_j = math.ceil(columns / lanes)
    stencil = all(a.uses(k.column.var) for a in k.anchor.inputs)
    loads = rows * vectors + vectors if stencil else rows + vectors
    inner = max(rows * vectors / 2, loads / 2, 4.0) + 1.0 / int(c["unroll"])
    # A ragged last tile runs at the latency bound: count it as it is, not as a full one.
    share = (row_extent / (tiles_i * rows)) * (vectors_j / (tiles_j * vectors))
    effective = max(inner * share, inner - 2.0 * (1.0 - share)) if share < 1 else inner
    edge = (row_extent % rows > 0) + (columns % width > 0) + (columns % lanes > 0)
    tiles = outer * sweep * tiles_i * tiles_j
    compute = tiles * (k.depth * effective * (1 + 0.02 * edge) + 2.0 * rows * vectors + 20.0)
    panel = k.depth * width * k.dtype.bytes
    block = k.depth * rows * k.dtype.bytes
    traffic = 0.0
    if c["order"] == "column":
        traffic += tiles_j * outer * sweep * tiles_i * block / L2_BYTES_PER_CYCLE
        reload = panel if panel > 0.6 * target.l2 else panel * 0.5
        if panel > 0.5 * target.l1:
            traffic += tiles * reload / (L2_BYTES_PER_CYCLE * 2)
    else:
        rate = L2_BYTES_PER_CYCLE if tiles_j * panel < 0.6 * target.l2 else L3_BYTES_PER_CYCLE
        traffic += tiles * panel / rate
    memory = max(0.0, traffic - 0.7 * compute)
    if c["pack"]:
        chunks = max(1, int(c["chunks"]))
        memory += outer * tiles_j * panel * 2 / L3_BYTES_PER_CYCLE * chunks
    elif columns * k.dtype.bytes >= 2048 and k.depth > 512 and k.weights is not None:
        memory += 0.15 * compute  # every row of the panel is on a page of its own
    return (compute + memory) * CYCLE * _imbalance(k, c, target)


def _pieces(k: Contraction, c: Choices) -> int:
    rows, vectors, lanes = _tile(c)
    outer = math.prod(a.extent for a in k.outer)
    tiles_j = math.ceil(k.column.extent / (vectors * lanes))
    return outer * int(c["chunks"]) * (tiles_j if c["order"] == "column" else 1)


def _imbalance(k: Contraction, c: Choices, target: Target) -> float:
    """Time of the slowest thread over that of one thread alone."""
    if target.threads == 1 or k.anchor.flops < PARALLEL_WORK:
        return 1.0
    pieces = _pieces(k, c)
    share = math.ceil(pieces / target.threads) / pieces
    return share + FORK_CYCLES * (1 + pieces / 64) / max(k.anchor.flops / 16, 1.0)


def contraction_valid(k: Contraction, c: Choices, target: Target) -> bool:
    """Whether the tile fits the registers and the problem."""
    rows, vectors, lanes = _tile(c)
    row_extent = k.row.extent if k.row else 1
    if rows > row_extent or (vectors > 1 and (vectors - 1) * lanes >= k.column.extent):
        return False
    if rows * vectors + vectors + 1 > _register_limit(target) + 1:
        return False
    if c["pack"] and (k.weights is None or c["order"] != "column"):
        return False
    first = _split_axis(k)
    tiles = 1 if first is None else first.extent
    if first is k.row and k.row is not None:
        tiles = math.ceil(row_extent / rows)
    if int(c["chunks"]) > max(1, tiles):
        return False
    return int(c["unroll"]) <= max(1, k.anchor.reduce[-1].extent)


def _split_axis(k: Contraction) -> BlockAxis | None:
    """The axis whose range is cut into chunks for the threads."""
    for axis in k.sweep:
        if axis.extent > 1:
            return axis
    return k.row


def apply_contraction(k: Contraction, sch: Schedule, c: Choices, target: Target) -> None:
    """Tile, keep the accumulators in registers, run the consumer on the tile, vectorize."""
    rows, vectors, lanes = _tile(c)
    anchor = k.anchor.name
    if k.consumer is not None:
        out = k.consumer.name
        sch.set_scope(anchor, 0, "register")
    else:
        out = sch.cache_write(anchor, 0, "register").name
        # The copy keeps the anchor's name free for the reduction itself.
    loops = dict(zip([a.var for a in k.anchor.spatial], sch.get_loops(out), strict=True))
    tile_loop, inner_out = _tile_output(k, sch, c, loops)
    sch.compute_at(anchor, tile_loop)
    reduce_first = _tile_anchor(k, sch, anchor, c)
    init = sch.decompose_reduction(anchor, reduce_first)
    _finish(sch, inner_out)
    _finish(sch, _last_loops(sch, init.name, vectors))


def _tile_output(
    k: Contraction, sch: Schedule, c: Choices, loops: dict[object, LoopRef]
) -> tuple[LoopRef, tuple[LoopRef | None, LoopRef | None, LoopRef]]:
    """Order the loops around the tile; the innermost of them, and the loops of the tile."""
    rows, vectors, lanes = _tile(c)
    outer = [loops[a.var] for a in k.outer]
    sweep = [loops[a.var] for a in k.sweep]
    j = loops[k.column.var]
    if vectors > 1:
        j_out, j_vec, j_lane = sch.split(j, [None, vectors, lanes])
    else:
        j_out, j_lane = sch.split(j, [None, lanes])
        j_vec = None
    i_out, i_in = None, None
    if k.row is not None:
        i_out, i_in = sch.split(loops[k.row.var], [None, rows]) if rows > 1 else (
            loops[k.row.var],
            None,
        )
    chunk: list[LoopRef] = []
    chunks = int(c["chunks"])
    axis = _split_axis(k)
    if axis is not None and chunks > 1:
        target_loop = i_out if axis is k.row else loops[axis.var]
        assert target_loop is not None
        first, rest = sch.split(target_loop, [chunks, None])
        chunk = [first]
        if axis is k.row:
            i_out = rest
        else:
            sweep = [rest if s is target_loop else s for s in sweep]
    inside = [x for x in (*sweep, i_out) if x is not None]
    head = [*outer, *chunk, j_out] if c["order"] == "column" else [*outer, *chunk]
    middle = inside if c["order"] == "column" else [*inside, j_out]
    tile = [x for x in (i_in, j_vec, j_lane) if x is not None]
    sch.reorder(*head, *middle, *tile)
    last = middle[-1] if middle else head[-1]
    if k.anchor.flops >= float(c["grain"]) and head:
        fused = head[0] if len(head) == 1 else sch.fuse(*head)
        if not middle:
            last = fused
        sch.parallel(fused)
        head = [fused]
    elif len(head) > 1 and c["pack"]:
        pass
    if c["pack"] and middle:
        _pack(k, sch, head[-1])
    return last, (i_in, j_vec, j_lane)


def _pack(k: Contraction, sch: Schedule, at: LoopRef) -> None:
    """Copy the panel of weights that a column tile needs, contiguous, before it is used."""
    assert k.weights is not None
    block = sch.get_block(k.anchor.name)
    index = sch.read_index(block, k.weights.buffer)
    packed = sch.cache_read(block, index, "global")
    sch.compute_at(k.anchor.name, at)
    sch.compute_at(packed.name, at)


def _tile_anchor(k: Contraction, sch: Schedule, anchor: str, c: Choices) -> LoopRef:
    """Order the reduction's own loops: reduction outside, rows, vectors, lanes inside."""
    rows, vectors, lanes = _tile(c)
    own = sch.get_loops(anchor)[-(len(k.anchor.spatial) + len(k.anchor.reduce)) :]
    roles = dict(zip([a.var for a in k.anchor.block.axes], own, strict=True))
    reduce = [roles[a.var] for a in k.anchor.reduce]
    first = reduce[0]
    unroll = int(c["unroll"])
    if unroll > 1:
        last, inner = sch.split(reduce[-1], [None, unroll])
        if len(reduce) == 1:
            first = last
        reduce = [*reduce[:-1], last, inner]
    j = roles[k.column.var]
    j_vec = None
    if vectors > 1:
        j_vec, j = sch.split(j, [vectors, lanes])
    row = roles[k.row.var] if k.row is not None and rows > 1 else None
    rest = [roles[a.var] for a in k.anchor.spatial if a is not k.column and a is not k.row]
    if k.row is not None and row is None:
        rest.append(roles[k.row.var])
    order = [*rest, *reduce, *(x for x in (row, j_vec, j) if x is not None)]
    sch.reorder(*order)
    sch.vectorize(j)
    for loop in (j_vec, row):
        if loop is not None:
            sch.unroll(loop)
    if unroll > 1:
        sch.unroll(reduce[-1])
    return first


def _finish(sch: Schedule, tile: tuple[LoopRef | None, LoopRef | None, LoopRef]) -> None:
    row, vector, lane = tile
    sch.vectorize(lane)
    for loop in (vector, row):
        if loop is not None:
            sch.unroll(loop)


def _last_loops(
    sch: Schedule, block: str, vectors: int
) -> tuple[LoopRef | None, LoopRef | None, LoopRef]:
    """The tile loops of an init block: they were copied, kinds and all, by the decomposition."""
    loops = sch.get_loops(block)
    return None, None, loops[-1]
