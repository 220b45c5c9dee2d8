"""Register tiles: results that stay in registers, and the loops of a tile."""

from __future__ import annotations

from collections.abc import Sequence

from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo


def keep_result(sch: Schedule, block: str, consumer: BlockInfo | None) -> str:
    """Keep what a block computes in registers, and return the block that stores the result.

    That is the consumer, which reads it pointwise, or a copy if there is none.
    """
    if consumer is None:
        return sch.cache_write(block, 0, "register").name
    sch.set_scope(block, 0, "register")
    return consumer.name


def vectorize_tile(sch: Schedule, loops: Sequence[LoopRef]) -> None:
    """Make the last loop of a tile vectors, and unroll the others."""
    *unrolled, lane = loops
    sch.vectorize(lane)
    for loop in unrolled:
        sch.unroll(loop)


def vectorize_init(sch: Schedule, init: BlockRef | str, count: int) -> None:
    """Do the same with the ``count`` innermost loops of the block that starts a tile's sums."""
    vectorize_tile(sch, sch.get_loops(init)[-count:])
