"""Stages of one launch, such as those of a sort: what te says belongs together.

Every block of threads does some rows, stage by stage; in each its threads share the columns. What
stages pass on to each other lowering puts into shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.loop.nodes import For, Stmt
from ....ir.loop.visit import children
from ....ir.target import Target
from ...cursor import extent_of
from ...language.schedule import Schedule
from ...space.lookup import below
from ...space.space import Choices, Sketch, cheapest
from .launches.clusters import Cluster, merged
from .launches.machine import (
    BARRIER,
    LATENCY,
    LAUNCH,
    LaunchShape,
    distinct,
    memory_seconds,
    overlapped,
    resident,
)
from .launches.threads import BLOCKS, X, Y, fused, powers
from .reductions.rows import is_box

STEP = 30e-9  # seconds of a thread's step through shared memory
EACH = 16.0  # instructions of a step
ISSUED = 4  # instructions that a multiprocessor issues in a cycle
REGISTERS = 40  # of a thread


@dataclass(frozen=True, slots=True)
class Staged:
    """A cluster of stages."""

    cluster: Cluster

    @property
    def widths(self) -> tuple[int, ...]:
        """The columns of each stage."""
        return tuple(map(self.cluster.columns, self.cluster.blocks))

    @property
    def least(self) -> int:
        """The columns of stages whose threads have something of their own, each for one column."""
        pairs = zip(self.cluster.blocks, self.widths, strict=True)
        return max((w for b, w in pairs if len(b.inputs) < len(b.loads)), default=1)

    @property
    def shared(self) -> int:
        """The bytes that the stages of one row pass on to each other."""
        k, count = self.cluster, self.cluster.count
        inside = {b for b in k.passed - k.outside if len(b.shape) > count}
        return sum(math.prod(b.shape[count:]) * b.dtype.bytes for b in inside)


def stages_sketch(k: Cluster, target: Target) -> Sketch:
    """Return the space of a cluster of stages: the threads of a row, and the rows of a block."""
    s = Staged(k)
    most = [n for n in (*s.widths, *powers(1, max(s.widths))) if s.least <= n <= 1024]
    decisions: dict[str, tuple[int | str, ...]] = {
        "threads": tuple(sorted({*most})),
        "rows": powers(1, 256),
    }

    def valid(c: Choices) -> bool:
        threads, rows = int(c["threads"]), int(c["rows"])
        fits = s.least <= threads <= 1024 // rows and s.shared * rows <= target.gpu.shared_per_block
        return fits and is_box(k, rows)

    def cost(c: Choices) -> float:
        return stages_cost(s, c, target)

    return Sketch(
        name="gpu_stages@1",
        kind="stages",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: apply_stages(s, sch, c),
        valid=valid,
        cost=cost,
    )


def apply_stages(s: Staged, sch: Schedule, c: Choices) -> None:
    """Bind groups of rows to blocks of threads, and the columns of each stage to threadIdx.x."""
    k, threads = s.cluster, int(c["threads"])
    rows = merged(sch, [sch.get_loops(b.name)[: k.count] for b in k.blocks])
    row = rows[0] if len(rows) == 1 else sch.fuse(*rows)
    block, row = sch.split(row, [None, int(c["rows"])])
    sch.bind(block, BLOCKS)
    sch.bind(row, Y)
    for info in k.blocks:
        last = fused(sch, below(sch, info.name, row))
        if last is None:
            continue
        if sch.extent(last) > threads:
            step, last = sch.split(last, [None, threads])
            sch.reorder(last, step)
        sch.bind(last, X)


def stages_cost(s: Staged, c: Choices, target: Target) -> float:
    """Estimate the seconds: waves of blocks whose threads take turns, and memory traffic."""
    k, threads, rows, gpu = s.cluster, int(c["threads"]), int(c["rows"]), target.gpu
    shape = LaunchShape(k.rows // rows, threads * rows, 4.0, s.shared * rows, REGISTERS)
    here = resident(target, shape)
    if not here:
        return math.inf
    waves = math.ceil(shape.blocks / (here * gpu.multiprocessors))
    pairs = zip(k.blocks, s.widths, strict=True)
    steps = sum(depth(b.block.body) * math.ceil(width / threads) for b, width in pairs)
    waits = waves * (LATENCY + BARRIER * len(k.blocks) + STEP * steps)
    warps = shape.blocks * math.ceil(threads * rows / gpu.warp)
    used = min(shape.blocks, gpu.multiprocessors)
    issued = warps * steps * EACH / (max(used, 1) * ISSUED * gpu.clock)
    outer = ((b, a) for b in k.blocks for a in (*b.inputs, *b.stores) if a.buffer not in k.passed)
    moved = sum(distinct(b, a) * a.buffer.dtype.bytes for b, a in outer)
    return LAUNCH + overlapped(waits, issued, memory_seconds(target, moved))


def depth(s: Stmt) -> float:
    """Return how many times the innermost statements of a body run."""
    below = sum(map(depth, children(s))) or 1.0
    return below * (extent_of(s) or 1) if isinstance(s, For) else below
