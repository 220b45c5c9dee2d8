"""Element-wise and data-moving blocks: one pass over memory, 16 bytes a thread where they allow."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.target import Target
from ...schedule import Schedule
from ..analyze import Access, BlockInfo
from ..pointwise import trailing
from ..space import Choices, Sketch, cheapest
from .machine import Launch, flops_of, launch_seconds, traffic
from .threads import bind_flat, fused, powers

WIDEST = 16  # bytes of one load
MOST_LANES = 16


@dataclass(frozen=True, slots=True)
class Flat:
    """An element-wise block as one stretch of ``columns`` after another.

    The last ``joined`` axes step together in every access, so they are one; ``columns`` is its
    extent.
    """

    info: BlockInfo
    joined: int

    @property
    def columns(self) -> int:
        axes = self.info.spatial
        return math.prod(a.extent for a in axes[len(axes) - self.joined :])

    @property
    def vector(self) -> int:
        """The most elements that one thread can load or store at once."""
        size = min((a.buffer.dtype.bytes for a in self._contiguous()), default=WIDEST)
        lanes = min(max(1, WIDEST // size), MOST_LANES)
        while lanes > 1 and self.columns % lanes:
            lanes //= 2
        return lanes

    def _contiguous(self) -> list[Access]:
        last = self.info.spatial[-1].var if self.info.spatial else None
        every = (*self.info.inputs, *self.info.stores)
        return [a for a in every if last is not None and a.stride(last) == 1]


def flat(info: BlockInfo) -> Flat:
    """How an element-wise block steps through memory."""
    return Flat(info, trailing(info))


def apply_flat(k: Flat, sch: Schedule, c: Choices) -> None:
    """Blocks of threads over the vectors of the block's elements."""
    loops = list(sch.get_loops(k.info.name))
    if not loops:
        return
    lanes = int(c["vector"])
    outer, inner = loops[: len(loops) - k.joined], loops[len(loops) - k.joined :]
    last = fused(sch, inner)
    lane = None
    if last is not None and lanes > 1:
        last, lane = sch.split(last, [None, lanes])
    every = fused(sch, [*outer, *([last] if last is not None else [])])
    assert every is not None
    _, step, _ = bind_flat(sch, every, int(c["threads"]), int(c["steps"]))
    if lane is not None:
        sch.vectorize(lane)
    if step is not None:
        sch.unroll(step)


def flat_cost(k: Flat, c: Choices, target: Target) -> float:
    """Estimated seconds."""
    lanes, threads, steps = int(c["vector"]), int(c["threads"]), int(c["steps"])
    info = k.info
    units = -(-info.points // lanes)
    size = max((a.buffer.dtype.bytes for a in (*info.inputs, *info.stores)), default=4)
    loads = max(len(info.inputs), 1)
    shape = Launch(
        blocks=-(-units // (threads * steps)),
        threads=threads,
        in_flight=float(lanes * steps * size * loads),
        registers=24 + lanes * steps * (loads + 1) * max(1, size // 4),
    )
    along = info.spatial[-1].var if info.spatial else None
    requests = info.points * (len(info.inputs) + len(info.stores)) / lanes
    issue = requests / (target.gpu.multiprocessors * 32 * target.gpu.clock)
    moved = traffic(info, along, lanes)
    return launch_seconds(target, shape, moved, flops_of(info)) + issue


def flat_decisions(k: Flat) -> dict[str, tuple[int | str, ...]]:
    """The holes of an element-wise block."""
    return {
        "vector": tuple(reversed(powers(1, k.vector))),
        "threads": (128, 256, 512, 1024),
        "steps": (1, 2, 4, 8),
    }


def flat_sketch(info: BlockInfo, target: Target) -> Sketch:
    """The space of one element-wise block."""
    k = flat(info)
    decisions = flat_decisions(k)

    def cost(c: Choices) -> float:
        return flat_cost(k, c, target)

    return Sketch(
        name="gpu_pointwise@1",
        kind="elementwise",
        decisions=decisions,
        default=cheapest(decisions, flat_valid, cost, {}),
        apply=lambda sch, c: apply_flat(k, sch, c),
        valid=flat_valid,
        cost=cost,
    )


def flat_valid(c: Choices) -> bool:
    """Whether a thread's elements fit its registers."""
    return int(c["vector"]) * int(c["steps"]) <= 32
