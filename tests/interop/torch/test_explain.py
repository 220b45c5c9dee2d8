"""``nw.explain``: what stays outside, why, and where Python breaks the graph."""

from __future__ import annotations

from typing import Any

import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ArgumentError, match="not a model"):
        nw.explain(3)  # type: ignore[call-overload]


@pytest.mark.filterwarnings("ignore")
def test_outside_operators_and_breaks_are_named() -> None:
    torch = pytest.importorskip("torch", reason="torch is not in this environment")

    def f(x: Any) -> Any:
        y = torch.relu(x) * 2 + torch.rand_like(x)
        if y.sum() > 0:
            y = y.exp() + 1
        return y * 3

    with torch.no_grad():
        told = nw.explain(f, torch.ones(3, 4))
    first = told.graphs[0]
    assert (first.clusters, first.operators > 2) == (1, True)
    (left,) = first.left
    assert left.operator.startswith("aten.rand") and left.count == 1
    assert "generator" in left.reason and left.source.endswith(".py:23")
    (why,) = told.breaks
    assert "generic_jump" in why and why.endswith(".py:24)")
    assert "left to torch: 1 x aten.rand" in str(told) and "graph break: " in str(told)


@pytest.mark.filterwarnings("ignore")
def test_the_operator_inside_a_branch_is_named() -> None:
    torch = pytest.importorskip("torch", reason="torch is not in this environment")

    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: torch.rand_like(x), lambda x: x.cos(), (x,))

    with torch.no_grad():
        (left, *_) = nw.explain(f, torch.ones(3)).graphs[0].left
    assert left.operator == "cond"
    assert left.reason.startswith("aten.rand_like.default in it: its numbers come from")


@pytest.mark.filterwarnings("ignore")
def test_backward_graphs_are_told() -> None:
    torch = pytest.importorskip("torch", reason="torch is not in this environment")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    told = nw.explain(net, torch.ones(5, 3))
    assert sorted(graph.name for graph in told.graphs) == ["Sequential", "Sequential_backward"]
    assert all(graph.clusters == 1 and not graph.left for graph in told.graphs)


@pytest.mark.filterwarnings("ignore")
def test_groups_of_a_module_are_those_of_its_lowering() -> None:
    torch = pytest.importorskip("torch", reason="torch is not in this environment")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    told = nw.explain(nw.lower(net, torch.ones(5, 3)))
    assert [g.kind for g in told.groups] == ["dot"]
    assert all(why for g in told.groups for flow in g.reads for why in flow.reasons)
