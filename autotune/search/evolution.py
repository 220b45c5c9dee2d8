"""The native strategy: an analytic shortlist, evolution under a cost model, local descent.

Measuring starts with the points that the analytic estimate ranks highest, spread out so that its
errors are independent. Then each round mixes the model's favorites, neighbors of the best
programs so far, and some random points. A space small enough to list is scored completely; a
larger one is searched by a population with mutation and crossover of named decisions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .space import Point, Space, distance
from .strategy import Proposal, Scorer

SHORTLIST = 8  # first measurements, chosen by the analytic estimate
POPULATION = 1024
GENERATIONS = 4
PARENTS = 128
CROSSED = 0.3  # share of the children that have two parents
TRIES = 4  # children that are made for each that is wanted; many are invalid or known
RANDOM_SHARE = 1 / 8
FASTEST = 3  # programs whose neighbors are tried
FEW = 4  # neighbors below which those two steps away are tried too
CLOSER = 3  # times as many points are looked at closely as are chosen
BARREN = 3  # failures of a sketch without a success after which it is skipped
LOCAL_FROM = 12  # observations from which neighbors of the best are tried


class Evolution:
    """The search of one task; deterministic for a seed and a sequence of observations."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self._rng = np.random.default_rng(seed)
        self._cost: dict[Point, float] = {}
        self._pending: set[Point] = set()
        self._closer: Scorer | None = None

    def observe(self, point: Point, cost: float) -> None:
        """Record a measurement; see ``Strategy``."""
        self._cost[point] = cost
        self._pending.discard(point)

    def release(self, point: Point) -> None:
        """Return a proposed point that is not measured; see ``Strategy``."""
        self._pending.discard(point)

    def propose(
        self, count: int, score: Scorer | None, closer: Scorer | None = None
    ) -> list[Proposal]:
        """Propose the next points; see ``Strategy``."""
        self._closer = closer
        left = SHORTLIST - len(self._cost)
        chosen = self._prior(min(count, left), score) if left > 0 else []
        if len(chosen) < count:
            chosen += self._guided(count - len(chosen), score, {p.point for p in chosen})
        self._pending.update(p.point for p in chosen)
        return chosen

    def _fresh(self, points: Iterable[Point], taken: set[Point]) -> list[Point]:
        known = self._cost.keys() | self._pending | taken
        barren = self._barren()
        return [p for p in dict.fromkeys(points) if p.sketch not in barren and p not in known]

    def _barren(self) -> set[int]:
        """Return the sketches that failed a few times and never worked for this task."""
        ran = {p.sketch for p, c in self._cost.items() if math.isfinite(c)}
        failed = Counter(p.sketch for p, c in self._cost.items() if not math.isfinite(c))
        return {s for s, times in failed.items() if times >= BARREN and s not in ran}

    def _prior(self, count: int, score: Scorer | None) -> list[Proposal]:
        """Return the most promising points before this task has measurements, spread out.

        The score combines the estimate and a model of other tasks.
        """
        merit = score if score is not None else self._cheapness
        cheapest = self.space.cheapest(PARENTS)
        fresh = self._fresh([*self.space.defaults(), *cheapest, *self._pool(merit)], set())
        ordered = [fresh[i] for i in np.argsort(-merit(fresh), kind="stable")] if fresh else []
        ordered = self._looked_at(ordered, count)
        taken = [p for p in (*self._cost, *self._pending)]
        chosen: list[Point] = []
        for apart in (2, 1):
            for p in ordered[: max(64, len(ordered) // 8)]:
                if len(chosen) == count:
                    break
                if p not in chosen and all(distance(p, q) >= apart for q in (*taken, *chosen)):
                    chosen.append(p)
        return [Proposal(p, "prior") for p in chosen]

    def _cheapness(self, points: Sequence[Point]) -> np.ndarray[Any, Any]:
        return np.array([-self.space.cost(p) for p in points])

    def _pool(self, merit: Scorer) -> Sequence[Point]:
        """Return the points to choose from: all, or a population evolved for merit."""
        listed = self.space.everything()
        return listed if listed is not None else self._evolved(merit)

    def _guided(self, count: int, score: Scorer | None, taken: set[Point]) -> list[Proposal]:
        chosen: list[Proposal] = []
        draws = self._rng.random(count)
        randoms = int(np.count_nonzero(draws < RANDOM_SHARE))
        locals_ = (count - randoms) // 2 if len(self._cost) >= LOCAL_FROM else 0
        merit = score if score is not None else self._cheapness
        for p in self._best_of(self._around(taken), merit, locals_):
            chosen.append(Proposal(p, "local"))
            taken.add(p)
        models = count - randoms - len(chosen)
        for p in self._best_of(self._fresh(self._pool(merit), taken), merit, models):
            chosen.append(Proposal(p, "model"))
            taken.add(p)
        drawn = self.space.sample(self._rng, count + len(self._cost) + len(taken))
        for p in self._fresh(drawn, taken)[: count - len(chosen)]:
            chosen.append(Proposal(p, "random"))
        return chosen

    def _looked_at(self, ordered: list[Point], count: int) -> list[Point]:
        """Return points with the first ones in closer order, of which ``count`` are chosen.

        The first ones of each sketch are looked at too, since scores of two sketches compare badly.
        The worse ones go last. Later rounds have a model of this task and do not look.
        """
        if self._closer is None or not ordered or len(self._cost) >= LOCAL_FROM:
            return ordered
        head = ordered[: CLOSER * count]
        for sketch in sorted({p.sketch for p in ordered}):
            head += [p for p in ordered if p.sketch == sketch][: -(-count // 4)]
        head = list(dict.fromkeys(head))
        ranked = [head[i] for i in np.argsort(-self._closer(head), kind="stable")]
        looked_at = set(head)
        rest = (p for p in ordered if p not in looked_at)
        return [*ranked[: 2 * count], *rest, *ranked[2 * count :]]

    def _leaders(self, count: int) -> list[Point]:
        ran = [p for p, c in self._cost.items() if math.isfinite(c)]
        return sorted(ran, key=lambda p: (self._cost[p], p))[:count]

    def _around(self, taken: set[Point]) -> list[Point]:
        """Return untried neighbors of the fastest programs, nearest first."""
        leaders = self._leaders(FASTEST)
        near = [n for p in leaders for n in self.space.neighbors(p)]
        if len(self._fresh(near, taken)) < FEW:
            near += [n for p in leaders for n in self.space.neighbors(p, reach=2)]
        return self._fresh(near, taken)

    def _best_of(self, points: list[Point], merit: Scorer, count: int) -> list[Point]:
        """Return the most promising points, differing in at least two decisions if possible."""
        if not points or count <= 0:
            return []
        scores = merit(points)
        order = [points[i] for i in np.argsort(-scores, kind="stable")]
        order = self._looked_at(order, count)
        chosen: list[Point] = []
        for p in order[: 16 * count]:
            if len(chosen) < count and all(distance(p, q) > 1 for q in chosen):
                chosen.append(p)
        rest = (p for p in order if p not in chosen)
        return chosen + [p for p, _ in zip(rest, range(count - len(chosen)), strict=False)]

    def _evolved(self, merit: Scorer) -> list[Point]:
        """Return a population after a few generations of selection, mutation and crossover."""
        rng = self._rng
        start = [*self._leaders(PARENTS), *self.space.defaults(), *self.space.cheapest(PARENTS)]
        people = list(dict.fromkeys([*start, *self.space.sample(rng, POPULATION)]))
        for _ in range(GENERATIONS):
            order = np.argsort(-merit(people), kind="stable")
            parents = [people[i] for i in order[:PARENTS]]
            children: dict[Point, None] = dict.fromkeys(parents)
            for _ in range(TRIES * POPULATION):
                if len(children) >= POPULATION:
                    break
                # Squaring favors the front of the ranking.
                i, j = (len(parents) * rng.random(2) ** 2).astype(int)
                crossed = rng.random() < CROSSED
                child = (
                    self.space.cross(rng, parents[i], parents[j])
                    if crossed
                    else self.space.mutate(rng, parents[i])
                )
                if child is not None:
                    children.setdefault(child)
            people = list(children)
        return people
