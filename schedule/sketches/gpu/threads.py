"""Loops on the threads and blocks of a launch."""

from __future__ import annotations

from ...cursor import LoopRef
from ...language.schedule import Schedule

X, Y, Z = "threadIdx.x", "threadIdx.y", "threadIdx.z"
BLOCKS = "blockIdx.x"
ROW_OF_BLOCKS = "blockIdx.y"


def bind_flat(
    sch: Schedule, loop: LoopRef, threads: int, steps: int = 1
) -> tuple[LoopRef, LoopRef | None, LoopRef]:
    """``for i``  ->  blocks of ``threads``, each of which takes ``steps`` elements.

    Neighbouring threads take neighbouring elements. Gives the loops over blocks, over steps (None
    where there is one), and over threads; the steps stand innermost.
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
    """One loop for several that follow one another; None for no loop at all."""
    if not loops:
        return None
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def powers(least: int, most: int) -> tuple[int, ...]:
    """The powers of two from ``least`` (one of them) to ``most``."""
    found = []
    while least <= most:
        found.append(least)
        least *= 2
    return tuple(found)


def power_up(n: int) -> int:
    """The least power of two that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()
