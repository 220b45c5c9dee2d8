"""Which sketches a function has for a GPU, and the schedule it gets when nobody tuned it."""

from __future__ import annotations

import logging

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...errors import ScheduleError
from ...schedule import Schedule
from ..analyze import BlockInfo, blocks_of
from ..space import Sketch
from .alone import schedule_alone

_log = logging.getLogger("nestwright.schedule")


def generate(func: Func, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a function in default order, the preferred one first."""
    return ()


def default_schedule(func: Func, target: Target) -> Schedule:
    """The rule-based schedule: the first sketch that applies, with its default choices.

    Never fails: what no sketch can schedule gets one launch per block, and what no rule fits there
    one thread in all.
    """
    for sketch in generate(func, target):
        schedule = Schedule(func)
        try:
            sketch.apply(schedule, sketch.default)
            return schedule
        except ScheduleError as refusal:
            _log.debug("sketch %s does not fit %s: %s", sketch.name, func.name, refusal)
    schedule = Schedule(func)
    for info in blocks_of(func):
        schedule = attempt(schedule, info, target)
    return schedule


def attempt(schedule: Schedule, info: BlockInfo, target: Target) -> Schedule:
    """One block scheduled by rule, or the schedule as it was where a primitive refused."""
    trial = schedule.copy()
    try:
        schedule_alone(trial, info, target)
    except ScheduleError as refusal:
        _log.debug("left to one thread: %s", refusal)
        return schedule
    return trial
