"""Reductions of rows in tiles: a vector of partial sums for each of some neighboring rows.

Products of a matrix and a vector, sums and maxima of rows, and what is computed of each result. A
row by itself ends in a sum across lanes, and what follows is computed by scalars. Here the rows of
a tile are unrolled around the lanes; code generation puts the partial sums of all rows together in
one tree, whose totals are the lanes of a vector (``emit.statements.lane_trees``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.lookup import below, extent, own_loops
from ....space.space import Choices, Sketch
from ....stores import update_of
from ..nests.lane_sums import one_stretch, sum_across_lanes, sum_in_lanes
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import (
    SLOW,
    may_share,
    pass_seconds,
    schedule_pointwise,
    sharing_pays,
)
from .neighbor_rows import NeighborRows, copy_of_result, find_neighbor_rows, keep_rows
from .rows import host_of, join_stages
from .short_rows import find_short_rows

OTHERS = 2  # vectors that blocks before the rows process at once
FEWEST = 4  # rows of a tile
LEVELS = 3.0  # instructions of a tree for each vector of partial sums
ACROSS = 2.0  # cycles of each level of the sum across lanes of a row by itself
SLOWER = 3.0  # instructions of a maximum or minimum that sees NaN
STRETCH = 2048  # bytes of a row from which prefetchers follow it
FAR = 1.1  # times as long as such rows tiles wait for what is beyond the second cache
NEAR = 1.2  # and for what is in it
STREAMED = 1.6  # and if that is only added up: rows by themselves have little work beside
CROWDED = 1.5  # and tiles whose rows share sets of the first cache


@dataclass(frozen=True, slots=True)
class RowTiles(NeighborRows):
    """Rows that have a value each; tiles are of neighbors."""

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return math.prod(a.extent for a in self.stages[0].spatial[: self.count])

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that combine the terms of a row, one for each reduction."""
        updates = (update_of(b.block) for b in self.stages if b.reduce)
        return tuple(u[1] for u in updates if u is not None)

    @property
    def work(self) -> float:
        """The instructions that combine a vector of each reduction with another."""
        return sum(SLOWER if o in ("maximum", "minimum") else 1.0 for o in self.operations)

    @property
    def terms(self) -> int:
        """The neighbors in memory that the shortest of the reductions has in a row."""
        return min(b.reduce[-1].extent for b in self.stages if b.reduce)

    @property
    def plain(self) -> bool:
        """True for sums of one array as it is."""
        sums = [b for b in self.stages if b.reduce]
        alone = all(len(b.inputs) == 1 and b.flops <= b.points for b in sums)
        return alone and {*self.operations} == {"add"}

    def is_crowded(self, rows: int, target: Target) -> bool:
        """True if the rows of a tile share sets of the first cache that are too small for them."""
        return any(target.core.l1.held(rows, n) < 1 for n in self._distances())

    def late(self, rows: int, target: Target) -> float:
        """Return how many times as long tiles of so many rows wait for memory as single rows."""
        core, longest = target.core, max(self._distances(), default=0)
        size = longest * self.rows
        if self.is_crowded(rows, target):
            return CROWDED
        if size > core.l2.size:
            return FAR if longest >= STRETCH else 1.0
        near = STREAMED if self.plain else NEAR
        return near if size > core.l1.size else 1.0

    def _distances(self) -> tuple[int, ...]:
        """Return the bytes from a row to the next where reductions read them."""
        reads = [(a, b.spatial[self.across].var) for b in self.stages if b.reduce for a in b.inputs]
        return tuple(
            abs(a.step(row) or 0) * a.buffer.dtype.bytes for a, row in reads if a.step(row)
        )


def find_row_tiles(work: FuncInfo, target: Target) -> RowTiles | None:
    """Return the blocks if all that they do with a row are reductions and values of these."""
    k = find_neighbor_rows(RowTiles, work, target) if work.contraction is None else None
    if k is None or not k.rows:
        return None
    fits = all(_is_stage(b, k) for b in k.stages) and any(b.reduce for b in k.stages)
    if not fits or min(k.neighbors, k.lanes) < FEWEST or 2 * k.terms < k.lanes:
        return None
    return k if find_short_rows(work, target) is None else None


def _is_stage(b: BlockInfo, k: RowTiles) -> bool:
    """True for a value of each row, or a reduction of a row whose terms are neighbors.

    Terms that are much work need the registers of a tile, and hide the sum across lanes.
    """
    if b.opaque or any(a.extent > 1 for a in b.spatial[k.count :]):
        return False
    row = b.spatial[k.across].var
    if any(s.step(row) != 1 for s in b.stores):
        return False
    if not b.reduce:
        return True
    steps = [a.step(b.reduce[-1].var) for a in b.inputs]
    dense = all(n in (0, 1) for n in steps) and 1 in steps and not b.transcendental
    return dense and update_of(b.block) is not None and len(b.stores) == 1


def apply_row_tiles(k: RowTiles, sch: Schedule, c: Choices, target: Target) -> None:
    """Compute all stages tile by tile."""
    for info in k.others:
        schedule_pointwise(sch, info, target, OTHERS, bool(c["parallel"]))
    outer = sch.get_loops(host_of(k.stages).name)[: k.count]
    at, row = sch.split(outer[k.across], [None, int(c["rows"])])
    around = [*outer[: k.across], *outer[k.across + 1 :], at]
    sch.reorder(*around, row)
    join_stages(k.stages, at, sch)
    for info in k.stages:
        if info.reduce:
            _reduce_rows(k, sch, info, at, int(c["lanes"]))
        else:
            sch.vectorize(_row(k, sch, info.name, at))
        keep_rows(sch, info, k.across)
    if c["parallel"]:
        sch.parallel(at if len(around) == 1 else sch.fuse(*around))


