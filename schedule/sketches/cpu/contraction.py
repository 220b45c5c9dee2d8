"""Register-tiled reductions: the roles of their axes, an analytic cost model, valid tiles.

Matrix products, convolutions, pooling, sums down the columns.

The reduction's last spatial axis is contiguous in memory and becomes vectors (the *columns*); a few
neighbours on another axis become *rows*; rows x vectors of accumulators stay in registers during
the reduction. A consumer that reads the result pointwise is computed on the tile while it is still
in registers. The cost model is the usual one for such kernels: FMA and load ports inside a tile,
then cache footprints (after Low et al., Analytical Modeling Is Enough for High-Performance BLIS,
TOMS 2016; the constants are ours).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.dtypes import DType
from ....ir.loop.nodes import BlockAxis, Buffer, Func, Var
from ....ir.target import Target
from ...space.analyze import AccessPattern, BlockInfo, frozen_inputs, point_reads, product_operands
from ...space.space import Choices
from .padding import LINES_PER_FMA, MOST_LINES, kept_share, pads_ends

PANEL, AHEAD = 1, 2  # packing of weights: panel by panel in the kernel, or before any call
CHUNK, INLINE, SKIP = 1, 2, 3  # placement of feeders: each chunk's loop, inlined, bounds
CYCLE = 1 / 3.0e9  # seconds; only ratios matter
L2_BYTES_PER_CYCLE = 24.0
L3_BYTES_PER_CYCLE = 8.0
FORK_CYCLES = 6000.0
WAITING = 0.5  # of memory's bandwidth, which a product reaches that waits for what it reads
LOADS_LATE = 1.2  # cycles of loads for each in which they issue: those that miss come back later
SHARED_RATE = 0.8  # of the rate of L3, for what another core has just written
L2_LATE = 0.3  # of the cycles of reading weights from L2: what is not hidden behind FMAs
AGAIN = 0.05  # of the cycles of a first use: what is read again from L3, and arrives in time
SEGMENT_CYCLES = 32.0  # of a short run of stores to a row that is not in cache
UNEVEN = 0.05  # of the time of a piece: what a thread waits for another one at the end
MOST_FMAS = 96  # of a tile's body: more exceeds the decoded-instruction cache


@dataclass(frozen=True, slots=True)
class Contraction:
    """The roles of the axes around one reduction block.

    ``column``, ``row``, ``outer`` and ``sweep`` are axes of the block that writes the result: the
    consumer, or a copy with the anchor's own axes. ``column`` is vectorized. ``row`` is the
    other side of the register tile (None if there is no second axis). Each iteration of ``outer``
    has its own panel of weights; ``sweep``, like the row, reuses them. ``anchor_column`` and
    ``anchor_row`` are the anchor's axes of which column and row are (a part). ``frozen`` weights
    are constants, which can be packed ahead of time. ``feeders`` are blocks that only the anchor
    reads, such as the padding of a convolution's input. ``kept`` is the share of the products
    that are left where bounds skip all that the feeders pad; None if they do anything else.
    """

    anchor: BlockInfo
    consumer: BlockInfo | None
    column: BlockAxis
    row: BlockAxis | None
    outer: tuple[BlockAxis, ...]
    sweep: tuple[BlockAxis, ...]
    anchor_column: Var
    anchor_row: Var | None
    weights: AccessPattern | None
    frozen: bool
    feeders: tuple[BlockInfo, ...]
    kept: float | None
    dtype: DType

    @property
    def depth(self) -> int:
        """The number of terms of the reduction."""
        return math.prod(a.extent for a in self.anchor.reduce)


def contraction_of(func: Func, blocks: tuple[BlockInfo, ...]) -> Contraction | None:
    """Return the axis roles of a function's heaviest reduction; None if it cannot be tiled."""
    anchor = heaviest(blocks)
    if anchor is None:
        return None
    kept = all(s.buffer in func.allocs for s in anchor.stores)  # not an output as well
    consumers = consumers_of(blocks, anchor) if kept else ()
    frozen = read_once(blocks, frozen_inputs(func))
    return find_contraction(anchor, consumers, feeders_of(blocks, anchor), frozen)


def heaviest(blocks: tuple[BlockInfo, ...]) -> BlockInfo | None:
    """Return the heaviest reduction; None if there is none."""
    reductions = [b for b in blocks if b.reduce and not b.opaque]
    return max(reductions, key=lambda b: b.flops, default=None)


