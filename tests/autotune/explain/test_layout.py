"""Layouts: nothing overlaps, layers are ordered, edges run between their boxes, fewer crossings."""

from __future__ import annotations

import itertools
import random

import pytest

from nestwright.autotune.explain.layout import Box, Layout, Route, layout
from nestwright.ir.errors import ArgumentError

Edges = list[tuple[str, str]]


def random_graph(seed: int, size: int, spread: int) -> tuple[list[Box], Edges]:
    """A graph in which a box reads up to three of the ``spread`` before it, in shuffled order."""
    r = random.Random(seed)
    boxes = [Box(f"b{n}", r.randint(20, 220), r.randint(16, 70)) for n in range(size)]
    edges = [
        (f"b{a}", f"b{b}")
        for b in range(1, size)
        for a in {r.randint(max(0, b - spread), b - 1) for _ in range(r.randint(0, 3))}
    ]
    r.shuffle(boxes)
    r.shuffle(edges)
    return boxes, edges


GRAPHS = [(s, n, spread) for s, n, spread in itertools.product(range(4), (2, 9, 60), (2, 8, 60))]


@pytest.fixture(params=GRAPHS, ids=lambda g: "-".join(map(str, g)))
def graph(request: pytest.FixtureRequest) -> tuple[list[Box], Edges, Layout]:
    boxes, edges = random_graph(*request.param)
    return boxes, edges, layout(boxes, edges)


def test_no_box_overlaps_another(graph: tuple[list[Box], Edges, Layout]) -> None:
    boxes, _, placed = graph
    assert [p.name for p in placed.places] == [b.name for b in boxes]
    for a, b in itertools.combinations(placed.places, 2):
        apart = a.x + a.width <= b.x or b.x + b.width <= a.x
        assert apart or a.y + a.height <= b.y or b.y + b.height <= a.y
    for p in placed.places:
        assert p.x >= -0.01 and p.y >= 0
        assert p.x + p.width <= placed.width + 0.01 and p.y + p.height <= placed.height + 0.01


def test_layers_follow_the_edges(graph: tuple[list[Box], Edges, Layout]) -> None:
    _, edges, placed = graph
    places = {p.name: p for p in placed.places}
    for a, b in edges:
        assert places[a].layer < places[b].layer
        assert places[a].y + places[a].height < places[b].y
    for p, q in itertools.permutations(placed.places, 2):
        assert p.layer >= q.layer or p.y + p.height < q.y


def test_every_edge_runs_between_its_boxes(graph: tuple[list[Box], Edges, Layout]) -> None:
    _, edges, placed = graph
    places = {p.name: p for p in placed.places}
    assert [(r.source, r.target) for r in placed.routes] == edges
    for r in placed.routes:
        a, b = places[r.source], places[r.target]
        (x, y), (u, v) = r.points[0], r.points[-1]
        assert a.x <= x <= a.x + a.width and y == a.y + a.height
        assert b.x <= u <= b.x + b.width and v == b.y
        assert all(low <= high for (_, low), (_, high) in itertools.pairwise(r.points))


def test_no_edge_crosses_a_box(graph: tuple[list[Box], Edges, Layout]) -> None:
    """Where a route turns it is between two layers, and elsewhere it passes beside the boxes."""
    *_, placed = graph
    for r, p in itertools.product(placed.routes, placed.places):
        for (x, top), (u, bottom) in itertools.pairwise(r.points):
            meets = top < p.y + p.height and p.y < bottom
            assert not meets or u <= p.x or x >= p.x + p.width, (r, p)
            assert not meets or x == u


def test_reduction_never_adds_crossings(graph: tuple[list[Box], Edges, Layout]) -> None:
    *_, placed = graph
    assert placed.crossings <= placed.crossings_before
    again = layout(*graph[:2])
    assert again == placed  # the same graph gives the same picture


def crossed(a: Route, b: Route) -> int:
    """How often two routes of a graph of two layers cross."""
    return (a.points[0][0] - b.points[0][0]) * (a.points[-1][0] - b.points[-1][0]) < 0


def test_crossings_are_counted_as_they_are_drawn() -> None:
    names = [Box(f"{side}{n}", 40, 20) for side in "ab" for n in range(6)]
    r = random.Random(5)
    edges = [(f"a{m}", f"b{n}") for m in range(6) for n in range(6) if r.random() < 0.4]
    placed = layout(names, edges)
    drawn = sum(crossed(a, b) for a, b in itertools.combinations(placed.routes, 2))
    assert placed.crossings == drawn
    assert drawn < placed.crossings_before


def test_a_tangle_that_can_be_undone_is() -> None:
    boxes = [Box(n, 50, 20) for n in "abcdefgh"]
    edges = [("a", "h"), ("b", "g"), ("c", "f"), ("d", "e")]
    placed = layout(boxes, edges)
    assert (placed.crossings_before, placed.crossings) == (6, 0)


def test_inputs_stand_above_their_first_reader() -> None:
    boxes = [Box(n, 50, 20) for n in ("x", "a", "b", "c", "w", "v")]
    edges = [("x", "a"), ("a", "b"), ("b", "c"), ("w", "v"), ("v", "c")]
    layers = {p.name: p.layer for p in layout(boxes, edges).places}
    assert layers == {"x": 0, "a": 1, "b": 2, "c": 3, "v": 2, "w": 1}


def test_a_value_that_many_read_is_one_line() -> None:
    boxes = [Box(n, 50, 20) for n in "abcd"]
    chain = [("a", "b"), ("b", "c"), ("c", "d")]
    routes = layout(boxes, [*chain, ("a", "c"), ("a", "d")]).routes
    assert routes[4].points[: len(routes[3].points) - 1] == routes[3].points[:-1]


def test_graphs_without_edges_or_boxes() -> None:
    assert layout([], []).places == ()
    assert [p.layer for p in layout([Box("a", 9, 9), Box("b", 9, 9)], []).places] == [0, 0]


@pytest.mark.parametrize(
    ("names", "edges", "message"),
    [
        ("aa", [], "two boxes of a graph have one name"),
        ("ab", [("a", "c")], "no such box"),
        ("ab", [("a", "b"), ("b", "a")], "a cycle"),
        ("a", [("a", "a")], "a cycle"),
    ],
)
def test_what_is_no_graph_is_refused(names: str, edges: Edges, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        layout([Box(n, 9, 9) for n in names], edges)


def test_a_graph_beyond_exchanges_still_loses_crossings() -> None:
    boxes, edges = random_graph(7, 1500, 40)
    placed = layout(boxes, edges)
    assert placed.crossings < placed.crossings_before
