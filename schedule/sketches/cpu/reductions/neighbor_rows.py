"""Row-wise groups whose rows are taken several at a time, as neighbors on one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo, describe
from ..nests.matching import FuncInfo
from ..nests.pointwise import lanes_of
from .rows import find_rows


@dataclass(frozen=True, slots=True)
class NeighborRows:
    """Stages that share ``count`` leading axes, the rows, neighbors on the axis at ``across``.

    What ``others`` compute is complete before. ``lanes`` are those of the widest type.
    """

    stages: tuple[BlockInfo, ...]
    others: tuple[BlockInfo, ...]
    count: int
    across: int
    lanes: int

    @property
    def neighbors(self) -> int:
        """The number of rows that are neighbors."""
        return self.stages[0].spatial[self.across].extent


Rows = TypeVar("Rows", bound=NeighborRows)


def find_neighbor_rows(kind: type[Rows], work: FuncInfo, target: Target) -> Rows | None:
    """Return the blocks of a group whose parts are all connected; None of other functions."""
    found = find_rows(work.blocks)
    if found is None or len(found.parts) != 1:
        return None
    (stages,) = found.parts
    across = _last_wide(stages[0], found.count)
    if across is None:
        return None
    lanes = min(lanes_of(b, target) for b in stages)
    return kind(stages, found.others, found.count, across, lanes)


def _last_wide(info: BlockInfo, count: int) -> int | None:
    """Return the last of the leading axes that has more than one element; None if none has."""
    wide = [n for n, a in enumerate(info.spatial[:count]) if a.extent > 1]
    return wide[-1] if wide else None


def copy_of_result(sch: Schedule, info: BlockInfo, n: int, at: LoopRef) -> BlockRef:
    """Return a block inside of ``at`` that stores what a block inside computes."""
    copy = sch.cache_write(info.name, n)
    if at not in sch.get_loops(copy):
        sch.reverse_compute_at(copy, at)
    return copy


def keep_rows(sch: Schedule, info: BlockInfo, across: int) -> None:
    """Keep what a stage passes on in registers, neighbors on an axis in a vector."""
    row = info.spatial[across].var
    for n, access in enumerate(describe(sch.block(info.name)).stores):
        own = [d for d, form in enumerate(access.coefficients) if form is None or row in form]
        if access.buffer in sch.func.params or len(own) != 1:
            continue
        rest = [d for d in range(len(access.coefficients)) if d not in own]
        if rest + own != sorted(rest + own):
            sch.transform_layout(info.name, n, rest + own)
        sch.set_scope(info.name, n, "register")
