"""One thread per result, or per few neighbors, which reduces its terms in order.

Depthwise and grouped convolutions, pooling, small products, sums down many columns: neighboring
threads read adjacent elements, and caches serve repeated reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.loop.nodes import BlockAxis, Var
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo
from ....space.space import Choices, Sketch, cheapest
from ..launches.clusters import CLUSTERS, Cluster, place, row_loops, stage_loops, stage_reductions
from ..launches.machine import (
    LAUNCH,
    LaunchShape,
    distinct,
    flops_of,
    launch_seconds,
    overlapped,
    vector_width,
    waste,
)
from ..launches.threads import BLOCKS, X, powers


@dataclass(frozen=True, slots=True)
class Direct:
    """A cluster of which a thread computes whole rows; neighbors are along ``last``."""

    cluster: Cluster

    @property
    def last(self) -> BlockAxis | None:
        """The last row axis of the last block; None if there is no row axis."""
        axes = self.cluster.blocks[-1].spatial[: self.cluster.count]
        return axes[-1] if axes else None

    def axis(self, info: BlockInfo) -> Var | None:
        """Return the axis of a block along which neighboring threads step."""
        axes = info.spatial[: self.cluster.count]
        return axes[-1].var if axes else None

    @property
    def vector(self) -> int:
        """The most rows that one thread can process with whole vectors."""
        if self.last is None or not self.cluster.flat:
            return 1
        sizes = [
            a.buffer.dtype.bytes
            for b in self.cluster.blocks
            for a in (*b.inputs, *b.stores)
            if self.steps(b, a) == 1
        ]
        return vector_width(sizes, self.last.extent)

    def steps(self, info: BlockInfo, access: AccessPattern) -> int | None:
        """Return the stride of an access between neighboring threads; None if not linear."""
        along = self.axis(info)
        return 0 if along is None else access.step(along)


@CLUSTERS.row(60)
def match_direct(k: Cluster, target: Target) -> Sketch | None:
    """Match every cluster that is not element-wise."""
    return None if k.elementwise else direct_sketch(k, target)


def direct_sketch(k: Cluster, target: Target) -> Sketch:
    """Return the space of a cluster with a thread for each row."""
    d = Direct(k)
    decisions: dict[str, tuple[int | str, ...]] = {
        "vector": powers(1, d.vector),
        "threads": (32, 64, 128, 256, 512),
        "unroll": (1, 2, 4, 8),
    }

    def valid(c: Choices) -> bool:
        return int(c["unroll"]) == 1 or any(b.reduce for b in k.blocks)

    def cost(c: Choices) -> float:
        return direct_cost(d, c, target)

    return Sketch(
        name="gpu_direct@1",
        kind="direct",
        decisions=decisions,
        default=cheapest(decisions, valid, cost, {}),
        apply=lambda sch, c: apply_direct(d, sch, c),
        valid=valid,
        cost=cost,
    )


def apply_direct(d: Direct, sch: Schedule, c: Choices) -> None:
    """Bind the rows to threads, with every block of the cluster inside."""
    k, lanes = stage_reductions(d.cluster, sch), int(c["vector"])
    block, thread = row_loops(k, sch, int(c["threads"]), lanes)
    place(k, sch)
    sch.bind(block, BLOCKS)
    sch.bind(thread, X)
    for info in k.blocks:
        own = stage_loops(k, sch, info, thread)
        reducing = own[len(own) - len(info.reduce) :] if info.reduce else []
        mine = [x for x in own if x not in reducing]
        wide = mine[-1] if lanes > 1 and mine else None
        if reducing:
            unroll_terms(sch, reducing, wide, int(c["unroll"]))
        if wide is not None:
            sch.vectorize(wide)


def unroll_terms(sch: Schedule, reducing: list[LoopRef], lane: LoopRef | None, times: int) -> None:
    """Unroll the innermost reduction loop by ``times``, with the lanes inside."""
    extent = sch.extent(reducing[-1])
    inner = []
    if times > 1 and extent > times:
        reducing[-1], step = sch.split(reducing[-1], [None, times])
        inner = [step]
    elif times > 1 and extent > 1:
        sch.unroll(reducing[-1])
    if lane is not None:
        sch.reorder(*reducing, *inner, lane)
    for step in inner:
        sch.unroll(step)


def direct_cost(d: Direct, c: Choices, target: Target) -> float:
    """Estimate the seconds: cache requests, wasted sectors, memory, arithmetic."""
    k, lanes, threads = d.cluster, int(c["vector"]), int(c["threads"])
    gpu, units = target.gpu, max(1, -(-k.rows // int(c["vector"])))
    moved = requests = cached = flops = 0.0
    chain = 0.0  # dependent loads of one thread
    passed = k.passed
    for info in k.blocks:
        flops += flops_of(info)
        depth = info.terms * k.columns(info)
        chain += depth / int(c["unroll"])
        for a in (*info.inputs, *info.stores):
            if a.buffer in passed:
                continue
            size = a.buffer.dtype.bytes
            lost = waste(a, d.axis(info), lanes)
            moved += distinct(info, a) * size * min(lost, 2.0)
            apart = 1 if d.steps(info, a) in (0, 1) else lanes
            requests += units * depth * apart
            cached += units * depth * lanes * size * lost
    blocks = -(-units // threads)
    shape = LaunchShape(blocks, threads, 8.0 * lanes, registers=32 + 8 * lanes)
    used = max(1, min(gpu.multiprocessors, blocks))
    busy = min(1.0, units / used / 512) ** 0.5  # threads that hide the latency of caches
    caches = (requests / 32 + cached / 64) / (used * gpu.clock * busy)
    return overlapped(launch_seconds(target, shape, moved, flops), caches, LAUNCH + chain * 40e-9)
