"""Element-wise and data-movement blocks: one pass over memory, up to 16 bytes per access."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.nodes import Var
from .....ir.loop.notes import RESIDENT
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo
from ....space.space import Choices, Sketch, cheapest
from ...cpu.nests.pointwise import trailing
from ..launches.clusters import CLUSTERS, Cluster, merged, place
from ..launches.machine import (
    LaunchShape,
    access_bytes,
    flops_of,
    issue_seconds,
    launch_seconds,
    vector_width,
)
from ..launches.threads import bind_flat, fused, powers

ENTRY = 3  # accesses that take as long as a thread's own instructions: its indices, its end


@dataclass(frozen=True, slots=True)
class Flat:
    """Element-wise blocks over the same elements, in contiguous runs of ``columns`` elements.

    The last ``joined`` axes step together in every access, so they are fused; ``columns`` is the
    extent of the fused axis.
    """

    cluster: Cluster
    joined: int

    @property
    def points(self) -> int:
        """The number of elements."""
        return self.cluster.blocks[0].points

    @property
    def columns(self) -> int:
        """The extent of the fused axis."""
        axes = self.cluster.blocks[0].spatial
        return math.prod(a.extent for a in axes[len(axes) - self.joined :])

    @property
    def accesses(self) -> tuple[tuple[BlockInfo, AccessPattern], ...]:
        """The accesses to memory, one for each buffer and index pattern."""
        passed = self.cluster.passed
        found: dict[object, tuple[BlockInfo, AccessPattern]] = {}
        for b in self.cluster.blocks:
            for a in (*b.inputs, *b.stores):
                if a.buffer not in passed or a in b.stores:
                    found.setdefault((a.buffer, tuple(map(a.step, _axes(b)))), (b, a))
        return tuple(found.values())

    @property
    def vector(self) -> int:
        """The most elements that one thread can load or store at once."""
        near = [a for b, a in self.accesses if b.spatial and a.step(b.spatial[-1].var) == 1]
        return vector_width((a.buffer.dtype.bytes for a in near), self.columns)


def _axes(info: BlockInfo) -> list[Var]:
    return [a.var for a in info.spatial]


def find_flat(k: Cluster) -> Flat | None:
    """Return the cluster as element-wise blocks over fused axes, if all are element-wise."""
    if not k.elementwise:
        return None
    joined = min(map(trailing, k.blocks))
    return Flat(k, 1 if k.passed else joined)  # a vector of a passed value is a box along one axis


def apply_flat(k: Flat, sch: Schedule, c: Choices) -> None:
    """Bind the vectors of the blocks' elements to threads."""
    lanes: list[LoopRef] = []
    nests = [_vector_loops(k, sch, b, int(c["vector"]), lanes) for b in k.cluster.blocks]
    every = fused(sch, merged(sch, nests))
    assert every is not None
    place(k.cluster, sch)
    block, step, _ = bind_flat(sch, every, int(c["threads"]), int(c["steps"]))
    if c["at_once"]:
        sch.annotate(block, RESIDENT.key, int(c["at_once"]))
    for lane in lanes:
        sch.vectorize(lane)
    if step is not None:
        sch.unroll(step)


def _vector_loops(
    k: Flat, sch: Schedule, info: BlockInfo, vector: int, lanes: list[LoopRef]
) -> list[LoopRef]:
    """Return the loops of a block over its vectors, with loops of extent 1 moved inside."""
    loops = list(sch.get_loops(info.name))
    outer, inner = loops[: len(loops) - k.joined], loops[len(loops) - k.joined :]
    last = fused(sch, inner)
    assert last is not None
    if vector > 1:
        last, lane = sch.split(last, [None, vector])
        lanes.append(lane)
    row = [*outer, last]
    wide = [x for x in row if sch.extent(x) > 1] or row[-1:]
    sch.reorder(*wide, *(x for x in row if x not in wide))
    return wide


def flat_cost(k: Flat, c: Choices, target: Target) -> float:
    """Estimate the seconds of the launch."""
    lanes, threads, steps = int(c["vector"]), int(c["threads"]), int(c["steps"])
    units = -(-k.points // lanes)
    size = max((a.buffer.dtype.bytes for _, a in k.accesses), default=4)
    stored = {s.buffer for b in k.cluster.blocks for s in b.stores}
    loads = max(sum(a.buffer not in stored for _, a in k.accesses), 1)
    blocks = -(-units // (threads * steps))
    shape = LaunchShape(
        blocks=blocks,
        threads=threads,
        in_flight=lanes * size * loads * units / max(blocks * threads, 1),
        registers=24 + lanes * steps * (loads + 1) * max(1, size // 4),
    )
    requests = k.points * len(k.accesses) / lanes
    used = min(1.0, max(blocks, 1) / target.gpu.multiprocessors)
    issue = issue_seconds(target, requests + ENTRY * blocks * threads) / used
    moved = sum(access_bytes(b, a, b.spatial[-1].var, lanes) for b, a in k.accesses)
    return launch_seconds(target, shape, moved, sum(map(flops_of, k.cluster.blocks))) + issue


def flat_decisions(k: Flat, target: Target) -> dict[str, tuple[int | str, ...]]:
    """Return the decisions of an element-wise sketch."""
    many = k.points // k.vector > target.gpu.multiprocessors * 4096
    return {
        "vector": tuple(reversed(powers(1, k.vector))),
        "threads": (128, 256, 512, 1024),
        "steps": (1, 2, 4, 8),
        "at_once": (0, 2, 4, 8) if many else (0,),  # blocks a multiprocessor; 0: as many as needed
    }


@CLUSTERS.row(10)
def match_flat(k: Cluster, target: Target) -> Sketch | None:
    """Match element-wise clusters."""
    flat = find_flat(k)
    return None if flat is None else flat_sketch(flat, target)


def flat_sketch(k: Flat, target: Target) -> Sketch:
    """Return the space of element-wise blocks over the same elements."""
    decisions = flat_decisions(k, target)

    def cost(c: Choices) -> float:
        return flat_cost(k, c, target)

    return Sketch(
        name="gpu_pointwise@1",
        kind="elementwise",
        decisions=decisions,
        default=cheapest(decisions, flat_valid, cost, {"at_once": 0}),
        apply=lambda sch, c: apply_flat(k, sch, c),
        valid=flat_valid,
        cost=cost,
    )


def flat_valid(c: Choices) -> bool:
    """True if a thread's elements fit its registers."""
    return int(c["vector"]) * int(c["steps"]) <= 32
