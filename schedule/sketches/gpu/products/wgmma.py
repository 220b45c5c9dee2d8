"""How products of warp groups are scheduled: four warps multiply tiles from shared memory.

As on a single warp's cores, a block of threads copies tiles of the operands into shared memory,
several steps ahead. A product is under way while the copies of a later step begin; it is waited for
one step later. The sums go through shared memory, so that the epilogue writes whole rows; or each
thread computes the results of its own sums, and these go through shared memory, from where one
thread starts bulk copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .....ir.loop.notes import BULK_COPIES, PIPELINE
from .....ir.loop.warpgroups import WARPGROUP
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.lookup import below
from ....space.space import Choices
from .matmul import Matmul
from .mma import Core, Side, core_of, place_sums, sides_of, swizzle_of
from .results import COLUMNS, ROWS, divide_store, place_results
from .tiles import (
    BlockDim,
    MatmulBlocks,
    copy_tile,
    make_product,
    pack,
    run_epilogue,
    stage_tile,
)

PANEL = 64  # two-byte columns of a turned tile that lie together


def find_group_core(k: Matmul, target: Target) -> Core | None:
    """Return a product of warp groups, of any width; None if the target has none.

    f32 is left out: hardware cuts it to tf32, and `-tf32=1` promises that it is rounded.
    """
    return core_of(k, target, lambda row: row.group, f32_too=False)


def apply_wgmma(k: Matmul, core: Core, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule a product on the cores of warp groups."""
    p = GroupProduct.begin(k, core, sch, c, target, WARPGROUP)
    if c["results"]:
        group, at = place_results(k, sch, p.parts, c, p.threads)
    else:
        store, at = place_sums(k, sch, p.parts, c, p.threads, "warpgroup")
        group = divide_store(sch, store, at, c, COLUMNS)
        sch.tensorize(group.box, "store_accumulators")
    step, init = p.steps(group.at, ROWS)
    _zero(sch, below(sch, init, group.at))
    p.finish(at, step, wide_product(core, int(c["tile_n"]) // int(c["groups_n"])))


def wide_product(core: Core, columns: int) -> str:
    """Return the name of a core's instruction with this number of columns."""
    return re.sub(r"n\d+k", f"n{columns}k", core.name, count=1)


def _zero(sch: Schedule, loops: list[LoopRef]) -> None:
    """Make the sums of a group's tile 0, box by box."""
    m, row, n = loops
    n, column = sch.split(n, [None, COLUMNS])
    sch.reorder(m, n, row, column)
    sch.tensorize(row, "zero_accumulators")
    for loop in (m, n):
        sch.unroll(loop)


@dataclass(frozen=True, slots=True)
class GroupProduct:
    """A product in progress whose operands are multiplied where they are, in shared memory.

    ``threads`` are those of a block.
    """

    k: Matmul
    core: Core
    sch: Schedule
    c: Choices
    target: Target
    threads: BlockDim
    sides: tuple[Side, Side]
    parts: MatmulBlocks

    @staticmethod
    def begin(
        k: Matmul, core: Core, sch: Schedule, c: Choices, target: Target, group: int
    ) -> GroupProduct:
        """Make the blocks of a product, for groups of so many threads."""
        sides = sides_of(k, core, c)
        parts = make_product(k, sch, c, (sides[0].layout, sides[1].layout))
        threads = BlockDim(int(c["groups_m"]), int(c["groups_n"]), group)
        return GroupProduct(k, core, sch, c, target, threads, sides, parts)

    def steps(self, at: LoopRef, rows: int) -> tuple[LoopRef, BlockRef]:
        """Compute a tile in ``at``, by instructions of so many rows.

        Returns the loop over steps along the depth, and the block that makes the sums 0.
        """
        sch, product, depth = self.sch, self.parts.product, self.core.depth
        sch.compute_at(product, at)
        m, n, terms = below(sch, product, at)
        m, row = sch.split(m, [None, rows])
        step, part, term = sch.split(terms, [None, int(self.c["tile_k"]) // depth, depth])
        sch.reorder(step, part, m, row, n, term)
        init = sch.decompose_reduction(product, step)
        for loop in (part, m):
            sch.unroll(loop)
        return step, init

    def finish(self, at: LoopRef, step: LoopRef, instruction: str) -> None:
        """Copy the operands of each ``step``, multiply them, and compute the epilogue in ``at``."""
        sch, c, parts = self.sch, self.c, self.parts
        for block, side in zip((parts.left, parts.right), self.sides, strict=True):
            self._copy(block, side, step)
        if int(c["stages"]) > 1:
            sch.annotate(step, PIPELINE.key, int(c["stages"]))
        if c["bulk"]:
            sch.annotate(step, BULK_COPIES.key, 1)
        sch.tensorize(below(sch, parts.product, step)[2], instruction)
        if c["copiers"]:
            sch.specialize(step, int(c["copiers"]))
        if parts.total is None and not c["results"]:
            run_epilogue(self.k, sch, parts.last, at, self.threads)

    def _copy(self, block: str, side: Side, step: LoopRef) -> None:
        """Copy an operand's tile of each step into swizzled shared memory, some steps ahead."""
        sch, c = self.sch, self.c
        tile = stage_tile(sch, self.parts.product, block, side.packed)
        sch.compute_at(tile, step)
        sch.swizzle(tile, 0, swizzle_of(side.layout, side.x.dtype, c))
        copy_tile(sch, tile, step, side.x, side.layout, self.threads, int(c["stages"]) > 1)
        if side.packed and not side.x.frozen:
            pack(sch, block, self.target)
