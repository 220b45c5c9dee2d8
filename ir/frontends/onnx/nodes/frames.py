"""Names in sight while a graph is read, and the nodes of a graph that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...lax.graph import Graph
from ...lax.term import Term
from .values import Sequence, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The values of a graph's names; those of the graph around it are in sight too.

    ``opsets`` are the versions of domains that the graph is written in, ``attributes`` the
    AttributeProtos that the call of a function gives, ``depth`` the number of graphs and calls
    around. Instructions are written in ``graph``; where ``whole`` is set, all of them, those
    on values from around too.
    """

    graph: Graph
    whole: bool = False
    values: dict[str, Value] = field(default_factory=dict)
    outer: Frame | None = None
    opsets: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0

    def find(self, name: str) -> Value:
        """Return the value of a name; ``KeyError`` where nothing in sight has it."""
        if name in self.values:
            return self.values[name]
        if self.outer is None:
            raise KeyError(name)
        found = self.outer.find(name)
        return self._inside(found) if self.whole else found

    def _inside(self, value: Value) -> Value:
        """A value from around, as this frame's graph has it."""
        match value:
            case Term():
                return Term(self.graph, self.graph.inside(value.value))
            case Sequence(elements=elements):
                terms = [Term(self.graph, self.graph.inside(t.value)) for t in elements]
                return replace(value, elements=tuple(terms))
            case _:
                return value


def needed(nodes: Iterable[Any], results: Iterable[str]) -> list[tuple[Any, frozenset[str]]]:
    """Return the nodes that results depend on, in order, each with those of its outputs that are
    used."""
    wanted, kept = set(results), []
    for node in reversed(list(nodes)):
        if used := frozenset(name for name in node.output if name and name in wanted):
            wanted.update(names_used(node))
            kept.append((node, used))
    return kept[::-1]


def names_used(node: Any) -> Iterator[str]:
    """Yield the names that a node may read: its inputs, and what the graphs inside it name."""
    pending = [node]
    while pending:
        one = pending.pop()
        yield from one.input
        for attribute in one.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for graph in [*inner, *attribute.graphs]:
                pending += graph.node
                yield from (o.name for o in graph.output)


def written_out(nodes: Iterable[Any], count: Callable[[Any], int]) -> int:
    """Return the number of nodes with those of inner graphs, where ``count`` counts one node."""
    total = 0
    pending = list(nodes)
    while pending:
        node = pending.pop()
        total += count(node)
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for graph in [*inner, *attribute.graphs]:
                pending += graph.node
    return total


def attributes_of(node: Any, frame: Frame) -> dict[str, Any]:
    """Return the attributes of a node; those that refer to a function's are the call's."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif (given := frame.attributes.get(attribute.ref_attr_name)) is not None:
            found[attribute.name] = given
    return found
