"""Predicted against measured times of trials."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from .axes import SECONDS, Canvas, ChartAxis, draw_axes, logarithmic
from .svg import joined, picture, tag

FRAME = Canvas(height=220.0)
MOST = 400  # points that are drawn, evenly chosen


def honesty(pairs: Sequence[tuple[float, float]], name: str) -> Markup:
    """Return the picture of pairs of predicted and measured seconds; equal ones are on the line."""
    if len(pairs) < 2:
        return Markup("")
    shown = pairs[:: -(-len(pairs) // MOST)]
    x = ChartAxis(logarithmic([p for p, _ in pairs], *FRAME.across), SECONDS, "predicted")
    y = ChartAxis(logarithmic([m for _, m in pairs], *FRAME.upward), SECONDS, "measured")
    low = max(x.scale.low, y.scale.low)
    high = min(x.scale.high, y.scale.high)
    parts = [draw_axes(FRAME, x, y)]
    if low < high:
        ends = {"x1": x.scale(low), "y1": y.scale(low), "x2": x.scale(high), "y2": y.scale(high)}
        parts.append(tag("line", class_="equal", **ends))
    dots = (tag("circle", class_="trial", cx=x.scale(p), cy=y.scale(m), r=2.5) for p, m in shown)
    label = f"Predicted against measured time of {len(pairs)} trials of {name}"
    return picture(FRAME.width, FRAME.height, label, *parts, joined(dots), kind="scatter")
