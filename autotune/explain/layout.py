"""The layered layout of an acyclic graph: layers, crossing reduction, coordinates, routes.

The four steps are those of Sugiyama, Tagawa and Toda ("Methods for visual understanding of
hierarchical system structures", 1981). All edges that leave one box share a chain of bends, so a
value that many boxes read is one line with branches.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from ...ir.errors import ArgumentError

Point: TypeAlias = tuple[float, float]

GAP = 28.0
"""Pixels between boxes of a layer."""
BEND_GAP = 12.0
"""Pixels between a bend and its neighbors."""
LAYER_GAP = 36.0
"""Least pixels between two layers; more where many edges run."""
PORT = 14.0
"""Pixels between edges that end at one box."""
BESIDE = 0.01
"""The weight of a bend in the places of boxes: long edges run beside what is in line."""
SWEEPS = 24
STALE = 5
"""Sweeps without an improvement after which crossing reduction ends."""
EXCHANGES = 2000
"""Vertices up to which neighbors in a layer are also exchanged one by one."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box to place: its name and its size in pixels."""

    name: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Place:
    """A placed box: its layer, counted from the top, and its upper left corner and size."""

    name: str
    layer: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """The way of an edge from the lower side of ``source`` to the upper side of ``target``.

    ``points`` are joined by straight lines where x is the same and by curves elsewhere, which lie
    between two layers and cross no box.
    """

    source: str
    target: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A placed graph. ``places`` and ``routes`` are in the order of the boxes and edges given.

    ``crossings`` counts crossings of edges between layers, ``crossings_before`` those of the order
    in which the boxes were given.
    """

    places: tuple[Place, ...]
    routes: tuple[Route, ...]
    width: float
    height: float
    crossings: int
    crossings_before: int


def layout(boxes: Sequence[Box], edges: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes in layers, each edge downwards. Pixels; (0, 0) is the upper left corner.

    Edges are pairs of names, and several between the same boxes share a route. ``ArgumentError``
    for an unknown or repeated name and for edges that make a cycle.
    """
    after = _successors(boxes, edges)
    layered = _Layered(after, _layers(after))
    before = layered.crossings()
    layered.reduce_crossings()
    xs = _Columns(layered, [b.width for b in boxes]).centers()
    return _placed(boxes, edges, layered, xs, before)


def _successors(boxes: Sequence[Box], edges: Sequence[tuple[str, str]]) -> list[list[int]]:
    numbers = {b.name: n for n, b in enumerate(boxes)}
    if len(numbers) < len(boxes):
        raise ArgumentError("two boxes of a graph have one name", "names tell them apart")
    after: list[dict[int, None]] = [{} for _ in boxes]
    for ends in edges:
        if missing := [e for e in ends if e not in numbers]:
            raise ArgumentError(f"an edge to {missing[0]!r}", "the graph has no such box")
        after[numbers[ends[0]]][numbers[ends[1]]] = None
    return [list(a) for a in after]


def _layers(after: Sequence[Sequence[int]]) -> list[int]:
    """Return the layer of each vertex: the longest path to it, inputs right above their first
    reader.
    """
    before: list[list[int]] = [[] for _ in after]
    for v, users in enumerate(after):
        for u in users:
            before[u].append(v)
    try:
        order = list(TopologicalSorter(dict(enumerate(before))).static_order())
    except CycleError as error:
        raise ArgumentError("a graph with a cycle", "it has no layers") from error
    layers = [0] * len(after)
    light = [False] * len(after)  # fed by nothing else than what can move with it
    for v in order:
        layers[v] = max((layers[p] + 1 for p in before[v]), default=0)
        light[v] = all(light[p] and len(after[p]) == 1 for p in before[v])
    for v in reversed(order):
        if light[v] and after[v]:
            layers[v] = min(layers[u] for u in after[v]) - 1
    first = min(layers, default=0)
    return [n - first for n in layers]