def read_once(blocks: tuple[BlockInfo, ...], buffers: frozenset[Buffer]) -> frozenset[Buffer]:
    """Return the buffers that only one block reads, so that their layout can change."""
    readers = [b for i in blocks for b in {a.buffer for a in i.loads}]
    return frozenset(b for b in buffers if readers.count(b) == 1)


def feeders_of(blocks: tuple[BlockInfo, ...], info: BlockInfo) -> tuple[BlockInfo, ...]:
    """Return the element-wise blocks that only ``info`` reads."""
    found = []
    for b in blocks:
        written = {s.buffer for s in b.stores}
        readers = [r for r in blocks if any(a.buffer in written for a in r.loads)]
        if readers == [info] and not b.reduce and not b.opaque and len(b.stores) == 1:
            found.append(b)
    return tuple(found)


def consumers_of(blocks: tuple[BlockInfo, ...], info: BlockInfo) -> tuple[BlockInfo, ...]:
    """Return the other blocks that read what ``info`` writes."""
    written = {s.buffer for s in info.stores}
    return tuple(b for b in blocks if b is not info and any(a.buffer in written for a in b.loads))


def find_contraction(
    info: BlockInfo,
    consumers: tuple[BlockInfo, ...],
    feeders: tuple[BlockInfo, ...] = (),
    frozen: frozenset[Buffer] = frozenset(),
) -> Contraction | None:
    """Return the roles of a reduction block's axes; None if its last axis is not contiguous.

    None also for a reduction of one term, whose init cannot be decomposed from the loop.
    """
    if not info.reduce or not info.spatial or info.opaque or not _writes_in_order(info):
        return None
    if all(a.extent == 1 for a in info.reduce):
        return None
    last = info.spatial[-1]
    strides = [a.stride(last.var) for a in info.inputs]
    if any(s not in (0, 1) for s in strides) or 1 not in strides or last.extent < 2:
        return None
    consumer, axes, part = _result_axes(info, consumers)
    columns = [a for a in axes if part.get(a.var) == (last.var, 1)]
    if len(columns) != 1:
        return None
    column = columns[0]
    weights = _weights(info, last.var)
    others = [a for a in axes if a is not column and a.extent > 1]
    used = [a for a in others if weights is not None and weights.uses(part[a.var][0])]
    free = [a for a in others if a not in used]
    row = next((a for a in reversed(free) if part[a.var][1] == 1), None)
    return Contraction(
        anchor=info,
        consumer=consumer,
        column=column,
        row=row,
        outer=tuple(used),
        sweep=tuple(a for a in free if a is not row),
        anchor_column=last.var,
        anchor_row=part[row.var][0] if row is not None else None,
        weights=weights,
        frozen=weights is not None and weights.buffer in frozen,
        feeders=feeders,
        kept=_kept(info, feeders),
        dtype=info.stores[0].buffer.dtype,
    )


def _kept(info: BlockInfo, feeders: tuple[BlockInfo, ...]) -> float | None:
    if not feeders or not all(map(pads_ends, feeders)):
        return None
    return math.prod(kept_share(f, info) for f in feeders)


def _writes_in_order(info: BlockInfo) -> bool:
    """True if the block has one store, indexed by the spatial axes in order."""
    if len(info.stores) != 1:
        return False
    store = info.stores[0]
    if len(store.coefficients) != len(info.spatial):
        return False
    at = [{} if n == 1 else f for f, n in zip(store.coefficients, store.buffer.shape, strict=True)]
    return at == [{a.var: 1} if a.extent > 1 else {} for a in info.spatial]


def _result_axes(
    info: BlockInfo, consumers: tuple[BlockInfo, ...]
) -> tuple[BlockInfo | None, tuple[BlockAxis, ...], dict[Var, tuple[Var, int]]]:
    """Return the consumer that can run on the tile, the result's axes, and what they map to."""
    if len(consumers) == 1:
        part = point_reads(consumers[0], info)
        if part is not None:
            return consumers[0], consumers[0].spatial, part
    return None, info.spatial, {a.var: (a.var, 1) for a in info.spatial}


def _weights(info: BlockInfo, column: Var) -> AccessPattern | None:
    """Return the operand of a product that depends on the columns; None if there is none."""
    pair = product_operands(info) or ()
    return next((a for a in reversed(pair) if a.uses(column)), None)


def tile_of(c: Choices) -> tuple[int, int, int]:
    """Return the register tile: rows, vectors in a row, lanes in a vector."""
    return int(c["rows"]), int(c["vectors"]), int(c["lanes"])


