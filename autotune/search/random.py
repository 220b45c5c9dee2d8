"""Random search: the baseline that every other strategy has to beat."""

from __future__ import annotations

import numpy as np

from .space import Point, Space
from .strategy import Proposal, Scorer


class RandomSearch:
    """Valid points drawn evenly, without repetition."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self._rng = np.random.default_rng(seed)
        self._seen: set[Point] = set()

    def propose(self, count: int, score: Scorer | None) -> list[Proposal]:
        """New random points; see ``Strategy``."""
        drawn = self.space.sample(self._rng, count + len(self._seen))
        fresh = [p for p in drawn if p not in self._seen][:count]
        return [Proposal(p, "random") for p in fresh]

    def release(self, point: Point) -> None:
        """Nothing: only what was observed is not drawn again."""

    def observe(self, point: Point, cost: float) -> None:
        """Remember the point, so that it does not come again."""
        self._seen.add(point)
