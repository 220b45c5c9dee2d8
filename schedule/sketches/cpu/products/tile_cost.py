"""The analytic cost of a register-tiled reduction, and valid tiles: for many points at once.

The model is the usual one for such kernels: FMA and load ports inside a tile, then cache footprints
(after Low et al., Analytical Modeling Is Enough for High-Performance BLIS, TOMS 2016; the constants
are ours). A decision is an array with its value at every point. Cycles are those of one core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .....ir.arrays import Array
from .....ir.loop.nodes import Var
from .....ir.target import Target
from ....space.analyze import AccessPattern, BlockInfo
from ....stores import update_of
from ..nests.contraction import (
    AHEAD,
    CHUNK,
    INLINE,
    MOST_FMAS,
    PANEL,
    SKIP,
    Contraction,
    TileColumns,
    chunk_axis,
    made_by_feeder,
    writes_in_order,
)
from ..nests.padding import LINES_PER_FMA, MOST_LINES

WAITING = 0.5  # of memory's bandwidth, which a product reaches that waits for what it reads
LOADS_LATE = 1.2  # cycles of loads for each in which they issue: those that miss come back later
SHARED_RATE = 0.8  # of the rate of L3, for what another core has just written
L2_LATE = 0.15  # of the cycles of reading weights from L2: what is not hidden behind FMAs
AGAIN = 0.1  # of the cycles of a first use: what is read again from L3, and arrives in time
SEGMENT_CYCLES = 32.0  # of a short run of stores, or of loads, in a row that is not in cache
FEW = 8  # rows of the result, from which the products take longer than their weights
PIECEWISE = 2.0  # times that an operand takes which is read in pieces shorter than its rows
MISSED_STORE = 50.0  # cycles of a piece of a line that is stored among more than L1 holds
MOSTLY = 2  # times L2: an array that is read in the same order again, and arrives in time
LOW, HIGH = 4, 15  # half-open range of the rows of a tile that keeps the multipliers busy
EXTREME = 3  # instructions of a maximum or minimum that sees NaN
SHORT_ROW, LONG_ROW = 1024, 16384  # bytes of rows of which pieces are waited for; more is as much
SHORT_WAIT, SHORT_LINES = 8.0, 3.0  # cycles of a piece's wait, and lines without one, in such rows
LONGER = 2.75  # of both, for each doubling of the row
UNEVEN = 0.05  # of the time of a piece: what a thread waits for another one at the end


def contraction_cost(k: Contraction, c: TileColumns, target: Target) -> Array:
    """Estimate the seconds of one run of the anchor block."""
    rows, width = c["rows"], c["vectors"] * c["lanes"]
    columns, outer, sweep = k.column.extent, _outer(k), _sweep(k)
    tiles_i, tiles_j = _ceil(_row(k), rows), _ceil(columns, width)
    edge = 1.0 * (_row(k) % rows > 0) + (columns % width > 0) + (columns % c["lanes"] > 0)
    tiles = outer * sweep * tiles_i * tiles_j
    skips = c["inside"] == SKIP
    kept = np.where(skips, (1.0 if k.kept is None else k.kept) / k.kept_in_rows, 1.0)
    steps = kept * _steps_of_all(k, c, target) * (1 + 0.01 * edge)
    compute = outer * sweep * k.depth * steps + tiles * (2.0 * rows * c["vectors"] + 20.0)
    tile = k.depth * steps / (tiles_i * tiles_j)
    panel = k.depth * np.minimum(width, columns) * k.dtype.bytes
    memory = _panel_cycles(k, c, target, panel, tile, compute)
    step, pieces = _strided_step(k, width, target), outer * tiles_j * k.depth
    cold = pieces * (_cold_step(k, width, target) if k.all_rows <= FEW else 0.0)
    far = pieces * (_far_piece(k, target) if k.all_rows > FEW else 0.0)
    loose = np.maximum(cold, pieces * step + far) + (tiles * k.depth - pieces) * step
    copied = outer * tiles_j * panel * 2 / target.core.l3.rate + far
    copied = copied * np.maximum(1, c["chunks"]) + cold
    memory = memory + np.where(c["pack"] == PANEL, copied, np.where(c["pack"] == AHEAD, 0.0, loose))
    if k.frozen:
        memory = memory + outer * _first_use(k, c, target, panel, tile)
    if k.feeders:
        memory = memory + _feeding_cycles(k, c, target)
    memory = memory + _rows_cycles(k, c, target) + _scattered_cycles(k, c, target)
    memory = memory + _short_pieces(k, width, target)
    cycles = compute + memory
    return np.asarray(target.core.seconds(cycles) * _imbalance(k, c, target, cycles))


def _ceil(a: Array | int, b: Array | int) -> Array:
    return np.asarray(-(-np.asarray(a) // b))


def _row(k: Contraction) -> int:
    return k.row.extent if k.row else 1


def _outer(k: Contraction) -> int:
    return math.prod(a.extent for a in k.outer)


def _sweep(k: Contraction) -> int:
    return math.prod(a.extent for a in k.sweep)


def _panel_cycles(
    k: Contraction, c: TileColumns, target: Target, panel: Array, tile: Array, compute: Array
) -> Array:
    """Estimate the cycles of reading panels and blocks again that are not hidden behind FMAs.

    ``panel`` is in bytes, ``tile`` and ``compute`` are the cycles of one tile and of all.
    """
    core, by_column = target.core, c["order"] == "column"
    tiles_j = _ceil(k.column.extent, c["vectors"] * c["lanes"])
    tiles = _outer(k) * _sweep(k) * _ceil(_row(k), c["rows"]) * tiles_j
    block = k.depth * c["rows"] * k.dtype.bytes
    again = np.where(panel > 0.5 * target.l1, tiles * panel * 0.5 / (core.l2.rate * 2), 0.0)
    held = tiles_j * panel < 0.6 * target.l2
    rate = np.where(held, core.l2.rate, core.l3.rate)
    near = np.where(by_column, tiles * block / core.l2.rate + again, tiles * panel / rate)
    lost = by_column & (panel * np.where(c["panels"] > 1, 2, 1) >= 0.7 * target.l2)
    uses = tiles - _outer(k) * tiles_j * k.frozen  # the first is waited for in any case
    late = uses * np.maximum(0.0, panel / core.l3.rate - tile)
    return np.asarray(np.where(lost, late, 0.0) + np.maximum(0.0, near - 0.7 * compute))


def _steps_of_all(k: Contraction, c: TileColumns, target: Target) -> Array:
    """Estimate the cycles of a reduction step on all tiles over row and column, edges included."""
    rows, vectors = c["rows"], c["vectors"]
    full, rest = np.divmod(_row(k), rows)
    wide, narrow = np.divmod(_ceil(k.column.extent, c["lanes"]), vectors)
    sizes = ((rows, vectors, full * wide), (rest, vectors, wide), (rows, narrow, full))
    parts = (*sizes, (rest, narrow, 1))
    cycles = (n * (i * j > 0) * _step_cycles(k, c, target, i, j) for i, j, n in parts)
    return np.asarray(sum(cycles, np.zeros(())))


def _instructions(k: Contraction) -> int:
    """Return the instructions that add a term to a vector of partial results."""
    update = update_of(k.anchor.block)
    return EXTREME if update is not None and update.op in ("maximum", "minimum") else 1


def _step_cycles(
    k: Contraction, c: TileColumns, target: Target, rows: Array, vectors: Array
) -> Array:
    """Estimate the cycles of one step of the reduction on a tile that is in cache."""
    core = target.core
    turns = np.maximum(1.0, c["lanes"] * k.dtype.bytes * 8 / core.vector_bits)
    stencil = all(a.uses(k.anchor_column) for a in k.anchor.inputs)
    loads = rows * vectors + vectors if stencil else rows + vectors
    work = rows * vectors * _instructions(k) * turns / core.fmas
    cycles = np.maximum(work, LOADS_LATE * loads * turns / core.loads)
    cycles = cycles * np.where(c["inside"] == SKIP, k.kept_in_rows, 1.0)
    cycles = np.maximum(cycles, float(core.fma_latency))
    if not stencil:
        missed = crowded(k, rows, target) * core.l1.line / core.l2.rate
        cycles = np.maximum(cycles, missed)
    cycles = cycles + _below_rows(k, c, rows, target)
    width = vectors * c["lanes"] * k.dtype.bytes
    below = L2_LATE * width / core.l2.rate * (k.depth * width > 0.5 * core.l1.size)
    return np.asarray(cycles + below + 1.0 / c["unroll"])


def _below_rows(k: Contraction, c: TileColumns, rows: Array, target: Target) -> Array:
    """Return the cycles of reading rows that are neighbors, terms far apart, from below L1."""
    inputs = [a for a in k.anchor.inputs if not a.uses(k.anchor_column)]
    if k.anchor_row is None or not inputs:
        return np.zeros(())
    waited = np.zeros(())
    if inputs[0].stride(k.anchor_row) == 1:
        apart = abs(inputs[0].stride(k.anchor.reduce[-1].var) or 0)
        waited = _far_lines(k, inputs[0], apart, rows, target)
    source = _source_of_rows(k, inputs[0])
    if source is None:
        return waited
    inlined = (c["inside"] == INLINE) | (c["inside"] == SKIP)
    return np.where(inlined, _far_lines(k, source, source.buffer.shape[-1], rows, target), waited)


def _source_of_rows(k: Contraction, access: AccessPattern) -> AccessPattern | None:
    """Return what the feeder that makes an operand reads, if rows are neighbors there."""
    feeder = next((f for f in k.feeders if access in _reads_of(k, f)), None)
    if feeder is None or len(feeder.inputs) != 1 or not writes_in_order(feeder):
        return None
    axes = zip(access.coefficients, feeder.spatial, strict=True)
    row = next((axis.var for form, axis in axes if form == {k.anchor_row: 1}), None)
    source = feeder.inputs[0]
    return source if row is not None and source.step(row) == 1 else None


def _far_lines(
    k: Contraction, access: AccessPattern, apart: int, rows: Array, target: Target
) -> Array:
    """Return the cycles in which a step's rows come from below L1; terms are ``apart`` elements."""
    cache, size = target.core.l1, access.buffer.dtype.bytes
    if apart * size < cache.line:
        return np.zeros(())
    lines = _ceil(rows * size, cache.line)
    missed = k.depth * lines * cache.line > cache.size / 2
    held = size * math.prod(access.buffer.shape) <= MOSTLY * target.l2
    level = target.core.l2 if held else target.core.l3
    return np.where(missed, lines * cache.line / level.rate, 0.0)


