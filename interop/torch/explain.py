"""The parts of a torch model that are compiled, those that stay outside, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Left:
    """Operators of one kind that torch runs: how many, why, and ``file:line`` of the first."""

    operator: str
    count: int
    reason: str
    source: str = ""

    def __str__(self) -> str:
        place = f" ({self.source})" if self.source else ""
        return f"{self.count} x {self.operator}{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GraphExplained:
    """A graph of a model: ``operators`` that are compiled, in ``clusters``, and those left."""

    name: str
    operators: int
    clusters: int
    left: tuple[Left, ...]

    def __str__(self) -> str:
        many = "" if self.clusters == 1 else "s"
        head = f"{self.name}: {self.operators} operators compiled in {self.clusters} cluster{many}"
        return "\n".join([head, *(f"  left to torch: {row}" for row in self.left)])


@dataclass(frozen=True, slots=True)
class Explanation:
    """How ``torch.compile(model, backend="nestwright")`` divides a model.

    ``graphs`` are what torch extracts; ``breaks`` say why it ended a graph, for each place.
    """

    graphs: tuple[GraphExplained, ...]
    breaks: tuple[str, ...]

    def __str__(self) -> str:
        rows = [str(graph) for graph in self.graphs] or ["torch found no graph to compile"]
        return "\n".join([*rows, *(f"graph break: {why}" for why in self.breaks)])


def explain_torch(model: Callable[..., Any], *args: Any, **named: Any) -> Explanation:
    """Run a torch model once and tell what of it would be compiled, what not, and why.

    ``model`` is a ``torch.nn.Module`` or a function of tensors, called with ``args`` and ``named``
    by torch itself: nothing is compiled. Backward graphs are explained where gradients are asked
    for.
    """
    import torch

    from .backend import compile_graph
    from .partition import Division
    from .settings import Settings

    graphs: list[GraphExplained] = []
    breaks: list[str] = []

    def record(name: str, division: Division) -> None:
        graphs.append(explained(name, division))

    def listen(gm: Any, example_inputs: Any) -> Any:
        if why := break_of(getattr(gm, "compile_subgraph_reason", None)):
            breaks.append(why)
        compile_graph(gm, example_inputs, Settings(), record)
        return gm.forward

    torch.compile(model, backend=listen, dynamic=False)(*args, **named)
    return Explanation(tuple(graphs), tuple(breaks))


def explained(name: str, division: Any) -> GraphExplained:
    """Return how a graph was divided, its operators outside counted by kind."""
    inside = [p for p in division.partitions if p.inside]
    left: Counter[tuple[str, str]] = Counter()
    sources: dict[tuple[str, str], str] = {}
    for node, why in division.outside():
        key = str(node.target), why
        left[key] += 1
        sources.setdefault(key, _source(node))
    rows = tuple(Left(op, n, why, sources[op, why]) for (op, why), n in left.most_common())
    return GraphExplained(name, sum(len(p.nodes) for p in inside), len(inside), rows)


def break_of(reason: Any) -> str:
    """Return why dynamo ended a graph where it did, in a line; empty if the function returned."""
    if reason is None or not reason.graph_break:
        return ""
    told = str(reason.reason).splitlines()[0]
    frames = [f for f in reason.user_stack or () if getattr(f, "filename", "")]
    return f"{told} ({frames[-1].filename}:{frames[-1].lineno})" if frames else told


def _source(node: Any) -> str:
    from ...ir.frontends.torch.walk import source_of

    return source_of(node)
