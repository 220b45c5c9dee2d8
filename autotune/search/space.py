"""The points of a task's space: valid combinations of named decisions, over all its sketches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import NamedTuple

import numpy as np

from ...ir.arrays import Array
from ...schedule.space.space import Batch, Choice, Sketch
from ..log.records import Json, canonical

ENUMERABLE = 1 << 15  # combinations up to which a sketch is listed instead of sampled
PRICED = 1 << 21  # combinations up to which a sketch that prices many at once is priced completely
NEARBY = 0.7  # share of the mutations that go one step along a decision's choices
ATTEMPTS = 40  # draws per wanted point before a sampled sketch counts as exhausted


class Point(NamedTuple):
    """A sketch by index, and the index of the choice for each of its decisions."""

    sketch: int
    at: tuple[int, ...]


class Space:
    """The union of a task's sketches; validity and analytic cost are computed once per point."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self.sketches = tuple(sketches)
        self._names = tuple(tuple(s.decisions) for s in self.sketches)
        self._valid: dict[Point, bool] = {}
        self._cost: dict[Point, float] = {}
        self._all: tuple[Point, ...] | None = None
        self._dropped: set[int] = set()
        self._strides = tuple(_strides(s) for s in self.sketches)
        self._tables: dict[int, Array | None] = {}

    def choices(self, point: Point) -> dict[str, Choice]:
        """Return the decisions of a point."""
        sketch = self.sketches[point.sketch]
        pairs = zip(self._names[point.sketch], point.at, strict=True)
        return {name: sketch.decisions[name][i] for name, i in pairs}

    def find(self, sketch: str, decisions: Mapping[str, Json]) -> Point | None:
        """Return the point of a logged trial; None if it is not in this space."""
        for number, s in enumerate(self.sketches):
            if s.name != sketch or set(decisions) != set(s.decisions):
                continue
            wanted = [canonical(decisions[n]) for n in s.decisions]
            domains = [[canonical(c) for c in d] for d in s.decisions.values()]
            if all(w in d for w, d in zip(wanted, domains, strict=True)):
                at = tuple(d.index(w) for w, d in zip(wanted, domains, strict=True))
                return Point(number, at)
        return None

    def defaults(self) -> tuple[Point, ...]:
        """Return the default of each sketch, if valid."""
        found = (self.find(s.name, dict(s.default)) for s in self.sketches)
        return tuple(p for p in found if p is not None and self.valid(p))

    def valid(self, point: Point) -> bool:
        """True if a point is worth lowering: its decisions are valid and its estimate is finite."""
        known = self._valid.get(point)
        if known is None:
            known = self._valid[point] = self._check(point)
        return known

    def _check(self, point: Point) -> bool:
        if point.sketch in self._dropped:
            return False
        if self._table(point.sketch) is not None:
            return math.isfinite(self.cost(point))
        valid = self.sketches[point.sketch].valid(self.choices(point))
        return bool(valid) and math.isfinite(self.cost(point))

    def drop(self, sketch: int) -> None:
        """Remove a sketch that does not fit the task: its points become invalid."""
        self._dropped.add(sketch)
        self._valid.clear()
        self._all = None

    def cost(self, point: Point) -> float:
        """Return the analytic estimate in seconds; good for ranking only."""
        table = self._table(point.sketch)
        if table is not None:
            steps = self._strides[point.sketch]
            return float(table[sum(map(mul, point.at, steps))])
        known = self._cost.get(point)
        if known is None:
            known = float(self.sketches[point.sketch].cost(self.choices(point)))
            self._cost[point] = known
        return known

    def _table(self, number: int) -> Array | None:
        """Return the cost of every combination of a sketch; None if they are priced one by one."""
        if number not in self._tables:
            s = self.sketches[number]
            small = s.many is not None and s.size() <= PRICED
            self._tables[number] = s.many.priced(s.decisions) if s.many and small else None
        return self._tables[number]

    def cheapest(self, count: int) -> list[Point]:
        """Return up to ``count`` valid points of least estimated cost of each sketch.

        Only of sketches that are priced completely.
        """
        found: list[Point] = []
        for number, s in enumerate(self.sketches):
            table = None if number in self._dropped else self._table(number)
            if table is None:
                continue
            some = np.argpartition(table, min(count, len(table) - 1))[:count]
            some = some[np.lexsort((some, table[some]))]
            shape = tuple(len(d) for d in s.decisions.values())
            where = np.stack(np.unravel_index(some[np.isfinite(table[some])], shape), axis=-1)
            found += [Point(number, tuple(at)) for at in where.tolist()]
        return found

    def priced(self, sketches: Sequence[Sketch]) -> Space:
        """Return this space with the costs of other sketches of the same names.

        So estimates of a calibrated machine rank the points, while validity and the defaults,
        which builds have too, stay those of the processor's family.
        """
        others = {s.name: s for s in sketches}
        return Space([_priced(s, others.get(s.name, s)) for s in self.sketches])

    def size(self) -> int:
        """Return the number of combinations, valid or not."""
        return sum(s.size() for s in self.sketches)

    def everything(self) -> tuple[Point, ...] | None:
        """Return every valid point in a fixed order; None if there are too many."""
        if self._all is None and self.size() <= ENUMERABLE:
            self._all = tuple(p for p in self._combinations() if self._check(p))
        return self._all

    def _combinations(self) -> Iterator[Point]:
        for number, s in enumerate(self.sketches):
            for at in itertools.product(*(range(len(d)) for d in s.decisions.values())):
                yield Point(number, at)

    def sample(self, rng: np.random.Generator, count: int) -> list[Point]:
        """Draw up to ``count`` different valid points, more of them from larger sketches."""
        listed = self.everything()
        if listed is not None:
            return [listed[i] for i in rng.permutation(len(listed))[:count]]
        found: dict[Point, None] = {}
        weights = np.sqrt([s.size() for s in self.sketches])
        for _ in range(ATTEMPTS):
            numbers = rng.choice(len(self.sketches), count, p=weights / weights.sum())
            for number in range(len(self.sketches)):
                sizes = [len(d) for d in self.sketches[number].decisions.values()]
                many = int(np.count_nonzero(numbers == number))
                drawn = rng.integers(0, sizes, (many, len(sizes))).tolist()
                points = (Point(number, tuple(at)) for at in drawn)
                found |= dict.fromkeys(p for p in points if self.valid(p))
            if len(found) >= count:
                break
        chosen = list(found)
        return [chosen[i] for i in rng.permutation(len(chosen))[:count]]

    def neighbors(self, point: Point, reach: int = 1) -> list[Point]:
        """Return the valid points that differ in one decision, by at most ``reach`` steps."""
        found = []
        sizes = [len(d) for d in self.sketches[point.sketch].decisions.values()]
        for axis, size in enumerate(sizes):
            for step in range(-reach, reach + 1):
                i = point.at[axis] + step
                if step and 0 <= i < size:
                    near = Point(point.sketch, (*point.at[:axis], i, *point.at[axis + 1 :]))
                    if self.valid(near):
                        found.append(near)
        return found

    def mutate(self, rng: np.random.Generator, point: Point) -> Point | None:
        """Change one decision, usually to a neighboring choice; None if the result is invalid."""
        sizes = [len(d) for d in self.sketches[point.sketch].decisions.values()]
        open_axes = [a for a, n in enumerate(sizes) if n > 1]
        if not open_axes:
            return None
        axis = open_axes[int(rng.integers(len(open_axes)))]
        if rng.random() < NEARBY:
            i = point.at[axis] + (1 if rng.random() < 0.5 else -1)
        else:
            i = int(rng.integers(sizes[axis]))
        if i == point.at[axis] or not 0 <= i < sizes[axis]:
            return None
        new = Point(point.sketch, (*point.at[:axis], i, *point.at[axis + 1 :]))
        return new if self.valid(new) else None

    def cross(self, rng: np.random.Generator, a: Point, b: Point) -> Point | None:
        """Cross two points of one sketch, taking each decision from either; None if invalid."""
        if a.sketch != b.sketch or a == b:
            return None
        take = rng.random(len(a.at)) < 0.5
        at = tuple(x if t else y for x, y, t in zip(a.at, b.at, take, strict=True))
        new = Point(a.sketch, at)
        return new if new not in (a, b) and self.valid(new) else None


def _strides(s: Sketch) -> tuple[int, ...]:
    """Return how far apart neighbors of each decision are in the order of combinations."""
    sizes = [len(d) for d in s.decisions.values()]
    return tuple(math.prod(sizes[n + 1 :]) for n in range(len(sizes)))


def _priced(s: Sketch, other: Sketch) -> Sketch:
    """Return a sketch with another's costs."""
    many = other.many and s.many and Batch(s.many.valid, other.many.cost)
    return replace(s, cost=other.cost, many=many)


def distance(a: Point, b: Point) -> int:
    """Return the number of decisions that differ; points of different sketches are far apart."""
    if a.sketch != b.sketch:
        return 1 + len(a.at)
    return sum(x != y for x, y in zip(a.at, b.at, strict=True))