def crowded(k: Contraction, rows: Array, target: Target) -> Array:
    """Return the rows of a tile whose elements are not in L1 from one step to the next.

    Rows that are a multiple of some KiB apart share few sets. A set that more rows map to than it
    has ways, less one for the weights, loses each of them before its next use.
    """
    inputs = [a for a in k.anchor.inputs if not a.uses(k.anchor_column)]
    if k.anchor_row is None or not inputs:
        return np.zeros(())
    cache = target.core.l1
    step = (inputs[0].stride(k.anchor_row) or 0) * inputs[0].buffer.dtype.bytes
    if abs(step) < cache.line:
        return np.zeros(())
    places = cache.period // math.gcd(step, cache.period)
    return np.where(_ceil(rows, places) >= cache.ways, rows, 0)


def _first_use(k: Contraction, c: TileColumns, target: Target, panel: Array, tile: Array) -> Array:
    """Estimate the cycles that packed weights are waited for, in one iteration of the outer axes.

    In a model they come from memory in every run. The first row of tiles waits for a panel, unless
    the panel before it was long enough in use to fetch this one. ``panel`` is in bytes, ``tile`` in
    cycles.
    """
    core, chunks = target.core, np.maximum(1, c["chunks"])
    tiles_j = _ceil(k.column.extent, c["vectors"] * c["lanes"])
    arrival = panel / (core.bandwidth(target.threads) / target.threads / core.clock)
    waited = np.maximum(0.0, arrival / WAITING - tile)
    turns = _sweep(k) * _ceil(_row(k), c["rows"])
    held = tiles_j * panel < 0.6 * target.l2
    once = tiles_j * waited * np.minimum(chunks, target.threads)
    by_row = np.where(held, once, tiles_j * arrival / WAITING * turns)
    pieces = _ceil(tiles_j, c["panels"])
    ahead = np.maximum(0.0, arrival - turns / chunks * tile)
    by_column = chunks * (pieces * waited + (tiles_j - pieces) * np.minimum(waited, ahead))
    return np.where(c["order"] == "row", by_row, by_column)


