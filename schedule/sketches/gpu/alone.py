"""Blocks scheduled one by one, each in a launch of its own: what no other sketch understands."""

from __future__ import annotations

from ....ir.target import Target
from ...schedule import Schedule
from ..analyze import BlockInfo
from .pointwise import schedule_flat
from .threads import bind_flat, fused

THREADS = 128


def schedule_alone(sch: Schedule, info: BlockInfo, target: Target) -> None:
    """Schedule one block by rule, whatever stands around it."""
    if info.reduce or info.opaque:
        schedule_direct(sch, info)
    else:
        schedule_flat(sch, info, target)


def schedule_direct(sch: Schedule, info: BlockInfo) -> None:
    """One thread for each independent element, everything else in order."""
    loops = list(sch.get_loops(info.name))[: len(info.spatial)]
    one = fused(sch, loops)
    if one is not None:
        bind_flat(sch, one, THREADS)
