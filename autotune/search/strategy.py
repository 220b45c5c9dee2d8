"""The interface of search strategies, which observe measurements and propose the next ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .space import Point

Scorer: TypeAlias = Callable[[Sequence[Point]], np.ndarray[Any, Any]]


class Proposal(NamedTuple):
    """A point to measure, and its source: prior, model, local, random or optuna."""

    point: Point
    source: str


class Strategy(Protocol):
    """Searches the space of one task."""

    def propose(
        self, count: int, score: Scorer | None, closer: Scorer | None = None
    ) -> list[Proposal]:
        """Return up to ``count`` different valid points, none of them observed before.

        ``score`` predicts merit (more is faster), if there is a model. ``closer`` does so better,
        but takes milliseconds a point: it orders those that ``score`` ranks first. An empty list
        means that the space is exhausted.
        """

    def release(self, point: Point) -> None:
        """Return a proposed point that is not measured; it may be proposed again."""

    def observe(self, point: Point, cost: float) -> None:
        """Record a measured cost in seconds; infinite for a failure."""