def _rows_cycles(k: Contraction, c: TileColumns, target: Target) -> Array:
    """Estimate the cycles that all threads wait for the operand of the rows, and for the result.

    By rows, each thread reads its part once and writes whole rows. By columns, each reads all of
    it, again for every panel if it does not stay in L2, and writes a short piece of every row.
    Windows without weights have one operand, of which a thread then reads short pieces.
    """
    windows = k.weights is None
    others = [a for a in k.anchor.inputs if windows or not a.uses(k.anchor_column)]
    size = sum(math.prod(a.buffer.shape) * a.buffer.dtype.bytes for a in others)
    rate = SHARED_RATE * target.core.l3.rate
    tiles_j, outer = _ceil(k.column.extent, c["vectors"] * c["lanes"]), _outer(k)
    if k.row is None:
        return np.asarray(size / rate)
    if windows:
        in_pieces = (c["order"] == "column") & (tiles_j > 1)
        return np.asarray(size / rate * np.where(in_pieces, PIECEWISE, 1.0))
    sharing = np.minimum(target.threads, tiles_j) if outer == 1 else np.asarray(1)
    again = 0.0 if size / outer < 0.5 * target.l2 else AGAIN
    times = sharing + again * np.maximum(0, tiles_j - sharing)
    result = k.anchor.points // k.depth * k.dtype.bytes
    lines = result // (k.column.extent * k.dtype.bytes)
    far = SEGMENT_CYCLES if result > 0.5 * target.l2 else 0.0
    by_column = size * times / rate + np.where(tiles_j > 1, lines * tiles_j, 0) * far
    return np.where(c["order"] == "row", size / rate, by_column)


