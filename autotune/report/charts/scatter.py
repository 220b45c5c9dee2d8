"""Predicted against measured times of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from .axes import SECONDS, Canvas, ChartAxis, draw_axes, logarithmic
from .svg import joined, picture, tag

FRAME = Canvas(height=220.0)
MOST = 400  # points of a model that are drawn, evenly chosen


def honesty(pairs: Mapping[str, Sequence[tuple[float, float]]], name: str) -> Markup:
    """Return the picture of predicted and measured seconds by model; equal ones are on the line."""
    every = [pair for found in pairs.values() for pair in found]
    if len(every) < 2:
        return Markup("")
    x = ChartAxis(logarithmic([p for p, _ in every], *FRAME.across), SECONDS, "predicted")
    y = ChartAxis(logarithmic([m for _, m in every], *FRAME.upward), SECONDS, "measured")
    low = max(x.scale.low, y.scale.low)
    high = min(x.scale.high, y.scale.high)
    parts = [draw_axes(FRAME, x, y)]
    if low < high:
        ends = {"x1": x.scale(low), "y1": y.scale(low), "x2": x.scale(high), "y2": y.scale(high)}
        parts.append(tag("line", class_="equal", **ends))
    dots = (
        tag("circle", class_=f"trial {model}", cx=x.scale(p), cy=y.scale(m), r=2.5)
        for model, found in pairs.items()
        for p, m in found[:: -(-len(found) // MOST)]
    )
    count = max(map(len, pairs.values()))
    label = f"Predicted against measured time of {count} trials of {name}"
    return picture(FRAME.width, FRAME.height, label, *parts, joined(dots), kind="scatter")
