"""Row-wise groups of short rows: lanes are neighboring rows, and columns are unrolled.

Rows of a few elements (coordinates, colors, scores of a few classes) leave most lanes of a vector
idle, and what is computed once in a row would be computed by scalars.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.lookup import below, own_loops
from ....space.space import Choices, Sketch
from ....stores import update_of
from ..nests.contraction import Contraction
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share, pass_seconds, schedule_pointwise, sharing_pays
from ..products.batched import vectorize_ends
from .neighbor_rows import NeighborRows, copy_of_result, find_neighbor_rows, keep_rows
from .rows import host_of, join_stages

OTHERS = 2  # vectors that blocks before the rows process at once
IMAGES = 2  # for each thread, of which each has its part of those blocks to itself
HELD = 0.5  # of L2: what such a part may take
NEAR = frozenset((0, 1, 2))  # elements between rows of which even many terms are loaded in vectors
MOST = 64  # instances of blocks for one row: all of them are unrolled


@dataclass(frozen=True, slots=True)
class ShortRows(NeighborRows):
    """Rows whose neighbors are the lanes."""

    @property
    def columns(self) -> int:
        """The instances of all blocks in a row."""
        return sum(_columns(b, self.count) for b in self.stages)


def _columns(info: BlockInfo, count: int) -> int:
    return math.prod(a.extent for a in (*info.spatial[count:], *info.reduce))


def find_short_rows(work: FuncInfo, target: Target) -> ShortRows | None:
    """Return the blocks if there are vectors of rows, and these are shorter than a vector.

    Rows of more terms count where those of neighboring rows are neighbors too, as a filter's are.
    """
    k = find_neighbor_rows(ShortRows, work, target)
    if k is None:
        return None
    longest = max(_columns(b, k.count) for b in k.stages)
    near = all(_steps(b, k) <= NEAR for b in k.stages)
    if longest < 2 or k.columns > MOST or k.neighbors < k.lanes:
        return None
    if not (near or (longest < k.lanes and _pays(k, longest))):
        return None
    return None if any(None in _steps(b, k) for b in k.stages) else k


def _steps(info: BlockInfo, k: ShortRows) -> set[int | None]:
    """Return how far apart neighboring rows are in the accesses of a stage, in elements."""
    row = info.spatial[k.across].var
    return {a.step(row) for a in (*info.loads, *info.stores)}


def _pays(k: ShortRows, longest: int) -> bool:
    """False for plain sums of half a vector or more: these are as fast in lanes of their own."""
    (first, *more) = (update_of(b.block) for b in k.stages)
    plain = first is not None and first[1] == "add" and not more
    return not plain or 2 * longest <= k.lanes


def apply_short_rows(k: ShortRows, sch: Schedule, c: Choices, target: Target) -> None:
    """Compute all stages for a vector of rows, with what they pass to each other in registers."""
    images = images_of(k, target)
    for info in k.others if images is None else ():
        schedule_pointwise(sch, info, target, OTHERS, bool(c["parallel"]))
    outer = sch.get_loops(host_of(k.stages).name)[: k.count]
    at, lane = sch.split(outer[k.across], [None, k.lanes * int(c["vectors"])])
    rows = [*outer[: k.across], *outer[k.across + 1 :], at]
    sch.reorder(*rows, lane)
    join_stages(k.stages, at, sch)
    for info in k.stages:
        copies = [
            copy_of_result(sch, info, n, at)
            for n, a in enumerate(info.stores)
            if info.reduce and a.buffer in sch.func.params
        ]
        for copy in copies:
            _vectorize_rows(k, sch, copy, at)
        _vectorize_rows(k, sch, info.name, at)
        keep_rows(sch, info, k.across)
    if images is not None:
        image = outer[0] if images == 1 else sch.fuse(*outer[:images])
        for info in k.others:
            sch.compute_at(info.name, image)
            vectorize_ends(sch, [info.name], k.lanes)
        rows = [image]
    if c["parallel"]:
        sch.parallel(rows[0] if len(rows) == 1 else sch.fuse(*rows))


def images_of(k: ShortRows, target: Target) -> int | None:
    """Return the leading axes that number parts of the other blocks' results, as images are.

    One part is computed before the rows that read it, so that it stays in L2. None if the parts are
    too few for the threads, or too large.
    """
    found = min((_alike(k, info) for info in k.others), default=0)
    count = math.prod(a.extent for a in k.stages[0].spatial[:found])
    made = [s.buffer for info in k.others for s in info.stores]
    size = sum(math.prod(b.shape) * b.dtype.bytes for b in made)
    if not found or count < IMAGES * target.threads or size > HELD * target.core.l2.size * count:
        return None
    return found


def _alike(k: ShortRows, info: BlockInfo) -> int:
    """Return how many leading axes index a block's result as they index that of the rows."""
    if info.reduce or len(info.stores) != 1:
        return 0
    found = k.across
    reads = [(b, a) for b in k.stages for a in b.loads if a.buffer is info.stores[0].buffer]
    for b, access in reads:
        forms = zip(b.spatial[:found], access.coefficients, strict=False)
        found = next((n for n, (a, form) in enumerate(forms) if form != {a.var: 1}), found)
    return found if reads else 0


