"""Transpositions: element-wise blocks with loads and stores contiguous along different axes.

A block of threads copies a tile of the input to shared memory along the input's contiguous axis,
and reads it from there along the output's: up to 16 bytes of global memory at a time both ways, and
of the tile element by element where it is read. The tile's rows are padded by one bank, so that the
elements of a column are in different banks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.nodes import BlockAxis, Buffer
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo
from ....space.lookup import below, own_loops, read_number
from ....space.space import Choices, Sketch, cheapest
from ..launches.clusters import CLUSTERS, Cluster
from ..launches.machine import (
    LaunchShape,
    access_bytes,
    bursts,
    flops_of,
    issue_seconds,
    launch_seconds,
    vector_width,
)
from ..launches.threads import BLOCKS, X, Y, fused, powers

LEAST = 8  # elements along an axis from which a tile pays for its barrier


@dataclass(frozen=True, slots=True)
class Transpose:
    """A block with its result contiguous along ``last``, ``crossing`` inputs along ``across``."""

    info: BlockInfo
    across: BlockAxis
    crossing: tuple[Buffer, ...]

    @property
    def last(self) -> BlockAxis:
        """The block's last spatial axis."""
        return self.info.spatial[-1]

    @property
    def width(self) -> int:
        """The bytes of a tile's element, summed over the crossing inputs."""
        return sum(b.dtype.bytes for b in self.crossing)

    @property
    def vector(self) -> int:
        """The most elements that one thread can load or store at once."""
        moved = (self.info.stores[0].buffer, *self.crossing)
        return vector_width((b.dtype.bytes for b in moved), self.last.extent, self.across.extent)


def find_transpose(info: BlockInfo) -> Transpose | None:
    """Return a block as a transposition, if both axes are long enough for tiles; else None."""
    if info.reduce or info.opaque or len(info.spatial) < 2 or len(info.stores) != 1:
        return None
    last = info.spatial[-1]
    if info.stores[0].step(last.var) != 1 or last.extent < LEAST:
        return None
    for axis in reversed(info.spatial[:-1]):
        found = [a for a in info.inputs if _crosses(info, a, axis)]
        if found and axis.extent >= LEAST:
            buffers = tuple(dict.fromkeys(a.buffer for a in found))
            once = all(sum(a.buffer is b for a in info.inputs) == 1 for b in buffers)
            return Transpose(info, axis, buffers) if once else None
    return None


def _crosses(info: BlockInfo, a: AccessPattern, axis: BlockAxis) -> bool:
    """True if an access is contiguous along ``axis``, with at most one axis per dimension."""
    simple = all(form is not None and len(form) <= 1 for form in a.coefficients)
    steps = all(k == 1 for form in a.coefficients for k in (form or {}).values())
    return simple and steps and a.step(axis.var) == 1 and a.step(info.spatial[-1].var) != 0


@CLUSTERS.row(20)
def match_transpose(k: Cluster, target: Target) -> Sketch | None:
    """Match a single element-wise block that transposes an input."""
    alone = k.elementwise and len(k.blocks) == 1
    across = find_transpose(k.blocks[0]) if alone else None
    return None if across is None else transpose_sketch(across, target)


def transpose_sketch(t: Transpose, target: Target) -> Sketch:
    """Return the space of a tiled transposition."""
    decisions: dict[str, tuple[int | str, ...]] = {
        "tile": (16, 32, 64),
        "threads": (64, 128, 256, 512),
        "vector": powers(1, t.vector),
    }

    def valid(c: Choices) -> bool:
        tile, lanes = int(c["tile"]), int(c["vector"])
        fits = tile * (tile + 4) * t.width <= target.gpu.shared_per_block
        return fits and tile <= int(c["threads"]) * lanes <= tile * tile

    def cost(c: Choices) -> float:
        return transpose_cost(t, c, target)

    return Sketch(
        name="gpu_transpose@2",
        kind="transpose",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: apply_transpose(t, sch, c),
        valid=valid,
        cost=cost,
    )