def contraction_cost(k: Contraction, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run of the anchor block."""
    rows, vectors, lanes = tile_of(c)
    row_extent = k.row.extent if k.row else 1
    columns = k.column.extent
    width = vectors * lanes
    outer = math.prod(a.extent for a in k.outer)
    sweep = math.prod(a.extent for a in k.sweep)
    tiles_i, tiles_j = math.ceil(row_extent / rows), math.ceil(columns / width)
    edge = (row_extent % rows > 0) + (columns % width > 0) + (columns % lanes > 0)
    tiles = outer * sweep * tiles_i * tiles_j
    kept = 1.0 if k.kept is None or c["inside"] != SKIP else k.kept
    steps = kept * _steps_of_all(k, c, target) * (1 + 0.01 * edge)
    compute = outer * sweep * k.depth * steps + tiles * (2.0 * rows * vectors + 20.0)
    tile = k.depth * steps / (tiles_i * tiles_j)
    panel = k.depth * min(width, columns) * k.dtype.bytes
    block = k.depth * rows * k.dtype.bytes
    traffic = far = 0.0
    if c["order"] == "column":
        traffic += tiles_j * outer * sweep * tiles_i * block / L2_BYTES_PER_CYCLE
        held = panel * (2 if int(c["panels"]) > 1 else 1) < 0.7 * target.l2
        if panel > 0.5 * target.l1:
            traffic += tiles * panel * 0.5 / (L2_BYTES_PER_CYCLE * 2)
        if not held:
            far += tiles * max(0.0, panel / target.core.l3.rate - tile)
    else:
        rate = L2_BYTES_PER_CYCLE if tiles_j * panel < 0.6 * target.l2 else L3_BYTES_PER_CYCLE
        traffic += tiles * panel / rate
    memory = far + max(0.0, traffic - 0.7 * compute)
    if c["pack"] == PANEL:
        chunks = max(1, int(c["chunks"]))
        memory += outer * tiles_j * panel * 2 / L3_BYTES_PER_CYCLE * chunks
    elif c["pack"] != AHEAD:
        memory += tiles * k.depth * _strided_step(k, vectors * lanes, target)
    if k.frozen:
        memory += outer * _first_use(k, c, target, panel, tile)
    if k.feeders:
        memory += _feeding_cycles(k, c, target)
    memory += _rows_cycles(k, c, target)
    return (compute + memory) * CYCLE * _imbalance(k, c, target)


def _steps_of_all(k: Contraction, c: Choices, target: Target) -> float:
    """Estimate the cycles of a reduction step on all tiles over row and column, edges included."""
    rows, vectors, lanes = tile_of(c)
    full, rest = divmod(k.row.extent if k.row else 1, rows)
    wide, narrow = divmod(math.ceil(k.column.extent / lanes), vectors)
    sizes = ((rows, vectors, full * wide), (rest, vectors, wide), (rows, narrow, full))
    parts = (*sizes, (rest, narrow, 1))
    return sum(n * _step_cycles(k, c, target, i, j) for i, j, n in parts if i and j)


def _step_cycles(k: Contraction, c: Choices, target: Target, rows: int, vectors: int) -> float:
    """Estimate the cycles of one step of the reduction on a tile that is in cache."""
    core = target.core
    turns = core.turns(int(c["lanes"]) * k.dtype.bytes * 8)
    stencil = all(a.uses(k.anchor_column) for a in k.anchor.inputs)
    loads = rows * vectors + vectors if stencil else rows + vectors
    missed = 0 if stencil else _crowded(k, rows, target) * core.l1.line / core.l2.rate
    busy = (rows * vectors * turns / core.fmas, LOADS_LATE * loads * turns / core.loads)
    width = vectors * int(c["lanes"]) * k.dtype.bytes
    below = L2_LATE * width / core.l2.rate if k.depth * width > 0.5 * core.l1.size else 0.0
    return max(*busy, float(core.fma_latency), missed) + below + 1.0 / int(c["unroll"])


def _crowded(k: Contraction, rows: int, target: Target) -> int:
    """Return the rows of a tile whose elements are not in L1 from one step to the next.

    Rows that are a multiple of some KiB apart share few sets. A set that more rows map to than it
    has ways, less one for the weights, loses each of them before its next use.
    """
    inputs = [a for a in k.anchor.inputs if not a.uses(k.anchor_column)]
    if k.anchor_row is None or not inputs:
        return 0
    cache = target.core.l1
    step = (inputs[0].stride(k.anchor_row) or 0) * inputs[0].buffer.dtype.bytes
    if abs(step) < cache.line:
        return 0
    places = cache.period // math.gcd(step, cache.period)
    return rows if -(-rows // places) >= cache.ways else 0


def _first_use(k: Contraction, c: Choices, target: Target, panel: float, tile: float) -> float:
    """Estimate the cycles that packed weights are waited for, in one iteration of the outer axes.

    In a model they come from memory in every run. The first row of tiles waits for a panel, unless
    the panel before it was long enough in use to fetch this one. ``panel`` is in bytes, ``tile`` in
    cycles.
    """
    rows, vectors, lanes = tile_of(c)
    core, chunks = target.core, max(1, int(c["chunks"]))
    tiles_j = math.ceil(k.column.extent / (vectors * lanes))
    rate = core.bandwidth(target.threads) / target.threads / core.clock
    arrival = panel / rate
    waited = max(0.0, arrival / WAITING - tile)
    turns = math.prod(a.extent for a in k.sweep) * math.ceil((k.row.extent if k.row else 1) / rows)
    if c["order"] == "row":
        if tiles_j * panel < 0.6 * target.l2:
            return tiles_j * waited * min(chunks, target.threads)
        return tiles_j * arrival / WAITING * turns
    uses = turns / chunks
    pieces = math.ceil(tiles_j / int(c["panels"]))
    ahead = max(0.0, arrival - uses * tile)
    return chunks * (pieces * waited + (tiles_j - pieces) * min(waited, ahead))


def _rows_cycles(k: Contraction, c: Choices, target: Target) -> float:
    """Estimate the cycles that all threads wait for the operand of the rows, and for the result.

    By rows, each thread reads its part once and writes whole rows. By columns, each reads all of
    it, again for every panel if it does not stay in L2, and writes a short piece of every row.
    """
    others = [a for a in k.anchor.inputs if not a.uses(k.anchor_column)]
    size = sum(math.prod(a.buffer.shape) * a.buffer.dtype.bytes for a in others)
    rate = SHARED_RATE * target.core.l3.rate
    if c["order"] == "row" or k.row is None or k.weights is None:
        return size / rate
    _, vectors, lanes = tile_of(c)
    tiles_j = math.ceil(k.column.extent / (vectors * lanes))
    outer = math.prod(a.extent for a in k.outer)
    sharing = min(target.threads, tiles_j) if outer == 1 else 1
    again = 0.0 if size / outer < 0.5 * target.l2 else AGAIN
    times = sharing + again * max(0, tiles_j - sharing)
    result = k.anchor.points // k.depth * k.dtype.bytes
    segments = result // (k.column.extent * k.dtype.bytes) * tiles_j if tiles_j > 1 else 0
    far = SEGMENT_CYCLES if result > 0.5 * target.l2 else 0.0
    return size * times / rate + segments * far


def _feeding_cycles(k: Contraction, c: Choices, target: Target) -> float:
    """Estimate the cycles for the feeders: once in memory, or chunk by chunk in cache.

    Adjacent chunks overlap by the extent of the first reduction axis; the overlap is computed
    twice.
    """
    size = float(sum(f.points * f.stores[0].buffer.dtype.bytes for f in k.feeders))
    if c["inside"] == SKIP:
        return 0.0
    if c["inside"] == INLINE:
        return 0.3 * size / L2_BYTES_PER_CYCLE  # predicates at the borders, and code for them
    if not c["inside"]:
        return 3.0 * size / L3_BYTES_PER_CYCLE
    axis = chunk_axis(k)
    span = axis.extent / int(c["chunks"]) if axis is not None else 1.0
    overlap = 1.0 + (k.anchor.reduce[0].extent - 1) / max(span, 1.0)
    fits = size / int(c["chunks"]) * overlap < target.l2 / 2
    return 3.0 * size * overlap / (L2_BYTES_PER_CYCLE if fits else L3_BYTES_PER_CYCLE)


def _strided_step(k: Contraction, width: int, target: Target) -> float:
    """Estimate the cycles that a reduction step waits for a row of an unpacked weight panel.

    Distant rows defeat the prefetcher, map to few cache sets and are on separate pages. A panel
    that stays in L1 costs nothing after its first use.
    """
    if k.weights is None:
        return 0.0
    step = k.weights.stride(k.anchor.reduce[-1].var)
    if step is None or step <= width:
        return 0.0
    lines = width * k.dtype.bytes / 64
    stride = step * k.dtype.bytes
    resident = k.depth * width * k.dtype.bytes <= target.l1 / 2
    if resident and (stride % 4096 or k.depth <= 8):
        return 0.0
    return lines * (5.5 if stride >= 2048 else 2.0 if stride >= 512 else 0.5)


def pieces(k: Contraction, c: Choices) -> int:
    """Return the number of independent pieces that the threads can share."""
    _, vectors, lanes = tile_of(c)
    outer = math.prod(a.extent for a in k.outer)
    tiles_j = math.ceil(k.column.extent / (vectors * lanes * int(c["panels"])))
    return outer * int(c["chunks"]) * (tiles_j if c["order"] == "column" else 1)


def _imbalance(k: Contraction, c: Choices, target: Target) -> float:
    """Estimate the slowest thread's time relative to a single thread."""
    if target.threads == 1 or not c["parallel"]:
        return 1.0
    n = pieces(k, c)
    largest = _piece_share(k, c)
    share = max(1.0 / target.threads, min(1.0, math.ceil(n / target.threads) * largest))
    waits = UNEVEN * max(target.threads / n, 1 / 8)
    return share * (1 + waits) + FORK_CYCLES * (1 + n / 64) / max(k.anchor.flops / 16, 1.0)


def _piece_share(k: Contraction, c: Choices) -> float:
    """Return the largest piece's share of the work."""
    rows, vectors, lanes = tile_of(c)
    share = 1.0 / math.prod(a.extent for a in k.outer)
    if int(c["chunks"]) > 1:
        trips = chunk_extent(k, rows)
        share *= math.ceil(trips / int(c["chunks"])) / trips
    if c["order"] == "column":
        tiles_j = math.ceil(k.column.extent / (vectors * lanes))
        share *= min(int(c["panels"]), tiles_j) / tiles_j
    return share


def contraction_valid(k: Contraction, c: Choices, target: Target) -> bool:
    """True if the tile fits the registers and the problem."""
    rows, vectors, lanes = tile_of(c)
    row_extent = k.row.extent if k.row else 1
    if rows > row_extent or (vectors > 1 and (vectors - 1) * lanes >= k.column.extent):
        return False
    unroll = int(c["unroll"])
    held = rows * vectors + vectors + (2 if unroll > 1 else 1)
    if held > target.registers - 1 and rows * vectors > 1:
        return False
    panels = int(c["panels"])
    if panels > 1 and (c["order"] != "column" or (panels - 1) * vectors * lanes >= k.column.extent):
        return False
    if c["pack"] == PANEL and (c["order"] != "column" or row_extent <= rows):
        return False
    if (c["pack"] and k.weights is None) or (c["pack"] == AHEAD and not k.frozen):
        return False
    if c["inside"] == SKIP and _skipping_lines(k, c) > MOST_LINES:
        return False
    if c["pack"] and c["inside"] == INLINE and _made_by_feeder(k):
        return False  # an inlined block leaves no buffer to copy
    if int(c["chunks"]) > max(1, chunk_extent(k, rows)):
        return False
    if c["inside"] == CHUNK and not (c["order"] == "row" or k.column.extent <= vectors * lanes):
        return False
    ragged = row_extent % rows > 0 or k.column.extent % (vectors * lanes) > 0
    if unroll > 1 and rows * vectors * unroll > (MOST_FMAS // 2 if ragged else MOST_FMAS):
        return False
    return unroll <= k.anchor.reduce[-1].extent


def _skipping_lines(k: Contraction, c: Choices) -> int:
    """Estimate the lines of code of a tile, copied for the borders of the padded axes.

    Every tap of the last window axis may have a copy, in the first and in the last tile of a row.
    """
    rows, vectors, lanes = tile_of(c)
    tiles = math.ceil((k.row.extent if k.row else 1) / rows)
    taps = max((a.extent for a in k.anchor.reduce[:-1]), default=1)
    copies = min(2, tiles) * taps + (tiles > 2)
    ragged = k.column.extent % (vectors * lanes) > 0
    return copies * (1 + ragged) * rows * vectors * int(c["unroll"]) * LINES_PER_FMA


def _made_by_feeder(k: Contraction) -> bool:
    """True if a feeder computes the weights."""
    weights = None if k.weights is None else k.weights.buffer
    return any(s.buffer is weights for info in k.feeders for s in info.stores)


def chunk_axis(k: Contraction) -> BlockAxis | None:
    """Return the axis that is split into chunks for the threads."""
    return next((a for a in k.sweep if a.extent > 1), k.row)


def chunk_extent(k: Contraction, rows: int) -> int:
    """Return the largest number of chunks: the trip count of the loop that is split."""
    axis = chunk_axis(k)
    if axis is None:
        return 1
    return math.ceil(axis.extent / rows) if axis is k.row else axis.extent
