"""Which sketches a function has, and the schedule it gets when nobody tuned it."""

from __future__ import annotations

import logging
from pathlib import Path

from ...ir.loop.nodes import Func
from ...ir.target import Target
from ..errors import ScheduleError
from ..language.schedule import Schedule
from ..space.analyze import BlockInfo, blocks_of
from ..space.registry import import_sketches
from ..space.space import Sketch, first_fit
from .cpu.fallback import schedule_fallback
from .cpu.matching import CPU, FuncInfo
from .gpu import generate as gpu
from .sampled import rule_sketches

_log = logging.getLogger("nestwright.schedule")
import_sketches(f"{__package__}.cpu", [str(Path(__file__).parent / "cpu")])


def generate(func: Func, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a function in default order, the preferred one first.

    Deterministic: the same function and target give the same sketches, decisions and defaults.
    Rules that a user registered come last.
    """
    own = gpu.generate(func, target) if target.is_gpu else CPU.matching(FuncInfo(func), target)
    return (*own, *rule_sketches(func, target, own[0].cost(own[0].default)))


def default_schedule(func: Func, target: Target) -> Schedule:
    """The rule-based schedule: the first sketch that applies, with its default choices.

    Never fails: what no sketch can schedule is left in its default order, block by block.
    """
    if target.is_gpu:
        return gpu.default_schedule(func, target)
    schedule = first_fit(generate(func, target), func)
    if schedule is not None:
        return schedule
    schedule = Schedule(func)
    for info in blocks_of(func):
        schedule = _attempt(schedule, info, target)
    return schedule


def _attempt(schedule: Schedule, info: BlockInfo, target: Target) -> Schedule:
    """One block scheduled by rule, or the schedule as it was where a primitive refused."""
    trial = schedule.copy()
    try:
        schedule_fallback(trial, info, target)
    except ScheduleError as refusal:
        _log.debug("left as it was: %s", refusal)
        return schedule
    return trial