def apply_transpose(t: Transpose, sch: Schedule, c: Choices) -> None:
    """Bind tiles of the output to blocks; stage each crossing input in shared memory."""
    name, tile = t.info.name, int(c["tile"])
    loops = own_loops(sch, name)  # an axis of extent 1 may have none
    outer = [x for v, x in loops.items() if v not in (t.across.var, t.last.var)]
    row_block, row = sch.split(loops[t.across.var], [None, tile])
    column_block, column = sch.split(loops[t.last.var], [None, tile])
    sch.reorder(*outer, row_block, column_block, row, column)
    block = fused(sch, [*outer, row_block, column_block])
    assert block is not None
    copies = []
    for buffer in t.crossing:
        copy = sch.cache_read(name, read_number(sch, name, buffer), "shared")
        sch.compute_at(copy, block)
        copies.append(copy)
    sch.bind(block, BLOCKS)
    lanes = int(c["vector"])
    rows = int(c["threads"]) * lanes // tile
    _bind_tile(sch, row, column, rows, tile, lanes)
    for copy, buffer in zip(copies, t.crossing, strict=True):
        own = below(sch, copy, block)
        _bind_tile(sch, own[-2], own[-1], rows, tile, lanes)
        bank = max(1, 4 // buffer.dtype.bytes)
        sch.storage_align(copy, 0, _row_dimension(t, buffer), 32 * bank, bank)


def _row_dimension(t: Transpose, buffer: Buffer) -> int:
    """Return the dimension of an input that the output's last axis indexes."""
    access = next(a for a in t.info.inputs if a.buffer is buffer)
    return next(d for d, form in enumerate(access.coefficients) if form and t.last.var in form)


def _bind_tile(
    sch: Schedule, row: LoopRef, column: LoopRef, rows: int, tile: int, lanes: int
) -> None:
    """Bind the columns of a tile, or vectors of them, to neighboring threads.

    The threads take ``rows`` rows at a time.
    """
    if sch.extent(column) != tile:
        _, column = sch.split(column, [None, tile])
    inner: list[LoopRef] = []
    if lanes > 1:
        column, lane = sch.split(column, [None, lanes])
        inner = [lane]
    step = None
    if sch.extent(row) != rows:
        step, row = sch.split(row, [None, rows])
        sch.reorder(row, column, step, *inner)
    sch.bind(row, Y)
    sch.bind(column, X)
    if step is not None:
        sch.unroll(step)
    for lane in inner:
        sch.vectorize(lane)


def transpose_cost(t: Transpose, c: Choices, target: Target) -> float:
    """Estimate the seconds: coalesced accesses, a barrier, partly filled tiles."""
    tile, threads, info, lanes = int(c["tile"]), int(c["threads"]), t.info, int(c["vector"])
    rest = info.points // (t.across.extent * t.last.extent)
    tiles = -(-t.across.extent // tile) * -(-t.last.extent // tile) * rest
    full = tiles * tile * tile / info.points
    narrow = bursts(tile * min(b.dtype.bytes for b in t.crossing))
    steps = tile * tile / threads
    under_way = min(steps, 4 * lanes) * t.width
    shape = LaunchShape(tiles, threads, under_way, tile * (tile + 1) * t.width)
    moved = sum(
        math.prod(a.extent for a in info.spatial) * a.buffer.dtype.bytes
        for a in (*info.inputs, *info.stores)
    )
    least = sum(access_bytes(info, a, None, 1) for a in (*info.inputs, *info.stores))
    seconds = launch_seconds(target, shape, max(moved, least) * full * narrow, flops_of(info))
    each = 1 + 3 / lanes  # the tile is read by elements
    issue = issue_seconds(target, each * info.points * full * len(info.inputs))
    return seconds + 100e-9 + issue
