"""The roofline: each kernel's rate over its intensity, under the machine's measured peaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from .axes import (
    BYTES,
    FLOPS,
    INTENSITY,
    LETTER,
    Canvas,
    ChartAxis,
    Scale,
    draw_axes,
    logarithmic,
)
from .svg import Place, joined, path, picture, tag

FRAME = Canvas(width=460.0, height=330.0, left=50.0, right=26.0)
LABELLED = 16  # kernels with a number in the picture at most, the heaviest
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
"""Places of a number beside its mark, the best first."""
SLOPE = 0.25  # least intensity in the picture, relative to that of the nearest level's knee
PLACES = (0.5, 0.3, 0.7, 0.15, 0.85)
"""Places of a name along its slope, the best first."""
MOVED = 0.5  # place of kernels without arithmetic, relative to the least intensity


Box: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class RooflineMark:
    """A kernel on the roofline: work of one execution, and seconds before and after tuning.

    ``share`` is its part of the model's time, in [0, 1].
    """

    name: str
    flops: float
    bytes: float
    default_seconds: float
    tuned_seconds: float
    share: float

    @property
    def placed(self) -> bool:
        """True if it has a place: it ran, and moves bytes or computes."""
        return self.tuned_seconds > 0 and self.default_seconds > 0 and self.bytes > 0


@dataclass(frozen=True, slots=True)
class Roof:
    """Peaks: floating-point operations per second, and bytes per second of each level by name.

    The last level is memory, which holds everything.
    """

    flops: float
    levels: tuple[tuple[str, float], ...]

    @property
    def bandwidth(self) -> float:
        """The bytes per second of memory."""
        return self.levels[-1][1]

    @property
    def knees(self) -> list[float]:
        """The intensities from which each level lets the arithmetic be the limit."""
        return [self.flops / rate for _, rate in self.levels]


def roofline(kernels: Sequence[RooflineMark], roof: Roof, name: str) -> Markup:
    """Return the picture; an arrow leads from a kernel's default to its tuned schedule.

    Kernels without arithmetic are squares at the left edge, at the height that their bandwidth has
    relative to the peak's.
    """
    shown = sorted((k for k in kernels if k.placed), key=lambda k: -k.share)
    if not shown or roof.flops <= 0 or roof.bandwidth <= 0:
        return Markup("")
    x, y = _axes(shown, roof)
    marks = [_mark(k, x.scale, y.scale) for k in shown]
    lines, covered = _roof(roof, x.scale, y.scale)
    return picture(
        FRAME.width,
        FRAME.height,
        f"Roofline of {name}: {len(shown)} kernels",
        draw_axes(FRAME, x, y),
        lines,
        joined(marks),
        _numbers(shown, x.scale, y.scale, covered),
        kind="roofline",
    )


def _axes(kernels: Sequence[RooflineMark], roof: Roof) -> tuple[ChartAxis, ChartAxis]:
    known = [k.flops / k.bytes for k in kernels if k.flops > 0]
    least = min([SLOPE * min(roof.knees), *known])
    least *= MOVED if any(k.flops <= 0 for k in kernels) else 1.0
    across = logarithmic([least, 4 * max(roof.knees), *known], *FRAME.across)
    rates = [r for k in kernels for r in _rates(k, across.low)]
    upward = logarithmic([roof.flops, *rates], *FRAME.upward)
    return (
        ChartAxis(across, INTENSITY, "work per byte moved"),
        ChartAxis(upward, FLOPS, "rate", 7),
    )


def _intensity(k: RooflineMark, least: float) -> float:
    return k.flops / k.bytes if k.flops > 0 else least


def _rates(k: RooflineMark, least: float) -> tuple[float, float]:
    """Return the rates of both schedules; without arithmetic, those of a kernel of least
    intensity.
    """
    work = _intensity(k, least) * k.bytes
    return work / k.default_seconds, work / k.tuned_seconds


def _roof(roof: Roof, x: Scale, y: Scale) -> tuple[Markup, list[Box]]:
    """Return the roofs with their names, and the boxes that the names cover."""
    flat = f"{FLOPS.text(roof.flops)} FMA"
    top = y(roof.flops) - 6
    covered = [(x.end - len(flat) * LETTER, top - 11, x.end, top + 4)]
    label = tag("text", flat, class_="roofname", x=x.end, y=top, text_anchor="end")
    begin = max(x.low, min(roof.knees))
    lines = [_line("roof", [(begin, roof.flops), (x.high, roof.flops)], x, y)]
    names = [label]
    for name, rate in roof.levels:
        knee = min(max(roof.flops / rate, x.low), x.high)
        start = min(max(x.low, y.low / rate), knee)
        ends = [(start, rate * start), (knee, rate * knee)]
        lines.append(_line("roof" if rate == roof.bandwidth else "roof level", ends, x, y))
        first, last = ((x(a), y(b)) for a, b in ends)
        text, boxes = _slope(first, last, f"{name} {BYTES.text(rate)}", covered)
        names.append(text)
        covered += boxes
    return joined([*lines, *names]), covered


def _line(kind: str, points: Sequence[Place], x: Scale, y: Scale) -> Markup:
    return tag("polyline", class_=kind, points=path((x(a), y(b)) for a, b in points))


def _slope(start: Place, end: Place, name: str, taken: Sequence[Box]) -> tuple[Markup, list[Box]]:
    """Return the name along the slope, and boxes that cover it; nothing where there is no room."""
    (x1, y1), (x2, y2) = start, end
    whole, length = math.hypot(x2 - x1, y2 - y1), len(name) * LETTER * 0.9
    angle = math.atan2(y2 - y1, x2 - x1)
    for place in PLACES:
        if min(place, 1 - place) * whole < length / 2:
            continue
        a = x1 + place * (x2 - x1) + 5 * math.sin(angle)
        b = y1 + place * (y2 - y1) - 5 * math.cos(angle)
        steps = (length * (n / 8 - 0.5) for n in range(9))
        middles = [(a + s * math.cos(angle), b + s * math.sin(angle)) for s in steps]
        boxes = [(u - 6, v - 10, u + 6, v + 4) for u, v in middles]
        if not any(_meet(box, other) for box in boxes for other in taken):
            turn = f"translate({a:.1f} {b:.1f}) rotate({math.degrees(angle):.1f})"
            label = tag("text", name, class_="roofname", text_anchor="middle", transform=turn)
            return label, boxes
    return Markup(""), []


def _radius(k: RooflineMark) -> float:
    return 3.0 + 5.0 * math.sqrt(k.share)


def _mark(k: RooflineMark, x: Scale, y: Scale) -> Markup:
    before, after = (y(r) for r in _rates(k, x.low))
    at, size = x(_intensity(k, x.low)), _radius(k)
    shape = (
        tag("circle", class_="tuned", cx=at, cy=after, r=size)
        if k.flops > 0
        else tag(
            "rect", class_="tuned", x=at - size, y=after - size, width=2 * size, height=2 * size
        )
    )
    parts = [tag("title", _told(k)), tag("circle", class_="default", cx=at, cy=before, r=2.5)]
    if abs(before - after) > 2:
        parts.append(tag("line", class_="arrow", x1=at, x2=at, y1=before, y2=after))
    return tag("g", *parts, shape)


def _told(k: RooflineMark) -> str:
    rate = (
        FLOPS.text(k.flops / k.tuned_seconds)
        if k.flops > 0
        else BYTES.text(k.bytes / k.tuned_seconds)
    )
    return (
        f"{k.name}: {rate}, {k.default_seconds / k.tuned_seconds:.2f}× over default, "
        f"{100 * k.share:.0f} % of the time"
    )


def _numbers(kernels: Sequence[RooflineMark], x: Scale, y: Scale, covered: Sequence[Box]) -> Markup:
    """Numbers beside the heaviest kernels, as in the table, where there is room for them."""
    places = [(x(_intensity(k, x.low)), y(_rates(k, x.low)[1])) for k in kernels]
    taken = [*covered, *(_around(k, at) for k, at in zip(kernels, places, strict=True))]
    parts = []
    heaviest = zip(kernels[:LABELLED], places, strict=False)
    for n, (k, place) in enumerate(heaviest, 1):
        room = _room(str(n), place, _radius(k), taken)
        if room is not None:
            taken.append(room)
            middle, low = (room[0] + room[2]) / 2, room[3] - 1.5
            parts.append(tag("text", str(n), class_="mark", x=middle, y=low, text_anchor="middle"))
    return joined(parts)


def _around(k: RooflineMark, place: Place) -> Box:
    (a, b), r = place, _radius(k)
    return a - r, b - r, a + r, b + r


def _room(text: str, place: Place, radius: float, taken: Sequence[Box]) -> Box | None:
    """Return a free box for a text next to a mark; None if there is none."""
    width, height = len(text) * LETTER + 2, 11.0
    left, (bottom, top) = FRAME.left, FRAME.upward
    for across, up in SIDES:
        a = place[0] + across * (radius + width / 2 + 1)
        b = place[1] - up * (radius + height / 2 + 1)
        box = a - width / 2, b - height / 2, a + width / 2, b + height / 2
        inside = box[0] >= left and box[2] <= FRAME.width and box[1] >= top and box[3] <= bottom
        if inside and not any(_meet(box, other) for other in taken):
            return box
    return None


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
