"""What a search strategy is: it is told what was measured and asked what to measure next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .space import Point

Scorer: TypeAlias = Callable[[Sequence[Point]], np.ndarray[Any, Any]]


class Proposal(NamedTuple):
    """A point to measure, and why: prior, model, local, random or optuna."""

    point: Point
    source: str


class Strategy(Protocol):
    """Searches the space of one task."""

    def propose(self, count: int, score: Scorer | None) -> list[Proposal]:
        """Up to ``count`` different valid points, none of them observed before.

        ``score`` predicts merit (more is faster), where a model exists. An empty list says that
        the space is exhausted.
        """

    def release(self, point: Point) -> None:
        """A proposed point is not measured after all; it may be proposed again."""

    def observe(self, point: Point, cost: float) -> None:
        """Take in a measured cost in seconds; infinite for a failure."""
