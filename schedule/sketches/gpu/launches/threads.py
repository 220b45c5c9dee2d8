"""Loops bound to the threads and blocks of a launch, as every sketch for a GPU does it."""

from __future__ import annotations

from .....ir.loop.notes import CLUSTER
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import describe
from ....space.space import Choices

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


def bind_runs(sch: Schedule, loop: LoopRef, threads: int) -> None:
    """Give each thread a run of neighboring iterations, in the order of the threads."""
    several = sch.extent(loop) > threads
    sch.bind(sch.split(loop, [threads, None] if several else [threads])[0], X)


def bind_flat(
    sch: Schedule, loop: LoopRef, threads: int, steps: int = 1
) -> tuple[LoopRef, LoopRef | None, LoopRef]:
    """Divide ``for i`` among blocks of ``threads``, with ``steps`` elements per thread.

    Neighboring threads take neighboring elements. Returns the loops over blocks, over steps (None
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


def load_vectors(sch: Schedule, name: str) -> None:
    """Load at once, into registers, what a reduction reads in its innermost loop.

    For reductions that take their terms one by one; the loop is unrolled.
    """
    *_, at, lane = sch.get_loops(name)
    sch.unroll(lane)
    info = describe(sch.block(name))
    near = {a.buffer for a in info.inputs if a.step(info.reduce[-1].var) == 1}
    for n, read in enumerate(sch.block(name).reads):
        if read.buffer in near and sch.extent(lane) > 1:
            copy = sch.cache_read(name, n, "register")
            sch.compute_at(copy, at)
            sch.vectorize(sch.get_loops(copy)[-1])


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
