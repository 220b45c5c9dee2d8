"""The graph of a cell's groups: a picture where it can be laid out, and its edges with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ...ir.errors import ArgumentError
from ..bench.data import CellBench
from ..explain.picture import Arrow, Card, graph_picture
from .charts.axes import SECONDS

MOST = 80  # groups up to which the picture is drawn: more cannot be read


@dataclass(frozen=True, slots=True)
class Cut:
    """Values between two groups, or a group and the world, that were not fused, and why."""

    producer: str
    consumer: str
    reasons: tuple[str, ...]
    count: int


def cuts(cell: CellBench) -> tuple[Cut, ...]:
    """Return the edges that were not fused, those between the same groups as one."""
    found: dict[tuple[str, str], list[str]] = {}
    for e in cell.edges:
        if not e.fused:
            ends = e.producer_group or e.producer, e.consumer_group or e.consumer
            found.setdefault(ends, []).append(e.reason)
    return tuple(Cut(a, b, tuple(dict.fromkeys(r)), len(r)) for (a, b), r in found.items())


def fused_count(cell: CellBench) -> int:
    """Return the number of edges inside of groups."""
    return sum(e.fused for e in cell.edges)


def group_picture(cell: CellBench) -> Markup:
    """Return the picture of groups and what was not fused between them; empty if there is none."""
    groups = {g.name: g for g in cell.groups}
    homes = {end for e in cell.edges for end in (e.producer_group, e.consumer_group)}
    inner = [
        c for c in cuts(cell) if c.producer != c.consumer and {c.producer, c.consumer} <= homes
    ]
    names = dict.fromkeys([*groups, *(end for c in inner for end in (c.producer, c.consumer))])
    if not inner or len(names) > MOST:
        return Markup("")
    whole = sum(g.weight * g.tuned_seconds for g in cell.groups) or 1.0
    nodes = []
    for name in names:
        g = groups.get(name)
        if g is None:
            nodes.append(Card(name, name))
            continue
        seconds = g.weight * g.tuned_seconds
        line = f"{SECONDS.text(seconds)} · {100 * seconds / whole:.0f} %"
        nodes.append(Card(name, name, (g.kind, line), g.kind, seconds / whole))
    arrows = [Arrow(c.producer, c.consumer, "; ".join(c.reasons)) for c in inner]
    return _drawn(nodes, arrows, f"Groups of {cell.key}")


def _drawn(nodes: Sequence[Card], arrows: Sequence[Arrow], label: str) -> Markup:
    try:
        return graph_picture(nodes, arrows, label)
    except ArgumentError:  # groups of two computations with one name can make a cycle
        return Markup("")
