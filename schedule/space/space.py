"""A sketch: a way to schedule one function, with named holes and what may fill them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...ir.loop.nodes import Func
from ..errors import ScheduleError
from ..holes import Choice as Choice
from ..holes import Choices as Choices
from ..language.schedule import Schedule
from ..steps import Plain

_log = logging.getLogger("nestwright.schedule")


@dataclass(frozen=True, slots=True)
class Sketch:
    """A schedule with holes.

    ``decisions`` gives every hole its values, in an order in which neighbours are similar.
    ``valid`` says cheaply whether a combination is worth lowering. ``cost`` is an analytic estimate
    in seconds, good for ranking only. ``apply`` runs the primitives and may raise
    ``ScheduleError``. ``default`` is a choice that needs no tuning to be decent. ``name`` carries
    a version: it changes when the meaning of a decision does, so that old log lines are not
    misread. ``trace`` is what ``apply`` does, for a sketch that another process cannot make; None
    where that is refused.
    """

    name: str
    kind: str
    decisions: Mapping[str, tuple[Choice, ...]]
    default: Choices
    apply: Callable[[Schedule, Choices], None]
    valid: Callable[[Choices], bool]
    cost: Callable[[Choices], float]
    trace: Callable[[Choices], list[Plain] | None] | None = None

    def size(self) -> int:
        """Number of combinations, valid or not."""
        n = 1
        for values in self.decisions.values():
            n *= len(values)
        return n

    def points(self) -> Iterator[Choices]:
        """Every valid combination."""
        names = tuple(self.decisions)
        for values in itertools.product(*self.decisions.values()):
            choices = dict(zip(names, values, strict=True))
            if self.valid(choices):
                yield choices


def first_fit(sketches: Iterable[Sketch], func: Func) -> Schedule | None:
    """The function scheduled by the first sketch that applies, with its default choices."""
    for sketch in sketches:
        schedule = Schedule(func)
        try:
            sketch.apply(schedule, sketch.default)
            return schedule
        except ScheduleError as refusal:
            _log.debug("sketch %s does not fit %s: %s", sketch.name, func.name, refusal)
    return None


def cheapest(
    decisions: Mapping[str, tuple[Choice, ...]],
    valid: Callable[[Choices], bool],
    cost: Callable[[Choices], float],
    fixed: Choices,
) -> Choices:
    """The valid combination of least analytic cost, with the decisions in ``fixed`` held.

    Ties go to the earlier value of the earlier decision, so the answer is deterministic.
    """
    names = tuple(decisions)
    domains = [(fixed[n],) if n in fixed else decisions[n] for n in names]
    best: Choices | None = None
    least = float("inf")
    for values in itertools.product(*domains):
        choices = dict(zip(names, values, strict=True))
        if valid(choices) and (c := cost(choices)) < least:
            best, least = choices, c
    return best if best is not None else {n: d[0] for n, d in zip(names, domains, strict=True)}
