"""Sketches from schedules with holes, written by hand or by a rule that a user registered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from ...ir.errors import ArgumentError
from ...ir.loop.nodes import Func
from ...ir.target import Target
from ..errors import ScheduleError
from ..holes import Choices, defaults, merged, require_holes
from ..language.schedule import Schedule
from ..space.space import Sketch
from ..steps import Plain

Rule: TypeAlias = Callable[[Schedule, Target], object]
_log = logging.getLogger("nestwright.schedule")
RULES: dict[str, Rule] = {}
WRITTEN = "written"
"""The sketch of a schedule written by hand."""
PREFIX = "rule:"
"""What a sketch of a rule has before the rule's name."""


def schedule_rule(rule: Rule) -> Rule:
    """Register a rule, which the tuner then tries for every task beside the built-in sketches.

    ``rule(sch, target)`` schedules ``sch``; the tuner decides the results of ``sch.sample_choice``
    and ``sch.sample_tile``. If it does not fit, a primitive refuses, or it raises ``ScheduleError``
    itself. Logs name it by the function's name; another rule of that name replaces it. Building
    from a log does not need the rule, since a log has traces. ``ArgumentError`` for what cannot be
    called, or has no name.
    """
    name = getattr(rule, "__name__", None)
    if not callable(rule) or not isinstance(name, str):
        why = "it has no __name__" if callable(rule) else "it cannot be called"
        hint = "a function of a schedule and a target: @nestwright.schedule_rule"
        raise ArgumentError(f"a schedule rule of type {type(rule).__name__}", why, hint=hint)
    RULES[name] = rule
    return rule


def rule_sketches(func: Func, target: Target, seconds: float) -> tuple[Sketch, ...]:
    """Return the sketches of the rules that fit a function, sorted by name.

    Their cost is unknown, so each gets ``seconds``.
    """
    made = (
        sketch_of(f"{PREFIX}{name}", _for(rule, target), func, seconds)
        for name, rule in sorted(RULES.items())
    )
    return tuple(sketch for sketch in made if sketch is not None)


def refusal(name: str, func: Func, target: Target) -> str:
    """Return in a line why a rule does not fit a function; "" if it does."""
    try:
        RULES[name](Schedule(func), target)
    except ScheduleError as error:
        return str(error).partition("\n")[0]
    return ""


def _for(rule: Rule, target: Target) -> Callable[[Schedule], object]:
    return lambda sch: rule(sch, target)


def written_sketch(schedule: Schedule) -> Sketch | None:
    """Return the sketch of a schedule written by hand; None if it has no holes.

    Raises ``ScheduleError`` if one of its decisions does not name a hole.
    """
    schedule.require_decisions()
    trace = schedule.trace
    return sketch_of(WRITTEN, trace.onto, schedule.origin) if schedule.holes else None


def sketch_of(
    name: str, make: Callable[[Schedule], object], func: Func, seconds: float = 1.0
) -> Sketch | None:
    """Return ``make`` as a sketch of ``func``, its holes as decisions; None if it refuses.

    The holes are those of a run with the defaults: a hole that only other decisions reach keeps its
    default.
    """
    first = Schedule(func)
    try:
        make(first)
    except ScheduleError:
        return None
    holes = tuple(first.holes)

    def apply(sch: Schedule, choices: Choices) -> None:
        made = Schedule(sch.func, choices)
        make(made)
        require_holes(choices, (*holes, *made.holes))
        sch.become(made)

    def trace(choices: Choices) -> list[Plain] | None:
        made = Schedule(func)
        try:
            apply(made, choices)
        except ScheduleError as refusal:
            _log.debug("sketch %s refuses %s: %s", name, choices, refusal)
            return None
        return made.trace.to_json()

    return Sketch(
        name=name,
        kind="sampled",
        decisions=merged(holes),
        default=defaults(holes),
        apply=apply,
        valid=lambda choices: all(h.allows(choices) for h in holes),
        cost=lambda choices: seconds,
        trace=trace,
    )
