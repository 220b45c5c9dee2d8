"""Reductions along an axis that is not the fastest, of elements that are read once.

Lanes are neighboring results, as many vectors of them as registers hold: each step of the reduction
reads a long stretch of memory. Tiles of several rows, as in a product, would read a short piece of
each of many places, and gain nothing, as no element is read twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.target import Target
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.space import Choices, Sketch
from ....stores import update_of
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import HEAVY, lanes_of, pass_seconds, sharing_pays, side_by_side, work_of

VECTORS = 16  # of neighboring results in registers
LEAST = 4  # of them, unless they are all


@dataclass(frozen=True, slots=True)
class ColumnReduction:
    """The one block of a function: it reads each element once, lanes are neighboring results."""

    block: BlockInfo
    lanes: int

    @property
    def width(self) -> int:
        """The number of results that are neighbors in memory."""
        return self.block.spatial[-1].extent

    @property
    def pieces(self) -> int:
        """The number of results that are not."""
        return math.prod(a.extent for a in self.block.spatial[:-1])


def find_columns(blocks: tuple[BlockInfo, ...], target: Target) -> ColumnReduction | None:
    """Return the only block if it is such a reduction, with enough work for this to matter."""
    if len(blocks) != 1:
        return None
    (block,) = blocks
    lanes = lanes_of(block, target)
    if block.opaque or not block.reduce or not block.spatial or update_of(block.block) is None:
        return None
    axes = [a.var for a in (*block.spatial, *block.reduce) if a.extent > 1]
    once = all(x.stride(v) not in (0, None) for x in block.inputs for v in axes)
    ready = len(block.inputs) == 1 and once and side_by_side(block, lanes)
    if not ready or work_of(block) < HEAVY:
        return None
    k = ColumnReduction(block, lanes)
    wide = _widest(k, target.threads)
    return k if wide >= LEAST or wide * lanes >= k.width else None


def _vectors(k: ColumnReduction) -> tuple[int, ...]:
    return tuple(n for n in (1, 2, 4, 8, VECTORS) if n == 1 or n * k.lanes <= k.width)


def _widest(k: ColumnReduction, threads: int) -> int:
    """Return the most vectors that leave every thread two pieces."""
    results = k.pieces * k.width // k.lanes
    return max((n for n in _vectors(k) if results >= 2 * n * threads), default=1)


def apply_columns(k: ColumnReduction, sch: Schedule, c: Choices) -> None:
    """Keep some vectors of results in registers over the whole reduction."""
    name = k.block.name
    loops = sch.get_loops(name)
    spatial, own = loops[: len(k.block.spatial)], loops[len(k.block.spatial) :]
    wide, lane = sch.split(spatial[-1], [None, k.lanes * int(c["vectors"])])
    sch.reorder(*spatial[:-1], wide, *own, lane)
    tile = sch.cache_write(name, 0, "register")
    outer = [*spatial[:-1], wide]
    sch.reverse_compute_at(tile, wide)
    init = sch.decompose_reduction(name, own[0])
    for block in (name, init, tile):
        sch.vectorize(sch.get_loops(block)[-1])
    if c["parallel"]:
        sch.parallel(outer[0] if len(outer) == 1 else sch.fuse(*outer))


def columns_cost(k: ColumnReduction, c: Choices, target: Target) -> float:
    """Estimate the seconds: longer where a step reads less than a page, or threads have nothing."""
    span = k.lanes * int(c["vectors"])
    pieces = k.pieces * -(-k.width // span)
    threads = min(target.threads, pieces) if c["parallel"] else 1
    rounds = -(-pieces // threads) * threads / pieces
    return pass_seconds([k.block], threads, target) * rounds * (1.0 + 1.0 / int(c["vectors"]))


@CPU.row(9)
def match_columns(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a single reduction of columns."""
    k = find_columns(work.blocks, target)
    return None if k is None else columns_sketch(k, target)


def columns_sketch(k: ColumnReduction, target: Target) -> Sketch:
    """Return the space of a reduction of columns: vectors in registers, threads."""
    shared = sharing_pays((k.block,), target)
    return Sketch(
        name="columns@1",
        kind="reduction",
        decisions={"vectors": _vectors(k), "parallel": (1, 0) if target.threads > 1 else (0,)},
        default={
            "vectors": _widest(k, target.threads if shared else 1),
            "parallel": int(shared),
        },
        apply=lambda sch, c: apply_columns(k, sch, c),
        valid=lambda c: True,
        cost=lambda c: columns_cost(k, c, target),
    )
