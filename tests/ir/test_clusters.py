"""Clusters of small graphs: convex, in an order that runs, and as few as possible."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import chain, product

from hypothesis import given
from hypothesis import strategies as st

from nestwright.ir.clusters import Partition, partitions


def inside(found: tuple[Partition, ...]) -> list[tuple[int, ...]]:
    return [p.nodes for p in found if p.inside]


def test_a_graph_that_fits_is_one_cluster() -> None:
    assert partitions([(), (0,), (0,), (1, 2)], [True] * 4) == (Partition((0, 1, 2, 3), True),)


def test_a_node_in_the_middle_parts_what_is_before_from_what_is_after() -> None:
    graph = [(), (0,), (1,), (2,), (3, 1)]
    found = partitions(graph, [True, True, False, True, True])
    assert found == (Partition((0, 1), True), Partition((2,), False), Partition((3, 4), True))


def test_what_runs_beside_an_outside_node_stays_in_one_cluster() -> None:
    # 1 is outside and reads the input only: it runs first, and the rest is a single cluster.
    found = partitions([(), (), (0,), (1, 2)], [True, False, True, True])
    assert found == (Partition((1,), False), Partition((0, 2, 3), True))


def test_nodes_sink_to_their_first_reader() -> None:
    # 0 and 1 are read after the outside node 3 alone, so no value of theirs crosses.
    graph = [(), (0,), (), (2,), (1, 3), (4,)]
    found = partitions(graph, [True, True, True, False, True, True])
    assert inside(found) == [(2,), (0, 1, 4, 5)]


def test_small_clusters_are_dissolved() -> None:
    graph = [(), (0,), (1,), (2,)]
    found = partitions(graph, [True, False, True, True], least=2)
    assert found == (Partition((0, 1), False), Partition((2, 3), True))


def test_weights_decide_what_is_small() -> None:
    found = partitions([(), (0,)], [True, True], least=2, weights=[1, 0])
    assert found == (Partition((0, 1), False),)


def test_no_nodes_make_no_steps() -> None:
    assert partitions([], []) == ()


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> tuple[list[list[int]], list[bool]]:
    fits = draw(st.lists(st.booleans(), min_size=1, max_size=most))
    nodes = range(len(fits))
    return [[j for j in range(i) if draw(st.booleans())] for i in nodes], fits


@given(graphs(), st.integers(1, 3))
def test_steps_run_every_node_once_after_its_inputs(
    graph: tuple[list[list[int]], list[bool]], least: int
) -> None:
    inputs, fits = graph
    found = partitions(inputs, fits, least)
    order = list(chain.from_iterable(p.nodes for p in found))
    assert sorted(order) == list(range(len(fits)))
    for place, i in enumerate(order):
        assert set(inputs[i]) <= set(order[:place])
    for p in found:
        if p.inside:
            assert len(p.nodes) >= least
            assert all(fits[i] for i in p.nodes)


@given(graphs(most=5))
def test_clusters_are_as_few_as_can_be(graph: tuple[list[list[int]], list[bool]]) -> None:
    inputs, fits = graph
    fitting = [i for i, fit in enumerate(fits) if fit]
    fewest = min(
        len(set(groups))
        for groups in product(range(len(fitting)), repeat=len(fitting))
        if acyclic(inputs, dict(zip(fitting, groups, strict=True)))
    )
    assert len(inside(partitions(inputs, fits))) == fewest


def acyclic(inputs: list[list[int]], group: dict[int, int]) -> bool:
    """True if the graph has no cycle once the nodes of a group are one."""
    name = [("group", group[i]) if i in group else ("node", i) for i in range(len(inputs))]
    sorter: TopologicalSorter[tuple[str, int]] = TopologicalSorter()
    for i, read in enumerate(inputs):
        sorter.add(name[i], *(name[j] for j in read if name[j] != name[i]))
    try:
        sorter.prepare()
    except CycleError:
        return False
    return True