def _scattered_cycles(k: Contraction, c: TileColumns, target: Target) -> Array:
    """Estimate the cycles of storing a result whose columns are not neighbors, one by one.

    A tile stores a piece of a line for each of its columns. Where lines of more columns than ways
    share a set, each piece misses L1.
    """
    if k.consumer is None or k.row is None:
        return np.zeros(())
    store, cache = k.consumer.stores[0], target.core.l1
    size = store.buffer.dtype.bytes
    step = (store.stride(k.column.var) or 0) * size
    if abs(step) <= size:
        return np.zeros(())
    places = cache.period // math.gcd(step, cache.period)
    crowded = k.column.extent > places * cache.ways
    piece = c["rows"] if store.stride(k.row.var) == 1 else np.ones((), np.int64)
    pieces = k.consumer.points / piece * _ceil(piece * size, cache.line)
    return np.asarray(k.consumer.points + pieces * (MISSED_STORE if crowded else 0.0))


def _feeding_cycles(k: Contraction, c: TileColumns, target: Target) -> Array:
    """Estimate the cycles for the feeders: once in memory, or chunk by chunk in cache.

    Adjacent chunks overlap, as those of a convolution's rows do; the overlap is computed twice.
    Inlined, feeders take predicates at the borders, and code for them.
    """
    core = target.core
    size = float(sum(f.points * f.stores[0].buffer.dtype.bytes for f in k.feeders))
    chunks, share = _fed_shares(k, c)
    rate = np.where(size * share < target.l2 / 2, core.l2.rate, core.l3.rate)
    chunked = 3.0 * size * share * chunks / rate
    whole, inlined = 3.0 * size / core.l3.rate, 0.3 * size / core.l2.rate
    inside = c["inside"]
    kinds = [inside == SKIP, inside == INLINE, inside == CHUNK]
    return np.select(kinds, [0.0 * chunked, inlined + 0.0 * chunked, chunked], whole)


def _fed_shares(k: Contraction, c: TileColumns) -> tuple[Array, Array]:
    """Return the number of chunks, and the share of the feeders that each computes.

    A chunk computes all between the first and the last element that it reads, in each dimension.
    """
    spans: dict[Var, Array] = {a.var: np.asarray(a.extent) for a in k.anchor.reduce}
    for var, size in _chunk_sizes(k, c).items():
        whole, step = k.part[var]
        spans[whole] = spans.get(whole, np.ones(())) + step * (size - 1)
    shares = [_hull(a, spans) / f.points for f in k.feeders for a in _reads_of(k, f)]
    share = np.maximum.reduce(np.broadcast_arrays(np.zeros(()), *shares))
    chunks = np.where(_is_whole(k, c), _chunk_extents(k, c["rows"]), c["chunks"])
    return chunks * _outer(k), np.asarray(share)


def _is_whole(k: Contraction, c: TileColumns) -> Array:
    """True where the axis of chunks is the outermost loop as it is."""
    return np.asarray((c["order"] != "column") & (c["chunks"] == 1) & (_outer(k) == 1))


def _chunk_sizes(k: Contraction, c: TileColumns) -> dict[Var, Array]:
    """Return how much of each axis of the result is in a chunk."""
    sizes = {a.var: np.asarray(a.extent) for a in k.sweep}
    sizes |= {a.var: np.ones(()) for a in k.outer}
    width = np.minimum(k.column.extent, c["vectors"] * c["lanes"])
    sizes[k.column.var] = np.where(c["order"] == "column", width, k.column.extent)
    if k.row is not None:
        sizes[k.row.var] = np.asarray(k.row.extent)
    axis = chunk_axis(k)
    if axis is not None:
        trips = _chunk_extents(k, c["rows"])
        tiles = np.where(_is_whole(k, c), 1, _ceil(trips, c["chunks"]))
        height = c["rows"] if axis is k.row else 1
        sizes[axis.var] = np.minimum(tiles * height, axis.extent)
    return sizes


