"""Element-wise and data-moving blocks: one pass over memory, vectors along the last axis."""

from __future__ import annotations

from ...ir.target import Target
from ..schedule import Schedule
from .analyze import BlockInfo
from .space import Choices, Sketch

PARALLEL_WORK = 1 << 15  # FLOP or bytes below which waking a thread costs more than it saves


def collapsible(info: BlockInfo, outer: int, inner: int) -> bool:
    """Whether axes ``outer`` and ``inner`` (neighbours) can be one loop without divisions.

    True when every access steps through the pair as through one axis, or through neither.
    """
    a, b = info.spatial[outer], info.spatial[inner]
    for access in (*info.loads, *info.stores):
        x, y = access.stride(a.var), access.stride(b.var)
        if x is None or y is None or x != y * b.extent:
            return False
    return True


def trailing(info: BlockInfo) -> int:
    """How many of the last axes collapse into one."""
    n = len(info.spatial)
    count = min(n, 1)
    while count < n and collapsible(info, n - count - 1, n - count):
        count += 1
    return count


def lanes_of(info: BlockInfo, target: Target) -> int:
    """Lanes of the widest element type that the block touches."""
    widest = max((a.buffer.dtype for a in (*info.loads, *info.stores)), key=lambda d: d.bytes)
    return max(1, target.lanes(widest))


def work_of(info: BlockInfo) -> float:
    """Rough cost of a block: FLOP plus four times the elements that it moves."""
    return info.flops + 4.0 * info.points * (len(info.inputs) + len(info.stores))


def schedule_pointwise(
    sch: Schedule, info: BlockInfo, lanes: int, unroll: int, grain: float
) -> None:
    """Collapse what steps together, vectorize the last axis, run the rest in parallel."""
    loops = list(sch.get_loops(info.name))
    if not loops or info.opaque:
        return
    count = trailing(info)
    last = loops[-1] if count <= 1 else sch.fuse(*loops[len(loops) - count :])
    outer = loops[: len(loops) - max(count, 1)]
    extent = 1
    for axis in info.spatial[len(info.spatial) - max(count, 1) :]:
        extent *= axis.extent
    width = lanes * unroll
    if extent >= 2 * width and unroll > 1 and extent % width == 0:
        rest, inner = sch.split(last, [None, width])
        sch.vectorize(inner)
    elif extent >= lanes > 1:
        rest, inner = sch.split(last, [None, lanes])
        sch.vectorize(inner)
    else:
        rest = last
        if 1 < extent <= lanes:
            sch.vectorize(last)
            outer_only = outer
            _parallel(sch, info, outer_only, grain)
            return
    _parallel(sch, info, [*outer, rest], grain)


def _parallel(sch: Schedule, info: BlockInfo, loops: list, grain: float) -> None:  # type: ignore[type-arg]
    if not loops or work_of(info) < grain:
        return
    sch.parallel(loops[0] if len(loops) == 1 else sch.fuse(*loops))


def pointwise_sketch(info: BlockInfo, target: Target) -> Sketch:
    """The space of one element-wise block: vector width and parallel grain."""
    lanes = lanes_of(info, target)

    def apply(sch: Schedule, c: Choices) -> None:
        schedule_pointwise(sch, info, lanes, int(c["unroll"]), float(c["grain"]))

    def cost(c: Choices) -> float:
        threads = target.threads if work_of(info) >= float(c["grain"]) else 1
        fork = 2e-6 if threads > 1 else 0.0
        return work_of(info) / (1e10 * lanes / 16 * threads) + fork + 1e-9 * int(c["unroll"])

    return Sketch(
        name="pointwise@1",
        kind="elementwise",
        decisions={
            "unroll": (1, 2, 4, 8),
            "grain": (1 << 12, PARALLEL_WORK, 1 << 18, 1 << 21),
        },
        default={"unroll": 2, "grain": PARALLEL_WORK},
        apply=apply,
        valid=lambda c: True,
        cost=cost,
    )
