"""Full reductions, to a few values: threads compute partial results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo
from ....space.lookup import below, extent
from ....space.space import Choices, Sketch
from ....stores import update_of
from ..nests.fallback import schedule_runs
from ..nests.lane_sums import accumulators, reduce_columns
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import HEAVY, lanes_of, pass_seconds, sharing_pays, work_of

SMALL = 64  # results up to which the threads share the reduction rather than the results


@dataclass(frozen=True, slots=True)
class CpuFullReduction:
    """A block ``anchor`` that reduces contiguous memory to at most ``SMALL`` results.

    ``collapse``: its reduction axes can be fused.
    """

    anchor: BlockInfo
    others: tuple[BlockInfo, ...]
    collapse: bool

    @property
    def depth(self) -> int:
        """The number of terms of a result."""
        return self.anchor.terms


def find_full_reduction(blocks: tuple[BlockInfo, ...], threads: int) -> CpuFullReduction | None:
    """Return a group's only heavy reduction, if it has few results; else None.

    Where it reads what other blocks store, rows of that stay in cache: the threads have a result
    each, unless there are fewer of these.
    """
    heavy = [b for b in blocks if b.reduce and not b.opaque and work_of(b) >= HEAVY]
    if len(heavy) != 1 or update_of(heavy[0].block) is None:
        return None
    anchor = heavy[0]
    results = math.prod(a.extent for a in anchor.spatial)
    strides = [a.stride(anchor.reduce[-1].var) for a in anchor.inputs]
    if results > SMALL or any(s not in (0, 1) for s in strides):
        return None
    made = {
        s.buffer for b in blocks if b.points >= anchor.points and b is not anchor for s in b.stores
    }
    if results >= threads and any(a.buffer in made for a in anchor.inputs):
        return None
    return CpuFullReduction(
        anchor, tuple(b for b in blocks if b is not anchor), _steps_together(anchor)
    )


def _steps_together(info: BlockInfo) -> bool:
    """True if every input steps through the reduction axes as through a single one."""
    for outer, inner in zip(info.reduce[:-1], info.reduce[1:], strict=True):
        for a in info.inputs:
            x, y = a.stride(outer.var), a.stride(inner.var)
            if x is None or y is None or x != y * inner.extent:
                return False
    return True


def apply_full_reduction(k: CpuFullReduction, sch: Schedule, c: Choices, target: Target) -> None:
    """Compute partial results of the reduction in parallel and in vectors."""
    name, lanes = k.anchor.name, lanes_of(k.anchor, target)
    schedule_runs(sch, k.others, target)
    loops = sch.get_loops(name)[len(k.anchor.spatial) :]
    if k.collapse and len(loops) > 1:
        loops = [sch.fuse(*loops)]
    width = lanes * int(c["accumulators"])
    pieces = int(c["pieces"])
    if pieces <= 1 or extent(sch, loops[0]) < 2 * pieces:
        reduce_columns(sch, name, loops, width)
        return
    piece, _ = sch.split(loops[0], [pieces, None])
    partial = sch.rfactor(piece, 0)
    order: list[LoopRef] = sch.get_loops(partial)
    order.remove(piece)
    sch.reorder(piece, *order)
    sch.parallel(piece)
    inside = below(sch, partial, piece)[len(k.anchor.spatial) :]
    reduce_columns(sch, partial.name, inside, width)


@CPU.row(20)
def match_full_reduction(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a heavy reduction to a few values."""
    k = find_full_reduction(work.blocks, target.threads) if work.contraction is None else None
    return None if k is None else full_reduction_sketch(k, target)


def full_reduction_sketch(k: CpuFullReduction, target: Target) -> Sketch:
    """Return the space of a full reduction: pieces for the threads, accumulators per piece."""
    most = max(1, k.depth // 4096)
    pieces = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= most)
    if target.threads == 1:
        pieces = (1,)

    def cost(c: Choices) -> float:
        n = int(c["pieces"])
        threads = min(target.threads, n)
        ilp = 1.0 + 0.5 / int(c["accumulators"])
        claims = target.core.seconds(n * target.core.claim) if threads > 1 else 0.0
        return ilp * pass_seconds((k.anchor,), threads, target) + claims

    wanted = 8 * target.threads if sharing_pays((k.anchor,), target) else 1
    return Sketch(
        name="total@1",
        kind="reduction",
        decisions={"pieces": pieces, "accumulators": (1, 2, 4, 8)},
        default={
            "pieces": max(n for n in pieces if n <= wanted),
            "accumulators": accumulators((k.anchor,)),
        },
        apply=lambda sch, c: apply_full_reduction(k, sch, c, target),
        valid=lambda c: True,
        cost=cost,
    )
