"""Per-block fallback schedule, with a launch for each block, for blocks that no sketch matches."""

from __future__ import annotations

from ....ir.target import Target
from ...language.schedule import Schedule
from ...space.analyze import BlockInfo
from ...space.space import Choices, Sketch
from ..cpu.nests.pointwise import trailing
from .elementwise.pointwise import Flat, flat_sketch
from .launches.clusters import Cluster
from .launches.machine import LAUNCH, flops_of, memory_seconds, work_seconds
from .launches.threads import bind_flat, fused


def schedule_fallback(sch: Schedule, info: BlockInfo, target: Target, threads: int = 128) -> None:
    """Schedule one block by rule, in a launch of its own; leave it if a primitive refuses."""
    if info.reduce or info.opaque or not info.spatial:
        sch.attempt(lambda s: one_thread_each(s, info, threads))
        return
    sketch = flat_sketch(Flat(Cluster((info,), len(info.spatial)), trailing(info)), target)
    sch.attempt(sketch.apply_default)


def one_thread_each(sch: Schedule, info: BlockInfo, threads: int) -> None:
    """Bind one thread to each spatial point of a block; reduction loops stay serial."""
    one = fused(sch, list(sch.get_loops(info.name))[: len(info.spatial)])
    if one is not None:
        bind_flat(sch, one, threads)


def fallback_sketch(blocks: tuple[BlockInfo, ...], target: Target) -> Sketch:
    """Return the space of per-block schedules: the size of blocks of threads."""

    def apply(sch: Schedule, c: Choices) -> None:
        for info in blocks:
            one_thread_each(sch, info, int(c["threads"]))

    def cost(c: Choices) -> float:
        work = sum(map(flops_of, blocks))
        moved = sum(4.0 * b.points * (len(b.inputs) + len(b.stores)) for b in blocks)
        busy = 0.5 if int(c["threads"]) < 128 else 1.0
        return (
            len(blocks) * LAUNCH
            + (work_seconds(target, work) + 4 * memory_seconds(target, moved)) / busy
        )

    return Sketch(
        name="gpu_alone@1",
        kind="alone",
        decisions={"threads": (32, 64, 128, 256)},
        default={"threads": 128},
        apply=apply,
        valid=lambda c: True,
        cost=cost,
    )
