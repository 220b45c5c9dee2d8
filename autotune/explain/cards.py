"""A computation's graph as boxes and arrows: what each says, and the picture of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from .graph import ComputationGraph, Flow, ModelGraph, Vertex
from .picture import Arrow, Card, graph_picture

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def model_picture(graph: ModelGraph, computation: ComputationGraph) -> Markup:
    """Return one computation of a model as SVG; the page needs ``picture.STYLE``."""
    nodes = [_node(graph, computation, v) for v in computation.vertices]
    arrows = [Arrow(f.source, f.target, flow_text(f), _width(f.bytes)) for f in computation.flows]
    return graph_picture(nodes, arrows, f"groups of {computation.name}")


def sized(count: float) -> str:
    """Format bytes with a unit of 1024: 512 B, 1.5 MiB."""
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} {UNITS[-1]}"


def percent(share: float) -> str:
    """Format a share in percent with two digits that count."""
    return f"{100 * share:.2g} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def operations_text(operations: Sequence[str]) -> str:
    """Return opcodes with their numbers, the most frequent first."""
    found = Counter(operations).most_common()
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in found)


def flow_text(flow: Flow) -> str:
    """Return what flows and why it was not fused, a line for each."""
    head = f"{flow.source} → {flow.target}: {sized(flow.bytes)} ({', '.join(flow.values)})"
    return "\n".join([head, *(f"not fused: {why}" for why in flow.reasons)])


def _node(graph: ModelGraph, computation: ComputationGraph, vertex: Vertex) -> Card:
    carried = [f.bytes for f in computation.flows if f.source == vertex.name]
    return Card(
        name=vertex.name,
        title=vertex.name,
        lines=summary(graph, vertex),
        kind=vertex.kind if vertex.key else "outside",
        share=graph.shares(vertex)[0] if vertex.key else None,
        tip=f"{vertex.name}: {operations_text(vertex.operations) or vertex.kind}\n{vertex.shape}",
        carries=sized(max(carried)) if carried else "",
    )


def summary(graph: ModelGraph, vertex: Vertex) -> tuple[str, ...]:
    """Return what a vertex is, and its share of the model, as a line or two."""
    if not vertex.key:
        calls = f" of {', '.join(vertex.calls)}" if vertex.calls else ""
        text = f"{vertex.kind}{calls}"
        return (text, sized(vertex.bytes)) if vertex.bytes else (text,)
    count = len(vertex.operations)
    work, size = graph.shares(vertex)
    times = f", {vertex.runs:g} times" if vertex.runs != 1 else ""
    return (
        f"{vertex.kind}, {count} operation{'s' * (count != 1)}{times}",
        f"{f'{percent(work)} of FLOPs, ' if work else ''}{percent(size)} of bytes",
    )


def _width(count: int) -> float:
    """Return the width of an edge: one pixel more for each factor of 64 above a KiB."""
    return 1.0 + max(0, count.bit_length() - 10) / 6
