"""The list of steps. A step adds instructions to a builder, or nothing where it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..builder import Builder

Rule: TypeAlias = Callable[[Builder], object]


@dataclass(frozen=True, slots=True)
class Step:
    """``weight`` says how often it is drawn, ``exact`` and ``smooth`` in which sort of program.

    ``inner``: it may stand in a loop's body or a branch, too, which draw no parameters.
    """

    name: str
    rule: Rule
    weight: int
    exact: bool
    smooth: bool
    inner: bool


STEPS: dict[str, Step] = {}


def step(
    weight: int = 2, exact: bool = True, smooth: bool = True, inner: bool = True
) -> Callable[[Rule], Rule]:
    """Register a step under its function's name."""

    def register(rule: Rule) -> Rule:
        name = rule.__name__
        STEPS[name] = Step(name, rule, weight, exact, smooth, inner)
        return rule

    return register


def choices(exact: bool, inner: bool) -> list[Step]:
    """Return every step that fits, as often as its weight says."""
    fits = [
        s for s in STEPS.values() if (s.exact if exact else s.smooth) and (s.inner or not inner)
    ]
    return [s for s in fits for _ in range(s.weight)]
