"""Sums over the lanes of vectors: partial results in registers, then one across them.

A reduction along the contiguous axis is split over the lanes (``rfactor``), as many vectors of them
as hide the latency of an addition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .....ir.loop.nodes import BlockAxis
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.lookup import extent
from ....stores import update_of

FEWEST = 4  # partial sums that are worth having
LANE_ACCUMULATORS = 4  # vectors of partial sums that hide the latency of an addition
SLOW_ACCUMULATORS = 8  # the same for a maximum or minimum that sees NaN


def accumulators(blocks: Iterable[BlockInfo]) -> int:
    """Return the default number of vectors of partial results for these blocks."""
    updates = [update_of(b.block) for b in blocks if b.reduce]
    slow = any(u is not None and u[1] in ("maximum", "minimum") for u in updates)
    return SLOW_ACCUMULATORS if slow else LANE_ACCUMULATORS


def one_stretch(sch: Schedule, info: BlockInfo, own: list[LoopRef]) -> list[LoopRef]:
    """Fuse the innermost of a block's reduction loops, as far as their terms are one stretch.

    A plane of 7 x 7 is 49 neighbors, where each of its rows fills half a vector.
    """
    if len(own) != len(info.reduce):
        return own
    loops = list(own)
    for _ in _stretch(info)[1:]:
        loops[-2:] = [sch.fuse(*loops[-2:])]
    return loops


def stretch_of(info: BlockInfo) -> int:
    """Return the number of terms in one stretch: those that `one_stretch` goes through."""
    return math.prod(a.extent for a in _stretch(info))


def _stretch(info: BlockInfo) -> list[BlockAxis]:
    """Return the reduction axes whose terms are one stretch in every operand, from the last."""
    *outer, last = info.reduce
    axes, length = [last], last.extent
    for axis in reversed(outer):
        if any(a.stride(axis.var) != _times(length, a.stride(last.var)) for a in info.inputs):
            break
        axes.append(axis)
        length *= axis.extent
    return axes


def _times(length: int, stride: int | None) -> int:
    """Return the elements that ``length`` steps are; -1, which no stride is, if they differ."""
    return -1 if stride is None or stride < 0 else length * stride


def fitting(columns: int, width: int) -> int:
    """Return the number of partial sums: ``width``, or less where there are few columns."""
    while width > 1 and columns < 2 * width:
        width //= 2
    return width


def reduce_columns(
    sch: Schedule, block: str, own: list[LoopRef], width: int, before: LoopRef | None = None
) -> None:
    """``for k: acc += x[k]``  ->  ``width`` partial sums over k, then one sum across them.

    ``own`` are the block's reduction loops; the last one is contiguous in memory. The partial sums
    stay in vector registers. Narrow reductions, and those of several values at once, are unchanged.
    ``before`` is a loop over as many vectors that computes the terms: the sums move into it.
    """
    if not own or any(extent(sch, x) < 1 for x in own) or update_of(sch.block(block)) is None:
        return
    width = fitting(extent(sch, own[-1]), width)
    if width < FEWEST:
        return
    outer, lane = sch.split(own[-1], [None, width])
    partial = sch.rfactor(lane, -1)
    sch.set_scope(partial, 0, "register")
    if before is not None:
        outer = sch.merge(before, outer)
    init = sch.decompose_reduction(partial, own[0] if len(own) > 1 else outer)
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(sch.get_loops(block)[-1])


def sum_in_lanes(sch: Schedule, first: LoopRef, lane: LoopRef, results: int) -> None:
    """Keep a vector of partial sums for each result of a tile in registers.

    ``lane`` goes through the terms of a vector, ``first`` is the outermost loop over terms, and
    ``results`` is the number of loops over the tile, which are between the two.
    """
    partial = sch.rfactor(lane, -1)
    sch.set_scope(partial, 0, "register")
    init = sch.decompose_reduction(partial, first)
    for block in (partial, init):
        *tile, lane = sch.get_loops(block)[-1 - results :]
        for loop in tile:
            sch.unroll(loop)
        sch.vectorize(lane)


def sum_across_lanes(sch: Schedule, block: str, results: int) -> None:
    """Add up the lanes of each result of a tile, which are neighbors: as trees, all at once."""
    *tile, lane = sch.get_loops(block)[-1 - results :]
    row = tile[0] if results == 1 else sch.fuse(*tile)
    init = sch.decompose_reduction(block, row)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.unroll(row)
    sch.vectorize(lane)