def _reads_of(k: Contraction, feeder: BlockInfo) -> list[AccessPattern]:
    made = {s.buffer for s in feeder.stores}
    return [a for a in k.anchor.inputs if a.buffer in made]


def _hull(access: AccessPattern, spans: Mapping[Var, Array]) -> Array:
    """Return the elements of the box around what is read where axes take so many values."""
    count = np.ones(())
    for form, whole in zip(access.coefficients, access.buffer.shape, strict=True):
        if form is None:
            count = count * whole
            continue
        reach = [abs(n) * (spans.get(v, np.ones(())) - 1) for v, n in form.items()]
        count = count * np.minimum(1 + sum(reach, start=np.zeros(())), whole)
    return count


def _strided_step(k: Contraction, width: Array, target: Target) -> Array:
    """Estimate the cycles that a reduction step waits for a row of an unpacked weight panel.

    Distant rows defeat the prefetcher, map to few cache sets and are on separate pages. A panel
    that stays in L1 costs nothing after its first use.
    """
    step = _weights_step(k)
    if step is None:
        return np.zeros(())
    stride = step * k.dtype.bytes
    each = 5.5 if stride >= 2048 else 2.0 if stride >= 512 else 0.5
    resident = k.depth * width * k.dtype.bytes <= target.l1 / 2
    cached = resident & bool(stride % 4096 or k.depth <= 8)
    return np.where((step <= width) | cached, 0.0, width * k.dtype.bytes / 64 * each)


def _cold_step(k: Contraction, width: Array, target: Target) -> Array:
    """Estimate the cycles in which memory delivers one row of a panel of unpacked weights.

    The longer the pieces of distant rows, the less is waited for each. Zero for weights that stay
    in L2.
    """
    core, step = target.core, _weights_step(k)
    if step is None or step * k.dtype.bytes < 512 or step * k.depth * k.dtype.bytes < target.l2:
        return np.zeros(())
    rate = core.bandwidth(target.threads) / target.threads / core.clock
    return np.asarray(SEGMENT_CYCLES + np.minimum(width, step) * k.dtype.bytes / rate)


def _far_piece(k: Contraction, target: Target) -> float:
    """Estimate the cycles that the first use of a row of a panel waits, beside its bytes."""
    step = _weights_step(k) or 0
    row = step * k.dtype.bytes
    return SEGMENT_CYCLES if row >= 512 and row * k.depth >= target.l2 else 0.0


def _short_pieces(k: Contraction, width: Array, target: Target) -> Array:
    """Estimate the cycles of waiting for the terms of sums by columns that come from below L2.

    A tile reads a piece of each row. The prefetcher does not follow short pieces of distant rows:
    the longer the rows, the more is waited for each, and the more lines end that.
    """
    if k.weights is not None or len(k.anchor.inputs) != 1:
        return np.zeros(())
    (terms,) = k.anchor.inputs
    size = terms.buffer.dtype.bytes
    row = size * (terms.stride(k.anchor.reduce[-1].var) or 0)
    whole = size * math.prod(terms.buffer.shape)
    by_columns = terms.stride(k.anchor_column) == 1
    if not by_columns or row < SHORT_ROW or whole <= target.l2 * target.threads:
        return np.zeros(())
    longer = math.log2(min(row, LONG_ROW) / SHORT_ROW)
    waited, lines = SHORT_WAIT + LONGER * longer, SHORT_LINES + LONGER * longer
    each = waited * np.maximum(0.0, 1 - width * size / (target.core.l1.line * lines))
    return np.asarray(whole / (size * width) * each)


def _weights_step(k: Contraction) -> int | None:
    """Return the elements from a row of weights to the next; None if there are no such rows."""
    return None if k.weights is None else k.weights.stride(k.anchor.reduce[-1].var)


