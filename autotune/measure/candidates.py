"""Making a candidate's schedule: replay a trace, apply a sketch, or take the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ...ir.errors import NestwrightError
from ...ir.loop.nodes import Func
from ...ir.target import Target
from ...schedule.errors import ScheduleError
from ...schedule.language.schedule import Schedule
from ...schedule.language.trace import Trace
from ...schedule.sketches.generate import default_schedule
from ...schedule.space.space import Choices, Sketch
from ...schedule.usable import require_usable
from ..log.records import DEFAULT_SKETCH
from .protocol import Candidate, Outcome


class Rejected(Exception):
    """A candidate failed before timing; ``outcome`` says why."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


def make_schedule(
    func: Func, sketches: Mapping[str, Sketch], target: Target, c: Candidate
) -> Schedule:
    """Return the schedule of a candidate; raise ``Rejected`` if it cannot be made."""
    try:
        if c.trace is not None:
            schedule = Trace.from_json(c.trace).replay(func)
            require_usable(schedule.func, target)
            return schedule
        if c.sketch == DEFAULT_SKETCH:
            return default_schedule(func, target)
        sketch = sketches.get(c.sketch)
        if sketch is None:
            note = f"this version has no sketch {c.sketch}, or it refuses these decisions"
            raise Rejected(Outcome("invalid", note=note))
        schedule = Schedule(func)
        sketch.apply(schedule, cast(Choices, dict(c.decisions)))
        return schedule
    except ScheduleError as e:
        raise Rejected(Outcome("invalid", note=in_short(e))) from None


def in_short(e: Exception) -> str:
    """Return the first line of an error, with its type unless it is a ``NestwrightError``."""
    text = (str(e).splitlines() or [""])[0][:300]
    return text if isinstance(e, NestwrightError) else f"{type(e).__name__}: {text}"
