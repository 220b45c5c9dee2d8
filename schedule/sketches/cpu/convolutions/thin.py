"""Convolutions of few features: lanes run along the channels, as in products of few columns.

The last layer of a network that makes images has 1 or 3 features, which leave most of a vector
idle in a register tile. Here each result of a tile of pixels has a vector of partial sums over the
taps and channels; the vectors are added up across lanes at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.target import Target
from ....language.schedule import Schedule
from ....space.space import Choices, Sketch
from ..nests.contraction import CHUNK, Contraction, chunk_extent, made_by_feeder
from ..nests.fallback import around_anchor, schedule_fallback
from ..nests.lane_sums import stretch_of
from ..nests.matching import CPU, FuncInfo, once
from ..nests.pointwise import may_share, pass_seconds
from ..nests.registers import keep_result, vectorize_tile
from ..products.thin import (
    BEHIND,
    CLEARLY,
    LEAST,
    has_thin_tiles,
    rows_that_fit,
    sum_tile,
    sums_seconds,
)
from ..products.tiling import beside_tiling, feed_inside, result_loops, split_chunks

PIXELS = (2, 4, 8)  # powers of two: the sums of a tile are neighbors
CHUNKS = (1, 2, 4, 8, 16, 32)
LEAST_FULL = 0.7  # of the lanes, on average over the vectors of a stretch


@dataclass(frozen=True, slots=True)
class ThinConvolution:
    """A convolution whose channels are contiguous; ``lanes`` are those of a vector.

    ``stretch`` counts the neighbors among the terms: the channels, and those of the pixels beside.
    """

    k: Contraction
    lanes: int
    stretch: int

    @property
    def steps(self) -> int:
        """The number of vectors of terms of each result."""
        return self.k.depth // self.stretch * math.ceil(self.stretch / self.lanes)


@CPU.row(9)
def match_thin(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a convolution of few features, if it is clearly faster than in tiles."""
    return beside_tiling(_matched(work, target), work, target, 0.0, CLEARLY)


@CPU.row(11)
def match_thin_close(work: FuncInfo, target: Target) -> Sketch | None:
    """Match the others of these convolutions, for the tuner to try."""
    return beside_tiling(_matched(work, target), work, target, CLEARLY, BEHIND)


def find_thin(work: FuncInfo, target: Target) -> ThinConvolution | None:
    """Return the convolution if its features do not fill a vector, and its terms some."""
    k = work.contraction
    if k is None or len(k.anchor.reduce) < 2 or not has_thin_tiles(k, target):
        return None
    if made_by_feeder(k) or (k.feeders and k.kept is None):
        return None
    lanes, channels = target.lanes(k.dtype), k.anchor.reduce[-1].extent
    p = ThinConvolution(k, lanes, stretch_of(k.anchor) if channels % lanes else channels)
    full = p.stretch >= LEAST_FULL * lanes * math.ceil(p.stretch / lanes)
    return p if full and p.steps >= LEAST and rows_that_fit(k, PIXELS, target) else None


@once
def _matched(work: FuncInfo, target: Target) -> Sketch | None:
    p = find_thin(work, target)
    if p is None:
        return None
    k = p.k
    shared = may_share(pass_seconds((k.anchor,), 1, target), target)
    chunks = tuple(n for n in CHUNKS if n <= chunk_extent(k, 1))
    return around_anchor(
        "thin_convolution@1",
        {
            "pixels": rows_that_fit(k, PIXELS, target),
            "chunks": chunks,
            "inside": (0, CHUNK) if k.feeders else (0,),
            "parallel": (1, 0) if shared else (0,),
        },
        valid=lambda c: c["inside"] != CHUNK or int(c["chunks"]) > 1,
        cost=lambda c: thin_cost(p, c, target),
        apply=lambda sch, c: apply_thin(p, sch, c, target),
        others=work.besides(k.anchor, k.consumer, *k.feeders),
        target=target,
    )


def apply_thin(p: ThinConvolution, sch: Schedule, c: Choices, target: Target) -> None:
    """Keep the partial sums of a tile in registers over all terms, then add across lanes."""
    k, anchor = p.k, p.k.anchor.name
    assert k.row is not None and k.anchor_row is not None
    inside = c["inside"] == CHUNK
    for info in () if inside else k.feeders:
        schedule_fallback(sch, info, target)
    out = keep_result(sch, anchor, k.consumer)
    loops = result_loops(k, sch, out)
    loops[k.row.var], pixel = sch.split(loops[k.row.var], [None, int(c["pixels"])])
    chunk = split_chunks(k, sch, int(c["chunks"]), loops)
    around = [loops[a.var] for a in (*k.sweep, k.row) if a.var in loops]
    planes = k.consumer is not None and k.consumer.spatial[-1] is k.row
    tile = [loops[k.column.var], pixel] if planes else [pixel, loops[k.column.var]]
    sch.reorder(*chunk, *around, *tile)
    sch.compute_at(anchor, around[-1])
    if inside:
        feed_inside(k, sch, chunk[0], p.lanes)
    channels = k.anchor.reduce[-1].extent
    sum_tile(k, sch, around[-1], p.lanes, stretch=p.stretch > channels)
    if planes:
        vectorize_tile(sch, sch.get_loops(out)[-2:])
    else:
        sch.vectorize(sch.fuse(*sch.get_loops(out)[-2:]))
    if c["parallel"]:
        shared = chunk or around
        sch.parallel(shared[0] if len(shared) == 1 else sch.fuse(*shared))


def thin_cost(p: ThinConvolution, c: Choices, target: Target) -> float:
    """Estimate the seconds: FMAs or loads of a step, the trees, and the padded input."""
    k, pixels = p.k, int(c["pixels"])
    assert k.row is not None
    threads = target.threads if c["parallel"] else 1
    tiles = k.all_rows / k.row.extent * math.ceil(k.row.extent / pixels)
    work = sums_seconds(k, pixels, p.steps, tiles, threads, target)
    chunks = int(c["chunks"])
    if threads > 1 and chunks > 1:
        work *= math.ceil(chunks / threads) * threads / chunks
    if not k.feeders:
        return work
    padding = pass_seconds(k.feeders, threads, target)
    return work + (padding / 2 if c["inside"] == CHUNK else padding)
