"""A graph of ATen operators as calls of compiled clusters, with what torch runs between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any, TypeAlias

import torch
from torch.fx import Graph, GraphModule

from ...ir.clusters import Partition, partitions
from ...ir.frontends.torch.walk import unreadable
from .in_place import write_in_place
from .layouts import FREE
from .views import draws, is_view, outside_views, writes

Reasons: TypeAlias = Mapping[Any, str]
"""Why a node stays outside, by node."""

Compile: TypeAlias = Callable[[GraphModule, frozenset[int]], Callable[..., Any]]
"""Returns the function that runs a cluster; the set holds the inputs that are weights."""


@dataclass(frozen=True, slots=True)
class Division:
    """A graph divided: ``partitions`` of ``nodes``, and why nodes that stay outside do."""

    nodes: tuple[Any, ...]
    partitions: tuple[Partition, ...]
    reasons: Reasons

    def outside(self) -> list[tuple[Any, str]]:
        """Return the nodes that stay outside, each with the reason."""
        left = (self.nodes[i] for p in self.partitions if not p.inside for i in p.nodes)
        return [(n, self.reasons.get(n, "too few operators together")) for n in left]

    def operators(self, partition: Partition) -> list[Any]:
        """Return the nodes of a partition, each with the selections of its results after it."""
        found: list[Any] = []
        for i in partition.nodes:
            found += [self.nodes[i], *_selections(self.nodes[i])]
        return found


def divide(gm: GraphModule, reasons: Reasons, least: int) -> Division:
    """Divide a graph into clusters of at least ``least`` operators and the nodes outside.

    A graph that fits as a whole is one cluster, however small it is. ``reasons`` are given for
    operators that have no meaning in our graphs. Results that share memory are given views of their
    own. Nodes that draw random numbers keep their order; those that write to a tensor run after all
    that stand before them.
    """
    written = write_in_place(gm.graph)
    own = dict.fromkeys(outside_views(gm.graph), "a view that shares memory with a result")
    own |= dict.fromkeys(written, "it writes to an input")
    nodes = tuple(n for n in gm.graph.nodes if _is_operation(n) and not _is_selection(n))
    why = {n: told for n in nodes if (told := own.get(n) or reasons.get(n) or _refusal(n))}
    fits = [n not in why for n in nodes]
    counted = [int(not is_view(n)) for n in nodes]
    smallest = 1 if why.keys() == own.keys() else least
    return Division(nodes, partitions(orders(nodes, why, written), fits, smallest, counted), why)


def left_whole(gm: GraphModule, why: str) -> Division:
    """Return the division of a graph that torch runs as a whole, for the reason ``why``."""
    nodes = tuple(n for n in gm.graph.nodes if _is_operation(n) and not _is_selection(n))
    whole = Partition(tuple(range(len(nodes))), inside=False)
    return Division(nodes, (whole,), dict.fromkeys(nodes, why))


def orders(nodes: Sequence[Any], outside: Reasons, free: Collection[Any]) -> list[set[int]]:
    """Return the places of the nodes that each one runs after.

    Nodes that write wait for all before them, as the last one did for those before it. Those in
    ``free``, which nothing else reads, do not.
    """
    place = {n: i for i, n in enumerate(nodes)}
    drawn: list[int] = []
    wrote = 0
    inputs: list[set[int]] = []
    for i, n in enumerate(nodes):
        read = {place[m] for m in map(_source, n.all_input_nodes) if m in place}
        if writes(n) and n not in free:
            read |= set(range(wrote, i))
            wrote = i
        elif draws(n) and n in outside:
            read |= set(drawn)
            drawn = [i]
        inputs.append(read)
    return inputs


def assemble(gm: GraphModule, division: Division, static: frozenset[int], build: Compile) -> Any:
    """Return a graph module that calls the clusters and runs what is outside.

    ``static`` are the numbers of the inputs that are weights, unless the graph writes to them.
    """
    graph = Graph()
    inputs = gm.graph.find_nodes(op="placeholder")
    weights = {n for i, n in enumerate(inputs) if i in static and not any(map(writes, n.users))}
    known = {n: graph.node_copy(n) for n in inputs}
    for n in gm.graph.find_nodes(op="get_attr"):
        known[n] = graph.node_copy(n)
    for number, partition in enumerate(division.partitions):
        members = division.operators(partition)
        if not partition.inside:
            for n in members:
                known[n] = graph.node_copy(n, known.__getitem__)
            continue
        part, given, made = _part(gm, members)
        if not made:
            continue
        call = build(part, frozenset(i for i, n in enumerate(given) if n in weights))
        call.__name__, call.__module__ = f"cluster_{number}", "nestwright"
        results = graph.call_function(call, tuple(known[n] for n in given))
        for i, n in enumerate(made):
            known[n] = graph.call_function(getitem, (results, i))
    graph.node_copy(gm.graph.output_node(), known.__getitem__)
    graph.eliminate_dead_code(lambda n: n.is_impure() or writes(n))
    return GraphModule(gm, graph)


def _part(gm: GraphModule, members: Sequence[Any]) -> tuple[GraphModule, list[Any], list[Any]]:
    """Return a cluster as a graph module, with the nodes that it reads and those it gives."""
    graph = Graph()
    inside = set(members)
    known: dict[Any, Any] = {}
    given: list[Any] = []
    read = (m for n in members for m in n.all_input_nodes if m not in inside)
    for n in dict.fromkeys(read):
        if n.op == "get_attr":
            known[n] = graph.node_copy(n)
        else:
            known[n] = graph.placeholder(n.name)
            known[n].meta = dict(n.meta)
            given.append(n)
    for n in members:
        known[n] = graph.node_copy(n, known.__getitem__)
    made = [n for n in members if any(user not in inside for user in n.users)]
    for n in made:
        if any(user not in inside and user.op != "output" for user in n.users):
            known[n].meta.pop(FREE, None)
    graph.output(tuple(known[n] for n in made))
    return GraphModule(gm, graph), given, made


def _refusal(node: Any) -> str:
    """Return why the border cannot take a node's values; empty if it can."""
    if node.op != "call_function":
        return f"a {node.op} of {node.target}"
    for n in (node, *node.all_input_nodes):
        if n.op == "get_attr":
            continue
        for value in _values(n.meta.get("val")):
            if not isinstance(value, torch.Tensor):
                return f"{n.name} is a {type(value).__name__}, not a tensor"
            if not value.is_cpu:
                return f"{n.name} is on {value.device}"
            if value.layout is not torch.strided:
                return f"{n.name} has the layout {value.layout}"
            if any(not isinstance(d, int) for d in value.shape):
                return f"{n.name} has the shape {tuple(value.shape)}, known when it runs"
            if why := unreadable(value):
                return f"{n.name}: {why}"
    return ""


def _values(value: Any) -> Sequence[Any]:
    """Return the tensors that a node gives; those that it does not are None."""
    many = value if isinstance(value, tuple | list) else (value,)
    return [v for v in many if v is not None] or [value]


def _is_operation(node: Any) -> bool:
    return node.op not in ("placeholder", "get_attr", "output")


def _is_selection(node: Any) -> bool:
    return node.op == "call_function" and node.target is getitem


def _source(node: Any) -> Any:
    """Return the operator behind selections of its results."""
    while _is_selection(node):
        node = node.args[0]
    return node


def _selections(node: Any) -> list[Any]:
    found = [user for user in node.users if _is_selection(user)]
    return found + [deeper for user in found for deeper in _selections(user)]
