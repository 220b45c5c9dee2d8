"""Bars of ratios with their intervals, as of what each decision of a winner buys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .axes import LETTER, RATIO, ChartAxis, Scale, linear
from .svg import joined, picture, tag

WIDTH, ROW, LABEL = 360.0, 30.0, 6.0
HEAD, FOOT = 8.0, 34.0
ROOM = 44.0  # pixels right of the scale, for the last value
LEAST = 0.2  # length of the scale beyond 1 at least, as a ratio


@dataclass(frozen=True, slots=True)
class Bar:
    """A row: its label, a ratio, the interval of it, and if it differs clearly from 1."""

    label: str
    value: float
    low: float
    high: float
    clear: bool = True


def ratio_bars(bars: Sequence[Bar], title: str, label: str) -> Markup:
    """Return rows of bars that start at a ratio of 1, with whiskers for their intervals."""
    if not bars:
        return Markup("")
    height = HEAD + ROW * len(bars) + FOOT
    ends = [e for b in bars for e in (b.low, b.value, b.high) if e > 0 and math.isfinite(e)]
    scale = linear([min([1.0, *ends]), max([1.0 + LEAST, *ends])], LABEL, WIDTH - ROOM)
    axis = ChartAxis(scale, RATIO, title)
    rows = (_row(b, HEAD + n * ROW, scale) for n, b in enumerate(bars))
    bottom = height - FOOT
    lines = [_tick(t, text, scale, bottom) for t, text in axis.labels]
    caption = tag("text", axis.caption, class_="title", x=LABEL, y=height - 4)
    parts = [*lines, *rows, caption]
    return picture(WIDTH, height, label, *parts, kind="bars")


def _tick(value: float, text: str, scale: Scale, bottom: float) -> Markup:
    at = scale(value)
    return joined(
        [
            tag("line", class_="grid", x1=at, x2=at, y1=HEAD + 14, y2=bottom),
            tag(
                "text",
                text,
                class_="tick",
                x=max(at, LETTER * len(text) / 2),
                y=bottom + 14,
                text_anchor="middle",
            ),
        ]
    )


def _row(b: Bar, top: float, scale: Scale) -> Markup:
    start, end = sorted((scale(1), scale(b.value)))
    kind = "faster" if b.value < 1 else "slower"
    middle = top + ROW - 8
    low, high = scale(max(b.low, scale.low)), scale(min(b.high, scale.high))
    value = f"{b.value:.2f}×"
    place = min(max(end, high) + 5, WIDTH - LETTER * len(value))
    most = int((WIDTH - 2 * LABEL) / LETTER)
    return joined(
        [
            tag("text", cut(b.label, most), class_="barname", x=LABEL, y=top + 10),
            tag(
                "rect",
                class_=kind if b.clear else "unclear",
                x=start,
                y=middle - 5,
                width=max(end - start, 1.0),
                height=10.0,
            ),
            tag("line", class_="axis", x1=scale(1), x2=scale(1), y1=middle - 8, y2=middle + 8),
            tag("line", class_="whisker", x1=low, x2=high, y1=middle, y2=middle),
            tag(
                "text",
                value,
                class_="mark",
                x=place,
                y=middle + 4,
            ),
        ]
    )


def cut(text: str, most: int) -> str:
    """Return a text of at most ``most`` letters, its end dropped if necessary."""
    return text if len(text) <= most else text[: most - 1] + "…"
