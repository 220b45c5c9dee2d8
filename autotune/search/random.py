"""Random search: the baseline for other strategies."""

from __future__ import annotations

import numpy as np

from .space import Point, Space
from .strategy import Proposal, Scorer


class RandomSearch:
    """Draws valid points uniformly, without repetition."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self._rng = np.random.default_rng(seed)
        self._seen: set[Point] = set()

    def propose(
        self, count: int, score: Scorer | None, closer: Scorer | None = None
    ) -> list[Proposal]:
        """Propose new random points; see ``Strategy``."""
        drawn = self.space.sample(self._rng, count + len(self._seen))
        fresh = [p for p in drawn if p not in self._seen][:count]
        return [Proposal(p, "random") for p in fresh]

    def release(self, point: Point) -> None:
        """Do nothing: only observed points are never drawn again."""

    def observe(self, point: Point, cost: float) -> None:
        """Remember the point, so that it is not drawn again."""
        self._seen.add(point)
