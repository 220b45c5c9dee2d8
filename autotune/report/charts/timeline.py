"""The timeline of a call: each kernel, copy and library call as long as it took, by thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .axes import SECONDS, ChartAxis, linear
from .svg import joined, tag

WIDTH, HEIGHT = 1000.0, 10.0  # of a lane before it is stretched over the page
LEAST = 0.2  # of a lane's width: what is narrower is drawn so wide
THIN = 0.05  # what is narrower is left out


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A piece of a call in seconds from its start; ``kind`` is a class of the style sheet."""

    name: str
    kind: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Lane:
    """The steps of one thread, in order."""

    name: str
    spans: tuple[TimeSpan, ...]


def timeline(lanes: Sequence[Lane], name: str) -> Markup:
    """Return a row for each lane, all as wide as the page, over one axis of time."""
    end = max((s.start + s.seconds for lane in lanes for s in lane.spans), default=0.0)
    if end <= 0:
        return Markup("")
    axis = ChartAxis(linear([0.0, end], 0.0, 100.0, zero=True), SECONDS, "", 5)
    marks = (
        tag("span", SECONDS.text(t, axis.unit), style=f"left:{100 * t / end:.2f}%")
        for t in axis.scale.ticks(5)
        if t <= end * 0.9
    )
    ruler = tag("div", joined(marks), class_="ruler")
    rows = (_row(lane.name, _strip(lane, end, name)) for lane in lanes)
    return tag("div", joined(rows), _row("", ruler), class_="timeline")


def _row(label: str, content: Markup) -> Markup:
    return tag("div", tag("span", label or Markup("&nbsp;"), class_="lane"), content, class_="row")


def _strip(lane: Lane, end: float, name: str) -> Markup:
    label = f"Timeline of {name}, {lane.name}: {len(lane.spans)} steps in {SECONDS.text(end)}"
    return tag(
        "svg",
        joined(_spans(lane.spans, end)),
        class_="strip",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _spans(spans: Iterable[TimeSpan], end: float) -> Iterable[Markup]:
    wide = (s for s in spans if s.seconds * WIDTH / end >= THIN)
    for n, s in enumerate(wide):
        told = f"{s.name}: {SECONDS.text(s.seconds)}, {100 * s.seconds / end:.1f} %"
        yield tag(
            "rect",
            tag("title", told),
            class_=f"{s.kind}{' odd' if n % 2 else ''}",
            x=f"{s.start * WIDTH / end:.2f}",
            width=f"{max(s.seconds * WIDTH / end, LEAST):.2f}",
            height=HEIGHT,
        )
