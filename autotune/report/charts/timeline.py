"""The timeline of a run: each kernel, copy and library call in order, as long as it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .axes import SECONDS, ChartAxis, linear
from .svg import joined, tag

WIDTH, HEIGHT = 1000.0, 56.0
LEAST = 0.4  # pixels of the narrowest span


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A piece of a run in seconds from its start; ``kind`` is a class of the style sheet."""

    name: str
    kind: str
    start: float
    seconds: float


def timeline(spans: Sequence[TimeSpan], name: str) -> Markup:
    """Return the spans as one row, stretched over the page, with an axis of its own below."""
    if not spans:
        return Markup("")
    end = max(s.start + s.seconds for s in spans)
    if end <= 0:
        return Markup("")
    scale = 100 / end
    row = (
        tag(
            "rect",
            tag("title", f"{s.name}: {SECONDS.text(s.seconds)}, {100 * s.seconds / end:.1f} %"),
            class_=f"{s.kind}{' odd' if n % 2 else ''}",
            x=f"{s.start * WIDTH / end:.2f}",
            y="0",
            width=f"{max(s.seconds * WIDTH / end, LEAST):.2f}",
            height=f"{HEIGHT:.0f}",
        )
        for n, s in enumerate(spans)
    )
    box = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    strip = tag(
        "svg",
        joined(row),
        class_="strip",
        viewBox=box,
        preserveAspectRatio="none",
        role="img",
        aria_label=f"Timeline of {name}: {len(spans)} steps in {SECONDS.text(end)}",
    )
    axis = ChartAxis(linear([0.0, end], 0.0, 100.0, zero=True), SECONDS, "", 5)
    unit = axis.unit
    marks = (
        tag("span", SECONDS.text(t, unit), style=f"left:{t * scale:.2f}%")
        for t in axis.scale.ticks(5)
        if t <= end * 0.93
    )
    return joined([strip, tag("div", joined(marks), class_="ruler", aria_hidden="true")])