def _vectorize_rows(k: ShortRows, sch: Schedule, block: BlockRef | str, at: LoopRef) -> None:
    """Make lanes of the rows and unroll all else."""
    lane = own_loops(sch, block, at)[sch.block(block).axes[k.across].var]
    columns = [x for x in below(sch, block, at) if x != lane]
    sch.reorder(*columns, lane)
    for loop in columns:
        sch.unroll(loop)
    sch.vectorize(lane)


def short_rows_cost(k: ShortRows, c: Choices, target: Target) -> float:
    """Estimate the seconds: a pass of all stages, longer where a vector has to wait for another."""
    threads = target.threads if c["parallel"] else 1
    return (1.0 + 0.2 / int(c["vectors"])) * pass_seconds(k.stages, threads, target)


@CPU.row(28)
def match_short_rows(work: FuncInfo, target: Target) -> Sketch | None:
    """Match row-wise groups of rows that are few elements, or a few neighbors' terms."""
    k = find_short_rows(work, target) if work.contraction is None else None
    return None if k is None else short_rows_sketch(k, target)


@CPU.row(9)
def match_padded_windows(work: FuncInfo, target: Target) -> Sketch | None:
    """Match windows of images that are padded along the lanes, where each lane would be checked."""
    if work.contraction is None or not _pads_lanes(work.contraction):
        return None
    k = find_short_rows(work, target)
    if k is None or images_of(k, target) is None:
        return None
    return short_rows_sketch(k, target)


def _pads_lanes(k: Contraction) -> bool:
    """True for windows without weights that move along the columns of what a feeder makes."""
    made = {s.buffer for info in k.feeders for s in info.stores}
    reduced = {a.var for a in k.anchor.reduce}
    forms = (f or {} for a in k.anchor.loads if a.buffer in made for f in a.coefficients)
    return k.weights is None and any(k.anchor_column in f and reduced & f.keys() for f in forms)


def short_rows_sketch(k: ShortRows, target: Target) -> Sketch:
    """Return the space of a group of short rows: vectors of rows at once, threads."""
    vectors = tuple(n for n in (1, 2, 4) if n * k.lanes <= k.neighbors)
    return Sketch(
        name="short_rows@1",
        kind="reduction",
        decisions={
            "vectors": vectors,
            "parallel": (1, 0) if may_share(pass_seconds(k.stages, 1, target), target) else (0,),
        },
        default={"vectors": 1, "parallel": int(sharing_pays(k.stages, target))},
        apply=lambda sch, c: apply_short_rows(k, sch, c, target),
        valid=lambda c: True,
        cost=lambda c: short_rows_cost(k, c, target),
    )
