"""Holes of a schedule: named decisions with their domains, and values sampled from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .errors import ScheduleError, did_you_mean

Choice: TypeAlias = int | str
Choices: TypeAlias = Mapping[str, Choice]


@dataclass(frozen=True, slots=True)
class Hole:
    """The decisions that one step samples: their names, domains and defaults.

    The product of numeric values is at most ``limit``, if there is one.
    """

    names: tuple[str, ...]
    domains: tuple[tuple[Choice, ...], ...]
    default: tuple[Choice, ...]
    limit: int | None = None

    def allows(self, choices: Choices) -> bool:
        """True if the choices are valid for the hole."""
        values = [choices[n] for n in self.names]
        if any(v not in d for v, d in zip(values, self.domains, strict=True)):
            return False
        return self.limit is None or math.prod(map(int, values)) <= self.limit

    def filled(self, asked: str, decision: Sequence[Choice]) -> tuple[Choice, ...]:
        """Return the decision as a tuple; raise ``ScheduleError`` if the hole does not allow it."""
        if len(decision) != len(self.names):
            hint = f"such as {list(self.default)}"
            raise ScheduleError(asked, f"it takes {len(self.names)} decisions", hint=hint)
        if not self.allows(dict(zip(self.names, decision, strict=True))):
            rows = (f"{n}: {list(d)}" for n, d in zip(self.names, self.domains, strict=True))
            limit = "" if self.limit is None else f", with a product of at most {self.limit}"
            why = f"{', '.join(map(repr, decision))} is not one of its options"
            raise ScheduleError(asked, why, hint="; ".join(rows) + limit)
        return tuple(decision)


def merged(holes: Sequence[Hole]) -> dict[str, tuple[Choice, ...]]:
    """Return the domain of each decision."""
    return {n: d for h in holes for n, d in zip(h.names, h.domains, strict=True)}


def defaults(holes: Sequence[Hole]) -> dict[str, Choice]:
    """Return the default of each decision."""
    return {n: v for h in holes for n, v in zip(h.names, h.default, strict=True)}


def require_holes(decisions: Choices, holes: Sequence[Hole]) -> None:
    """Raise a ``ScheduleError`` if a decision names none of the holes."""
    known = defaults(holes)
    for name, value in decisions.items():
        if name not in known:
            there = f"the holes are {', '.join(known)}" if known else "it has no holes"
            hint = did_you_mean(name, known) or "leave the decision out, or sample under that name"
            raise ScheduleError(
                f"decide `{name}` = {value!r}",
                f"the schedule has no hole of that name; {there}",
                hint=hint,
            )


class SampledInt(int):
    """A sampled number; ``result`` is its name in the trace."""

    result: str


class SampledStr(str):
    """A sampled string; ``result`` is its name in the trace."""

    __slots__ = ("result",)
    result: str


def sampled(value: Choice, result: str) -> SampledInt | SampledStr:
    """Return the value tagged with its result; values computed from it are not tagged."""
    made = SampledInt(value) if isinstance(value, int) else SampledStr(value)
    made.result = result
    return made


def plain(value: object) -> object:
    """Return an argument with sampled values replaced by ordinary ones."""
    match value:
        case SampledInt():
            return int(value)
        case SampledStr():
            return str(value)
        case tuple():
            return tuple(map(plain, value))
        case _:
            return value
