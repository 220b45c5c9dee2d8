"""A graph as SVG: boxes with a title and facts, edges with what they carry, in layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .layout import Box, Layout, Place, Point, Route, layout

TITLE, LINE = 8.0, 6.6
"""Mean width of a character of a title and of a line below it, in pixels, in a wide font."""
WIDEST = 34
"""Characters of a title before it is cut."""
PAD, STEP, MARGIN = 10.0, 15.0, 16.0

STYLE = """
svg.graph { --ink: #1c2430; --soft: #626c7a; --line: #aab2bd; --paper: #ffffff; --edge: #cfd5dc;
  --dot: #2f6fb3; --convolution: #6a4bb0; --attention: #a13b7c; --reduction: #b8741a;
  --elementwise: #2f7d5b; --injective: #5d8a2c; --opaque: #8a5a44; --outside: #7d8794;
  font: 11px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :root:not([data-theme="light"]) svg.graph { --ink: #e6e9ee;
  --soft: #9aa3b0; --line: #5a6472; --paper: #1c222a; --edge: #39414d; --dot: #6fa8e6;
  --convolution: #a78df0; --attention: #e07fbd; --reduction: #e0a24e; --elementwise: #56b78a;
  --injective: #9cc862; --opaque: #c39079; --outside: #8b95a3; } }
:root[data-theme="dark"] svg.graph { --ink: #e6e9ee; --soft: #9aa3b0; --line: #5a6472;
  --paper: #1c222a; --edge: #39414d; --dot: #6fa8e6; --convolution: #a78df0; --attention: #e07fbd;
  --reduction: #e0a24e; --elementwise: #56b78a; --injective: #9cc862; --opaque: #c39079;
  --outside: #8b95a3; }
.graph .box { fill: var(--paper); stroke: var(--edge); }
.graph .node { --tone: var(--outside); } .graph .node text { fill: var(--soft); }
.graph .node text.title { fill: var(--ink); font-size: 12px; font-weight: 600; }
.graph .mark, .graph .share { fill: var(--tone); } .graph .all { fill: var(--edge); }
.graph .edge path { fill: none; stroke: var(--line); } .graph .edge path.head { fill: var(--line); }
.graph .edge path.near { stroke: transparent; stroke-width: 9px; }
.graph .edge:hover path.way, .graph .edge.lit path.way { stroke: var(--ink); }
.graph .node text.bytes { font-size: 10px; paint-order: stroke;
  stroke: var(--page, var(--paper));
  stroke-width: 3px; }
""" + "\n".join(
    f".graph .node.{kind} {{ --tone: var(--{kind}); }}"
    for kind in (
        *("dot", "convolution", "attention", "reduction"),
        *("elementwise", "injective", "opaque"),
    )
)


@dataclass(frozen=True, slots=True)
class Card:
    """A box: ``kind`` colors it, ``share`` from 0 to 1 is drawn as a bar, ``tip`` is its tooltip.

    ``carries`` stands below it, where its edges leave: the size of its results, as "512 KB".
    """

    name: str
    title: str
    lines: tuple[str, ...] = ()
    kind: str = "outside"
    share: float | None = None
    tip: str = ""
    carries: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge between two nodes by name; ``width`` is in pixels, ``tip`` its tooltip."""

    source: str
    target: str
    tip: str = ""
    width: float = 1.2


def graph_picture(nodes: Sequence[Card], arrows: Sequence[Arrow], label: str) -> Markup:
    """Return a graph as one SVG element, which needs ``STYLE``; all text is escaped.

    ``label`` names it for who cannot see it. ``ArgumentError`` as for ``layout``.
    """
    placed = layout([_box(n) for n in nodes], [(a.source, a.target) for a in arrows])
    edges = [_edge(a, r) for a, r in zip(arrows, placed.routes, strict=True)]
    boxes = [_node(n, p) for n, p in zip(nodes, placed.places, strict=True)]
    return Markup(
        '<svg class="graph" role="img" aria-label="{label}" width="{w:.0f}" height="{h:.0f}" '
        'viewBox="{x:g} {x:g} {w:.0f} {h:.0f}">\n{parts}\n</svg>'
    ).format(label=label, x=-MARGIN, parts=Markup("\n").join([*edges, *boxes]), **_size(placed))


def _size(placed: Layout) -> dict[str, float]:
    return {"w": placed.width + 2 * MARGIN, "h": placed.height + 2 * MARGIN}


def _box(node: Card) -> Box:
    widest = max([len(_cut(node.title)) * TITLE, *(len(line) * LINE for line in node.lines)])
    lines = len(node.lines) + (node.share is not None) * 0.6
    return Box(node.name, widest + 2 * PAD + 4, 2 * PAD + 12 + STEP * lines)


def _cut(title: str) -> str:
    return title if len(title) <= WIDEST else f"{title[: WIDEST - 1]}…"


def _node(node: Card, place: Place) -> Markup:
    """Return a card: its color at the left, title, lines, the bar of its share at the bottom."""
    text = [
        Markup('<text x="{x:g}" y="{y:g}" class="title">{title}</text>').format(
            x=PAD + 4, y=PAD + 10, title=_cut(node.title)
        )
    ]
    text += [
        Markup('<text x="{x:g}" y="{y:g}">{line}</text>').format(
            x=PAD + 4, y=PAD + 10 + STEP * n, line=line
        )
        for n, line in enumerate(node.lines, 1)
    ]
    return Markup(
        '<g class="node {kind}" data-name="{name}" transform="translate({x:.1f} {y:.1f})">'
        '{tip}<rect class="box" width="{w:.1f}" height="{h:.1f}" rx="5"/>'
        '<rect class="mark" width="4" height="{h:.1f}" rx="2"/>{text}{share}{carries}</g>'
    ).format(
        kind=node.kind,
        name=node.name,
        x=place.x,
        y=place.y,
        w=place.width,
        h=place.height,
        tip=_tip(node.tip),
        text=Markup("").join(text),
        share=_share(node.share, place),
        carries=_carries(node.carries, place),
    )


def _share(share: float | None, place: Place) -> Markup:
    if share is None:
        return Markup("")
    room = place.width - 2 * PAD - 4
    return Markup(
        '<rect class="all" x="{x:g}" y="{y:.1f}" width="{room:.1f}" height="4" rx="2"/>'
        '<rect class="share" x="{x:g}" y="{y:.1f}" width="{part:.1f}" height="4" rx="2"/>'
    ).format(x=PAD + 4, y=place.height - PAD - 2, room=room, part=room * min(max(share, 0.0), 1.0))


def _carries(text: str, place: Place) -> Markup:
    if not text:
        return Markup("")
    return Markup('<text class="bytes" x="{x:.1f}" y="{y:.1f}">{text}</text>').format(
        x=place.width / 2 + 5, y=place.height + 12, text=text
    )


def _tip(text: str) -> Markup:
    return Markup("<title>{}</title>").format(text) if text else Markup("")


def _edge(arrow: Arrow, route: Route) -> Markup:
    way, (x, y) = path(route.points), route.points[-1]
    return Markup(
        '<g class="edge" data-from="{a}" data-to="{b}">{tip}'
        '<path class="way" stroke-width="{width:.1f}" d="{way}"/>'
        '<path class="near" d="{way}"/>'
        '<path class="head" d="M{l:.1f},{t:.1f} L{x:.1f},{y:.1f} L{r:.1f},{t:.1f} Z"/></g>'
    ).format(
        a=arrow.source,
        b=arrow.target,
        tip=_tip(arrow.tip),
        width=arrow.width,
        way=way,
        **{"l": x - 3, "r": x + 3, "t": y - 6, "x": x, "y": y},
    )


def path(points: Sequence[Point]) -> str:
    """Return the path of a route: straight where x is the same, curves with upright ends else."""
    parts = ["M{:.1f},{:.1f}".format(*points[0])]
    for (a, top), (b, bottom) in itertools.pairwise(points):
        if a == b:
            parts.append(f"V{bottom:.1f}")
        else:
            half = (top + bottom) / 2
            parts.append(f"C{a:.1f},{half:.1f} {b:.1f},{half:.1f} {b:.1f},{bottom:.1f}")
    return " ".join(parts)
