"""A sketch: a parameterized schedule of one function, with named decisions and their domains."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...ir.arrays import Array
from ...ir.loop.nodes import Func
from ..errors import ScheduleError
from ..holes import Choice as Choice
from ..holes import Choices as Choices
from ..language.schedule import Schedule
from ..steps import Plain

_log = logging.getLogger("nestwright.schedule")


CHUNK = 1 << 16  # combinations that are priced at once: their columns fit in the caches

Columns: TypeAlias = Mapping[str, Array]
"""The values of every decision at many points: arrays of one shape, or of shape ()."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``valid`` and ``cost`` of a sketch for many points at once."""

    valid: Callable[[Columns], Array]
    cost: Callable[[Columns], Array]

    def valid_one(self, choices: Choices) -> bool:
        """Return ``valid`` of one point."""
        return bool(self.valid(columns_of(choices)))

    def cost_one(self, choices: Choices) -> float:
        """Return ``cost`` of one point, in seconds."""
        return float(self.cost(columns_of(choices)))

    def priced(self, decisions: Mapping[str, tuple[Choice, ...]]) -> Array:
        """Return the seconds of every combination, by index in the last decision first.

        Infinite where a combination is not valid. float32 of ``[combinations]``.
        """
        found = np.full(math.prod(map(len, decisions.values())), np.inf, np.float32)
        for at, columns in self.admitted(decisions):
            found[at] = self.cost(columns)
        return found

    def admitted(
        self, decisions: Mapping[str, tuple[Choice, ...]]
    ) -> Iterator[tuple[Array, Columns]]:
        """Yield the valid combinations in parts: numbers as in ``priced``, and the columns."""
        shape = tuple(len(d) for d in decisions.values())
        size = math.prod(shape)
        domains = [np.array(d) for d in decisions.values()]
        for first in range(0, size, CHUNK):
            rows = np.arange(first, min(first + CHUNK, size))
            at = np.unravel_index(rows, shape)
            columns = {n: d[i] for n, d, i in zip(decisions, domains, at, strict=True)}
            known = np.flatnonzero(np.broadcast_to(self.valid(columns), rows.shape))
            yield first + known, {n: x[known] for n, x in columns.items()}

    def cheapest(self, decisions: Mapping[str, tuple[Choice, ...]], fixed: Choices) -> Choices:
        """Return the valid combination of least cost; arguments and ties as for ``cheapest``."""
        domains = {n: (fixed[n],) if n in fixed else decisions[n] for n in decisions}
        grid = np.meshgrid(*(np.array(d) for d in domains.values()), indexing="ij")
        columns = {n: x.reshape(-1) for n, x in zip(domains, grid, strict=True)}
        known = np.flatnonzero(
            np.broadcast_to(self.valid(columns), columns[next(iter(domains))].shape)
        )
        if not known.size:
            return {n: d[0] for n, d in domains.items()}
        costs = self.cost({n: x[known] for n, x in columns.items()})
        at = np.unravel_index(known[int(np.argmin(costs))], grid[0].shape)
        return {n: d[int(i)] for (n, d), i in zip(domains.items(), at, strict=True)}


def columns_of(choices: Choices) -> Columns:
    """Return one point as the columns of many."""
    return {name: np.asarray(value) for name, value in choices.items()}


@dataclass(frozen=True, slots=True)
class Sketch:
    """A schedule with holes.

    ``decisions`` gives every hole its values, ordered so that neighbors are similar. ``valid`` is
    a cheap check that a combination is worth lowering. ``cost`` is an analytic estimate in seconds,
    good for ranking only. ``apply`` runs the primitives and may raise ``ScheduleError``.
    ``default`` is a reasonable choice without tuning. ``name`` contains a version that changes with
    the meaning of a decision, so that old log lines are not misread. ``trace`` returns the steps of
    ``apply``, for a sketch that other processes cannot make; None if a primitive refuses.
    ``share`` is the least part of the function's arithmetic that one of its schedules does.
    ``many`` is ``valid`` and ``cost`` for many points at once, if the sketch has that.
    """

    name: str
    kind: str
    decisions: Mapping[str, tuple[Choice, ...]]
    default: Choices
    apply: Callable[[Schedule, Choices], None]
    valid: Callable[[Choices], bool]
    cost: Callable[[Choices], float]
    trace: Callable[[Choices], list[Plain] | None] | None = None
    share: float = 1.0
    many: Batch | None = None

    def apply_default(self, sch: Schedule) -> None:
        """Schedule the function with the default choices."""
        self.apply(sch, self.default)

    def size(self) -> int:
        """Return the number of combinations, valid or not."""
        n = 1
        for values in self.decisions.values():
            n *= len(values)
        return n

    def points(self) -> Iterator[Choices]:
        """Yield every valid combination."""
        names, domains = tuple(self.decisions), tuple(self.decisions.values())
        if self.many is not None:
            shape = tuple(map(len, domains))
            for rows, _ in self.many.admitted(self.decisions):
                for at in zip(*np.unravel_index(rows, shape), strict=True):
                    yield {n: d[i] for n, d, i in zip(names, domains, at, strict=True)}
            return
        for values in itertools.product(*domains):
            choices = dict(zip(names, values, strict=True))
            if self.valid(choices):
                yield choices


def first_fit(sketches: Iterable[Sketch], func: Func) -> Schedule | None:
    """Schedule the function by the first sketch that applies, with default choices; else None."""
    for sketch in sketches:
        schedule = Schedule(func)
        try:
            sketch.apply_default(schedule)
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
    """Return the valid combination of least analytic cost, with the decisions in ``fixed`` held.

    Ties go to the earlier value of the earlier decision, so the result is deterministic.
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
