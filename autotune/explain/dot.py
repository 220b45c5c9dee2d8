"""The graph of a model's groups as Graphviz text: a cluster for each computation."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.files import encodable
from .cards import flow_text, sized, summary
from .graph import ComputationGraph, ModelGraph

SHAPES = {"input": "ellipse", "result": "ellipse", "control flow": "hexagon"}
HEAD = 'node [shape=box, fontname="Helvetica", fontsize=11];'


def show_dot(graph: ModelGraph) -> str:
    """Return a ``digraph``; labels of edges are bytes, their tooltips say why nothing was fused."""
    lines = [f"digraph {quoted(graph.name)} {{", f"  {HEAD}"]
    for number, computation in enumerate(graph.computations):
        lines += _cluster(graph, computation, number)
    return encodable("\n".join([*lines, "}"]) + "\n")


def _cluster(graph: ModelGraph, c: ComputationGraph, number: int) -> Iterator[str]:
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={quoted(c.name)};"
    for v in c.vertices:
        label = quoted("\n".join([v.name, *summary(graph, v)]))
        shape = f", shape={SHAPES[v.kind]}" if v.kind in SHAPES else ""
        yield f"    {quoted(f'{c.name}/{v.name}')} [label={label}{shape}];"
    for f in c.flows:
        ends = (quoted(f"{c.name}/{end}") for end in (f.source, f.target))
        told = f"label={quoted(sized(f.bytes))}, tooltip={quoted(flow_text(f))}"
        yield f"    {' -> '.join(ends)} [{told}];"
    yield "  }"


def quoted(text: str) -> str:
    """Return a quoted string of the DOT language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
