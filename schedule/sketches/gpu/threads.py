"""Helpers that bind loops to the threads and blocks of a launch."""

from __future__ import annotations

from ....ir.loop.notes import CLUSTER
from ....ir.target import Target
from ...cursor import LoopRef
from ...language.schedule import Schedule
from ...space.space import Choices

X, Y, Z = "threadIdx.x", "threadIdx.y", "threadIdx.z"
BLOCKS = "blockIdx.x"
ROW_OF_BLOCKS = "blockIdx.y"
LAST, APART, CLUSTERED = "last", "launch", "in a cluster"


def ways_to_join(target: Target) -> tuple[str, ...]:
    """Return what may combine the parts that blocks of threads make of a result: the last block
    to finish, another launch, or the first block of a cluster, from the others' shared memory."""
    return (LAST, APART, CLUSTERED) if target.gpu.clusters else (LAST, APART)


def clusters_fit(parts: int, c: Choices, target: Target) -> bool:
    """True if a cluster has so many blocks, where a choice asks for clusters."""
    return c["join"] != CLUSTERED or 1 < parts <= target.gpu.clusters


def bind_parts(sch: Schedule, loop: LoopRef, index: str, c: Choices) -> None:
    """Bind the loop over the parts of a result that are joined in one launch."""
    sch.bind(loop, index)
    if c["join"] == CLUSTERED:
        sch.annotate(loop, CLUSTER.key, 1)


def bind_flat(
    sch: Schedule, loop: LoopRef, threads: int, steps: int = 1
) -> tuple[LoopRef, LoopRef | None, LoopRef]:
    """Divide ``for i`` among blocks of ``threads``, with ``steps`` elements per thread.

    Neighbouring threads take neighbouring elements. Returns the loops over blocks, over steps (None
    if there is only one), and over threads; the steps are innermost.
    """
    extent = sch.extent(loop)
    threads = min(threads, max(extent, 1))
    if steps > 1 and extent > threads:
        block, step, thread = sch.split(loop, [None, steps, threads])
        sch.reorder(block, thread, step)
    else:
        block, thread = sch.split(loop, [None, threads])
        step = None
    sch.bind(block, BLOCKS)
    sch.bind(thread, X)
    return block, step, thread


def fused(sch: Schedule, loops: list[LoopRef]) -> LoopRef | None:
    """Fuse directly nested loops into one; None if there is no loop."""
    if not loops:
        return None
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def powers(least: int, most: int) -> tuple[int, ...]:
    """Return the powers of two from ``least``, itself one of them, to ``most``."""
    found = []
    while least <= most:
        found.append(least)
        least *= 2
    return tuple(found)


def power_up(n: int) -> int:
    """Return the least power of two that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()