def _imbalance(k: Contraction, c: TileColumns, target: Target, cycles: Array) -> Array:
    """Estimate the slowest thread's time relative to a single thread."""
    if target.threads == 1:
        return np.ones(())
    tiles_j = _ceil(k.column.extent, c["vectors"] * c["lanes"] * c["panels"])
    n = _outer(k) * c["chunks"] * np.where(c["order"] == "column", tiles_j, 1)
    share = np.minimum(1.0, _ceil(n, target.threads) * _piece_share(k, c))
    share = np.maximum(1.0 / target.threads, share)
    waits = UNEVEN * np.maximum(target.threads / n, 1 / 8)
    claims = target.core.claim * n / target.threads
    fork = (target.core.sharing + claims) / np.maximum(cycles, 1.0)
    return np.where(c["parallel"] > 0, share * (1 + waits) + fork, 1.0)


def _piece_share(k: Contraction, c: TileColumns) -> Array:
    """Return the largest piece's share of the work."""
    trips = _chunk_extents(k, c["rows"])
    chunked = _ceil(trips, c["chunks"]) / trips
    tiles_j = _ceil(k.column.extent, c["vectors"] * c["lanes"])
    across = np.minimum(c["panels"], tiles_j) / tiles_j
    share = np.where(c["chunks"] > 1, chunked, 1.0) * np.where(c["order"] == "column", across, 1.0)
    return np.asarray(share / _outer(k))


def _chunk_extents(k: Contraction, rows: Array) -> Array:
    """Return the largest number of chunks: the trip count of the loop that is split."""
    axis = chunk_axis(k)
    if axis is None:
        return np.ones((), np.int64)
    return _ceil(axis.extent, rows if axis is k.row else 1)


def contraction_valid(k: Contraction, c: TileColumns, target: Target) -> Array:
    """True where the tile fits the registers and the problem.

    A part of an axis is taken in whole tiles: what reaches into the next part would be computed
    with a predicate on every element. Rows that have none of enough height may end in such a tile.
    """
    rows, vectors, unroll, panels = c["rows"], c["vectors"], c["unroll"], c["panels"]
    columns, width, by_column = k.column.extent, vectors * c["lanes"], c["order"] == "column"
    inside, pack = c["inside"], c["pack"]
    operands = np.where(rows > 1, vectors, 1)  # of a single row, weights are read by the FMA
    held = rows * vectors + operands + np.where(unroll > 1, 2, 1)
    ragged = (_row(k) % rows > 0) | (columns % width > 0)
    fmas = np.where(ragged, MOST_FMAS // 2, MOST_FMAS)
    refused = (
        (rows > _row(k)) | ((vectors > 1) & ((vectors - 1) * c["lanes"] >= columns)),
        (held > target.registers - 1) & (rows * vectors > 1),
        (panels > 1) & (~by_column | ((panels - 1) * width >= columns)),
        (pack == PANEL) & (~by_column | ((_row(k) <= rows) & (not k.turned))),
        (pack == 0) & k.turned,
        (pack > 0) & (k.weights is None),
        (pack == AHEAD) & (not k.frozen),
        (inside == SKIP) & (_skipping_lines(k, c) > MOST_LINES),
        (pack > 0) & ((inside == INLINE) | (inside == SKIP)) & made_by_feeder(k),  # no buffer left
        c["chunks"] > np.maximum(1, _chunk_extents(k, rows)),
        (inside == CHUNK) & by_column & (columns > width),
        (unroll > 1) & (rows * vectors * unroll * _instructions(k) > fmas),
        unroll > k.anchor.reduce[-1].extent,
        (_row(k) % rows > 0) & _has_whole_tiles(k),
        (columns % width > 0) & k.in_parts(k.column, k.anchor_column),
    )
    return np.asarray(~np.logical_or.reduce(np.broadcast_arrays(*refused)))


def _has_whole_tiles(k: Contraction) -> bool:
    """True if the rows are parts of an axis and tiles high enough divide them."""
    if k.row is None or not k.in_parts(k.row, k.anchor_row):
        return False
    return any(k.row.extent % n == 0 for n in range(min(k.row.extent, LOW), HIGH))


def _skipping_lines(k: Contraction, c: TileColumns) -> Array:
    """Estimate the lines of code of a tile, copied for the borders of the padded axes.

    Every tap of the last window axis may have a copy, in the first and in the last tile of a row.
    """
    tiles = _ceil(_row(k), c["rows"])
    taps = max((a.extent for a in k.anchor.reduce[:-1]), default=1)
    copies = np.minimum(2, tiles) * taps + (tiles > 2)
    ragged = k.column.extent % (c["vectors"] * c["lanes"]) > 0
    tile = c["rows"] * c["vectors"] * c["unroll"]
    return np.asarray(copies * (1 + ragged) * tile * LINES_PER_FMA)
