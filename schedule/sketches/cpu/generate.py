"""The sketches of a function for a CPU, and its default schedule without tuning."""

from __future__ import annotations

import logging
from pathlib import Path

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...errors import ScheduleError
from ...language.schedule import Schedule
from ...space.analyze import BlockInfo, blocks_of
from ...space.registry import Family, import_sketches
from ...space.space import Sketch, first_fit
from ...usable import require_tiles
from .nests.fallback import schedule_fallback
from .nests.matching import CPU, FuncInfo

_log = logging.getLogger("nestwright.schedule")
import_sketches(__package__, [str(Path(__file__).parent)])


def generate(func: Func, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of a function in default order, the preferred one first."""
    return CPU.matching(FuncInfo(func), target)


def default_schedule(func: Func, target: Target) -> Schedule:
    """Return the rule-based schedule: the first sketch that applies, with its default choices.

    Never fails: if no sketch applies, each block gets the fallback schedule or stays as it is.
    """
    schedule = first_fit(CPU.each(FuncInfo(func), target), func)
    if schedule is not None:
        return schedule
    schedule = Schedule(func)
    for info in blocks_of(func):
        schedule = _attempt(schedule, info, target)
    return schedule


def _attempt(schedule: Schedule, info: BlockInfo, target: Target) -> Schedule:
    """Apply the fallback schedule to one block; return it unchanged if a primitive refuses."""
    trial = schedule.copy()
    try:
        schedule_fallback(trial, info, target)
    except ScheduleError as refusal:
        _log.debug("left as it was: %s", refusal)
        return schedule
    return trial


FAMILY = Family(generate, default_schedule, require_tiles)
