"""The graph of a cell's groups: a picture of each computation, and what was not fused, and why."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from ...ir.errors import ArgumentError
from ..bench.data import CellBench, GroupBench
from ..explain.cards import sized
from ..explain.graph import ComputationGraph, Flow, Vertex
from ..explain.picture import Arrow, Card, graph_picture
from .charts.axes import SECONDS

MOST = 160  # boxes up to which a picture is drawn: more cannot be read
KINDS = 26  # letters of a box's line at most


@dataclass(frozen=True, slots=True)
class Cut:
    """Values between two groups, or a group and the world, that were not fused, and why.

    ``size`` is what flows, as text; "" if it is not known.
    """

    producer: str
    consumer: str
    reasons: tuple[str, ...]
    size: str = ""


@dataclass(frozen=True, slots=True)
class GraphView:
    """The picture of one computation (empty: it is too large) and its cuts."""

    name: str
    picture: Markup
    cuts: tuple[Cut, ...]
    fused: int


def graph_views(cell: CellBench) -> tuple[GraphView, ...]:
    """Return a view of each computation of a cell, the entry first; without graph, its edges."""
    if cell.graph is not None:
        by_key = {g.key: g for g in cell.groups}
        return tuple(_view(c, by_key) for c in cell.graph.computations)
    if not cell.edges:
        return ()
    found: dict[tuple[str, str], list[str]] = {}
    for e in cell.edges:
        if not e.fused:
            ends = e.producer_group or e.producer, e.consumer_group or e.consumer
            found.setdefault(ends, []).append(e.reason)
    cuts = tuple(Cut(a, b, tuple(dict.fromkeys(r))) for (a, b), r in found.items())
    return (GraphView("", Markup(""), cuts, sum(e.fused for e in cell.edges)),)


def _view(c: ComputationGraph, groups: dict[str, GroupBench]) -> GraphView:
    cuts = tuple(Cut(f.source, f.target, f.reasons, sized(f.bytes)) for f in c.flows)
    return GraphView(c.name, _picture(c, groups), cuts, len(c.fused))


def _picture(c: ComputationGraph, groups: dict[str, GroupBench]) -> Markup:
    if len(c.vertices) > MOST:
        return Markup("")
    whole = sum(g.weight * g.tuned_seconds for g in groups.values()) or 1.0
    cards = [_card(v, groups.get(v.key), whole) for v in c.vertices]
    arrows = [Arrow(f.source, f.target, _told(f)) for f in c.flows]
    try:
        return graph_picture(cards, arrows, f"Groups of {c.name}, with their times")
    except ArgumentError:  # no layers: a flow that returns, as of a loop's own state
        return Markup("")


def _card(v: Vertex, group: GroupBench | None, whole: float) -> Card:
    """A box of a group has its time and its share of the model's; others only their shape."""
    kind = v.kind if v.key else "outside"
    if group is None or not group.tuned_seconds:
        return Card(v.name, v.name, (v.shape[:KINDS],), kind, tip=f"{v.kind}: {v.shape}")
    seconds = v.runs * group.tuned_seconds
    line = f"{SECONDS.text(seconds)}, {100 * seconds / whole:.0f} %"
    tip = f"{v.kind}: {v.shape}; {', '.join(v.operations)}"
    return Card(v.name, v.name, (line,), kind, seconds / whole, tip)


def _told(f: Flow) -> str:
    return f"{', '.join(f.values)}, {sized(f.bytes)}: {'; '.join(f.reasons)}"