def _row(k: RowTiles, sch: Schedule, block: BlockRef | str, at: LoopRef) -> LoopRef:
    """Return the loop over the rows of a tile."""
    return own_loops(sch, block, at)[sch.block(block).axes[k.across].var]


def _reduce_rows(k: RowTiles, sch: Schedule, info: BlockInfo, at: LoopRef, width: int) -> None:
    """Keep ``width`` partial results of each row of a tile in registers, then reduce these."""
    if info.stores[0].buffer in sch.func.params:
        sch.vectorize(_row(k, sch, copy_of_result(sch, info, 0, at), at))
    row = _row(k, sch, info.name, at)
    terms = [x for x in below(sch, info.name, at) if x != row]
    *terms, last = one_stretch(sch, info, terms)
    width = min(width, extent(sch, last))
    lane = last
    if terms or extent(sch, last) >= 2 * width:
        step, lane = sch.split(last, [None, width])
        sch.reorder(*terms, step, row, lane)
        sum_in_lanes(sch, (*terms, step)[0], lane, 1)
    sum_across_lanes(sch, info.name, 1)


def row_tiles_cost(k: RowTiles, c: Choices, target: Target) -> float:
    """Estimate the seconds: a pass of all stages, the trees, and what tiles do to caches."""
    core, rows, vectors = target.core, int(c["rows"]), int(c["lanes"]) // k.lanes
    tiles = -(-k.neighbors // rows) * (k.rows // k.neighbors)
    threads = min(target.threads, tiles) if c["parallel"] else 1
    rounds = -(-tiles // threads) * threads / tiles
    trees = k.rows * k.work * (LEVELS + vectors - 1) / core.fmas
    work = core.seconds(trees + _scalars(k, rows, target)) / threads
    waits = k.late(rows, target) * pass_seconds(k.stages, threads, target)
    return rounds * (waits + work)


def _alone_cost(k: RowTiles, target: Target) -> float:
    """Estimate the seconds of rows by themselves: sums across lanes, and scalars."""
    threads = target.threads if sharing_pays(k.stages, target) else 1
    work = k.rows * k.work * ACROSS * math.log2(k.lanes) + _scalars(k, 1, target)
    return pass_seconds(k.stages, threads, target) + target.core.seconds(work) / threads


def _scalars(k: RowTiles, at_once: int, target: Target) -> float:
    """Return the cycles that values of so many rows at once take more than those of a vector."""
    values = [b for b in k.stages if not b.reduce]
    flops = sum(b.flops * (SLOW if b.transcendental else 1.0) for b in values)
    return flops / target.core.fmas * (1 / min(at_once, k.lanes) - 1 / k.lanes)


@CPU.row(19)
def match_row_tiles(work: FuncInfo, target: Target) -> Sketch | None:
    """Match groups that only reduce rows and compute values of the results, if tiles are cheaper
    than rows by themselves.
    """
    pair = _tiled(work, target)
    return pair[0] if pair is not None and pair[1] <= 1.0 else None


@CPU.row(31)
def match_row_tiles_dearer(work: FuncInfo, target: Target) -> Sketch | None:
    """Match the others of these groups, for the tuner to try."""
    pair = _tiled(work, target)
    return pair[0] if pair is not None and pair[1] > 1.0 else None


def _tiled(work: FuncInfo, target: Target) -> tuple[Sketch, float] | None:
    """Return the sketch, and its estimate relative to that of rows by themselves."""
    k = find_row_tiles(work, target)
    if k is None:
        return None
    sketch = row_tiles_sketch(k, target)
    return sketch, sketch.cost(sketch.default) / _alone_cost(k, target)


def row_tiles_sketch(k: RowTiles, target: Target) -> Sketch:
    """Return the space of such a group: rows of a tile, partial sums of a row, threads."""
    most = min(k.neighbors, k.lanes, target.registers // 2)
    heights = tuple(n for n in (most, most // 2, most // 4) if n >= FEWEST)
    rows = next((n for n in heights if not k.is_crowded(n, target)), most)

    def valid(c: Choices) -> bool:
        vectors = int(c["lanes"]) // k.lanes
        return int(c["rows"]) * vectors <= target.registers // 2 and (
            vectors == 1 or k.terms >= 2 * int(c["lanes"])
        )

    widths = (k.lanes, 2 * k.lanes, 4 * k.lanes)
    return Sketch(
        name="row_tiles@1",
        kind="reduction",
        decisions={
            "rows": heights,
            "lanes": widths,
            "parallel": (1, 0) if may_share(pass_seconds(k.stages, 1, target), target) else (0,),
        },
        default={
            "rows": rows,
            "lanes": max(n for n in widths if valid({"rows": rows, "lanes": n})),
            "parallel": int(k.rows > rows and sharing_pays(k.stages, target)),
        },
        apply=lambda sch, c: apply_row_tiles(k, sch, c, target),
        valid=valid,
        cost=lambda c: row_tiles_cost(k, c, target),
    )