class _Layered:
    """A graph whose edges go from one layer to the next: vertices are boxes, then bends.

    ``rows`` are the vertices of each layer from left to right; ``above`` and ``below`` the
    neighbors of each vertex; ``chains`` the bends of each box, by layer.
    """

    def __init__(self, after: Sequence[Sequence[int]], layers: Sequence[int]) -> None:
        self.boxes = len(after)
        self.layer = list(layers)
        self.chains: list[dict[int, int]] = [{} for _ in after]
        self.below: list[list[int]] = [[] for _ in after]
        self.above: list[list[int]] = [[] for _ in after]
        self.rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
        for v in range(self.boxes):
            self.rows[layers[v]].append(v)
        for v, users in enumerate(after):
            self._link(v, users)

    def _link(self, v: int, users: Sequence[int]) -> None:
        at = v
        for n in range(self.layer[v] + 1, max((self.layer[u] for u in users), default=-1) + 1):
            for u in users:
                if self.layer[u] == n:
                    self._join(at, u)
            if any(self.layer[u] > n for u in users):
                bend = len(self.layer)
                self.layer.append(n)
                self.below.append([])
                self.above.append([])
                self.rows[n].append(bend)
                self.chains[v][n] = bend
                self._join(at, bend)
                at = bend

    def _join(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)

    def positions(self, row: Sequence[int]) -> dict[int, int]:
        """Return the place of each vertex in its layer."""
        return {v: n for n, v in enumerate(row)}

    def crossings(self) -> int:
        """Return the number of pairs of edges that cross."""
        return sum(self._between(a, b) for a, b in itertools.pairwise(self.rows))

    def _between(self, upper: Sequence[int], lower: Sequence[int]) -> int:
        place = self.positions(lower)
        seen: list[int] = []
        found = 0
        for v in upper:
            ends = sorted(place[u] for u in self.below[v])
            found += sum(len(seen) - bisect_right(seen, e) for e in ends)
            for e in ends:
                insort(seen, e)
        return found

    def reduce_crossings(self) -> None:
        """Order layers by barycenters, downwards and upwards in turn; the best order stays."""
        best, fewest, stale = self.rows, self.crossings(), 0
        for sweep in range(SWEEPS):
            if not fewest or stale == STALE:
                break
            self._sweep(downwards=sweep % 2 == 0)
            if len(self.layer) <= EXCHANGES:
                self._exchange()
            count = self.crossings()
            stale = 0 if count < fewest else stale + 1
            if count < fewest:
                best, fewest = [list(r) for r in self.rows], count
        self.rows = [list(r) for r in best]

    def _sweep(self, *, downwards: bool) -> None:
        near = self.above if downwards else self.below
        numbers = range(len(self.rows)) if downwards else reversed(range(len(self.rows)))
        place: dict[int, int] = {}
        rows = list(self.rows)
        for n in numbers:
            own = self.positions(rows[n])
            middle = {
                v: sum(place[u] for u in near[v]) / len(near[v]) if near[v] else own[v]
                for v in rows[n]
            }
            rows[n] = sorted(rows[n], key=middle.__getitem__)
            place.update(self.positions(rows[n]))
        self.rows = rows

    def _exchange(self) -> None:
        """Exchange neighbors of a layer as long as that removes crossings."""
        place = {v: n for row in self.rows for n, v in enumerate(row)}
        for row in self.rows:
            changed = True
            while changed:
                changed = False
                for n in range(len(row) - 1):
                    a, b = row[n], row[n + 1]
                    if self._gain(a, b, place) > 0:
                        row[n], row[n + 1] = b, a
                        place[a], place[b] = n + 1, n
                        changed = True

    def _gain(self, a: int, b: int, place: Mapping[int, int]) -> int:
        """Return the crossings that disappear where ``b`` goes to the left of ``a``."""
        gain = 0
        for near in (self.above, self.below):
            for x in near[a]:
                for y in near[b]:
                    gain += (place[x] > place[y]) - (place[x] < place[y])
        return gain


@dataclass(slots=True)
class _Columns:
    """Horizontal places: each layer's vertices near their neighbors, in order and apart."""

    graph: _Layered
    widths: Sequence[float]
    x: list[float] = field(default_factory=list)

    def centers(self) -> list[float]:
        """Return the center of each vertex; the leftmost box or bend touches x = 0."""
        graph = self.graph
        self.x = [0.0] * len(graph.layer)
        for row in graph.rows:
            for v, at in zip(row, self._offsets(row), strict=True):
                self.x[v] = at
        for _ in range(4):
            for row in graph.rows:
                self._fit(row, (graph.above,))
            for row in reversed(graph.rows):
                self._fit(row, (graph.below,))
        for _ in range(4):
            for row in graph.rows:
                self._fit(row, (graph.above, graph.below))
        self._straighten()
        left = min((self.x[v] - self._half(v) for v in range(len(self.x))), default=0.0)
        return [at - left for at in self.x]

    def _half(self, v: int) -> float:
        return self.widths[v] / 2 if v < self.graph.boxes else 0.0

    def _apart(self, a: int, b: int) -> float:
        """Least distance between the centers of neighbors."""
        boxes = a < self.graph.boxes and b < self.graph.boxes
        return self._half(a) + self._half(b) + (GAP if boxes else BEND_GAP)

    def _offsets(self, row: Sequence[int]) -> list[float]:
        steps = (self._apart(a, b) for a, b in itertools.pairwise(row))
        return list(itertools.accumulate(steps, initial=0.0))[: len(row)]

    def _fit(self, row: Sequence[int], sides: Sequence[Sequence[Sequence[int]]]) -> None:
        """Move a layer's vertices to the mean of their neighbors, as near as order allows.

        This is least squares under lower bounds of distances: isotonic regression, by pooling
        adjacent violators (Ayer et al., 1955).
        """
        offsets = self._offsets(row)
        pools: list[tuple[float, float, int]] = []  # mean, weight, number of vertices
        for v, offset in zip(row, offsets, strict=True):
            wish, weight = self._wish(v, sides)
            pools.append((wish - offset, weight, 1))
            while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
                (a, p, m), (b, q, n) = pools[-2:]
                pools[-2:] = [((a * p + b * q) / (p + q), p + q, m + n)]
        means = [mean for mean, _, n in pools for _ in range(n)]
        for v, mean, offset in zip(row, means, offsets, strict=True):
            self.x[v] = mean + offset

    def _wish(self, v: int, sides: Sequence[Sequence[Sequence[int]]]) -> tuple[float, float]:
        near = [(u, self._pull(v, u)) for side in sides for u in side[v]]
        weight = sum(w for _, w in near)
        if not near:
            return self.x[v], BESIDE
        rank = weight if v < self.graph.boxes else BESIDE * weight
        return sum(self.x[u] * w for u, w in near) / weight, rank

    def _pull(self, v: int, u: int) -> float:
        """Return the weight of neighbor ``u`` in the place of ``v``: boxes follow boxes, bends
        bends.
        """
        match v < self.graph.boxes, u < self.graph.boxes:
            case True, False:
                return BESIDE
            case False, False:
                return 8.0
            case _:
                return 1.0

    def _straighten(self) -> None:
        """Give the bends of each chain one x, in as few pieces as there is room for."""
        room = {v: (row, n) for row in self.graph.rows for n, v in enumerate(row)}
        for chain in self.graph.chains:
            piece: list[int] = []
            low, high = float("-inf"), float("inf")
            for v in chain.values():
                a, b = self._room(*room[v])
                if piece and max(low, a) > min(high, b):
                    self._align(piece, low, high)
                    piece, low, high = [], float("-inf"), float("inf")
                piece.append(v)
                low, high = max(low, a), min(high, b)
            self._align(piece, low, high)

    def _room(self, row: Sequence[int], n: int) -> tuple[float, float]:
        v, x = row[n], self.x
        low = x[row[n - 1]] + self._apart(row[n - 1], v) if n else float("-inf")
        high = x[row[n + 1]] - self._apart(v, row[n + 1]) if n + 1 < len(row) else float("inf")
        return low, high

    def _align(self, piece: Sequence[int], low: float, high: float) -> None:
        if piece:
            middle = sorted(self.x[v] for v in piece)[len(piece) // 2]
            for v in piece:
                self.x[v] = min(max(middle, low), high)


def _placed(
    boxes: Sequence[Box],
    edges: Sequence[tuple[str, str]],
    graph: _Layered,
    xs: Sequence[float],
    before: int,
) -> Layout:
    """Return the layout, from the order and the centers of all vertices."""
    tops, bottoms = _bands(graph, boxes)
    places = tuple(
        Place(b.name, graph.layer[v], xs[v] - b.width / 2, tops[graph.layer[v]], b.width, b.height)
        for v, b in enumerate(boxes)
    )
    numbers = {b.name: v for v, b in enumerate(boxes)}
    ports = _ports(boxes, graph, xs)

    def route(source: int, target: int) -> tuple[Point, ...]:
        first = graph.layer[source]
        points = [(xs[source], tops[first] + boxes[source].height), (xs[source], bottoms[first])]
        last = source
        for n in range(first + 1, graph.layer[target]):
            last = graph.chains[source][n]
            points += [(xs[last], tops[n]), (xs[last], bottoms[n])]
        return (*points, (ports[last, target], tops[graph.layer[target]]))

    routes = tuple(Route(a, b, route(numbers[a], numbers[b])) for a, b in edges)
    width = max(
        [p.x + p.width for p in places] + [x for r in routes for x, _ in r.points], default=0.0
    )
    height = bottoms[-1] if bottoms else 0.0
    return Layout(places, routes, width, height, graph.crossings(), before)


def _bands(graph: _Layered, boxes: Sequence[Box]) -> tuple[list[float], list[float]]:
    """Return the upper and lower end of each layer; many edges between two layers set them
    apart.
    """
    tops: list[float] = []
    bottoms: list[float] = []
    y = 0.0
    for row in graph.rows:
        tops.append(y)
        y += max((boxes[v].height for v in row if v < graph.boxes), default=0.0)
        bottoms.append(y)
        turns = sum(len(graph.below[v]) for v in row)
        y += LAYER_GAP + min(3.0 * turns, 2 * LAYER_GAP)
    return tops, bottoms


def _ports(
    boxes: Sequence[Box], graph: _Layered, xs: Sequence[float]
) -> dict[tuple[int, int], float]:
    """Return where the edges from the vertices above end on a box's upper side, from left to
    right.
    """
    found: dict[tuple[int, int], float] = {}
    for v, box in enumerate(boxes):
        sources = sorted(graph.above[v], key=xs.__getitem__)
        step = min(PORT, 0.8 * box.width / max(1, len(sources)))
        for n, u in enumerate(sources):
            found[u, v] = xs[v] + (n - (len(sources) - 1) / 2) * step
    return found
