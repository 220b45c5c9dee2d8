"""Scales, ticks and axes: values with units become places in a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .svg import joined, tag

LETTER = 6.4  # pixels of a letter of an axis at most
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured quantity: its units with their sizes, the largest first."""

    name: str
    units: tuple[tuple[str, float], ...]

    def unit(self, value: float) -> tuple[str, float]:
        """Return the largest unit that a value has at least one of; the smallest otherwise."""
        fitting = (u for u in self.units if abs(value) >= u[1] * (1 - 1e-9))
        return next(fitting, self.units[-1])

    def text(self, value: float, unit: tuple[str, float] | None = None) -> str:
        """Return a value with three digits and its unit."""
        name, size = unit or self.unit(value)
        return f"{figure(value / size)} {name}".rstrip()


SECONDS = Quantity("time", (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))
WALL = Quantity("time", (("h", 3600.0), ("min", 60.0), ("s", 1.0)))
FLOPS = Quantity("rate", (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)))
BYTES = Quantity("rate", (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)))
INTENSITY = Quantity("intensity", (("FLOP/B", 1.0),))
COUNT = Quantity("count", (("", 1.0),))
RATIO = Quantity("ratio", (("×", 1.0),))


def figure(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))
    text = f"{value:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class Scale:
    """A map of values in [``low``, ``high``] to pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return a value's place; values outside are placed at the nearest end."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            part = (inside - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int = 6) -> tuple[float, ...]:
        """Return at most about ``most`` round values in the scale, ascending."""
        return _log_ticks(self, most) if self.log else _even_ticks(self.low, self.high, most)


def linear(values: Iterable[float], start: float, end: float, zero: bool = False) -> Scale:
    """Return a scale with round ends around finite values; from 0 with ``zero``."""
    known = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    low = min(0.0, low) if zero else low
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        high, low = high + (abs(high) or 1.0) / 10, low - (0.0 if zero else (abs(low) or 1.0) / 10)
    step = _step(high - low, 5)
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, start, end)


def logarithmic(values: Iterable[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale around positive finite values, at least a factor of 4 wide."""
    known = [v for v in values if v > 0 and math.isfinite(v)] or [1.0]
    low, high = min(known) / 1.15, max(known) * 1.15
    if high / low < 4:
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return Scale(low, high, start, end, log=True)


def _step(span: float, most: int) -> float:
    raw = span / max(1, most)
    base = 10.0 ** math.floor(math.log10(raw))
    return base * next(s for s in STEPS if s * base >= raw * (1 - 1e-9))


def _even_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    step = _step(high - low, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(n * step for n in range(first, last + 1))


def _log_ticks(scale: Scale, most: int) -> tuple[float, ...]:
    """Return powers of ten; with 2 and 5 of each if few fit, every other one if many do."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = _within(scale, (s * 10.0**n for n in range(first, last + 1) for s in steps))
        if len(found) <= most:
            return found
    every = -(-len(found) // most)
    return found[::every]


def _within(scale: Scale, values: Iterable[float]) -> tuple[float, ...]:
    return tuple(v for v in values if scale.low * (1 - 1e-9) <= v <= scale.high * (1 + 1e-9))


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """A scale with the quantity on it and a title, which gets the unit in brackets."""

    scale: Scale
    quantity: Quantity
    title: str
    most: int = 6

    @property
    def unit(self) -> tuple[str, float]:
        """The one unit of all labels: that of the largest tick."""
        ticks = self.scale.ticks(self.most)
        return self.quantity.unit(max(map(abs, ticks), default=self.scale.high))

    @property
    def labels(self) -> tuple[tuple[float, str], ...]:
        """Ticks with their texts, in the axis' unit."""
        size = self.unit[1]
        return tuple((t, figure(t / size)) for t in self.scale.ticks(self.most))

    @property
    def caption(self) -> str:
        """The title with the unit."""
        name = self.unit[0]
        return f"{self.title} ({name})" if name else self.title


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture's size, and the room of its axes, in pixels."""

    width: float = 360.0
    height: float = 250.0
    left: float = 46.0
    right: float = 14.0
    top: float = 26.0
    bottom: float = 40.0

    @property
    def across(self) -> tuple[float, float]:
        """The horizontal ends of the plotted area."""
        return self.left, self.width - self.right

    @property
    def upward(self) -> tuple[float, float]:
        """The vertical ends of the plotted area, the lower one first."""
        return self.height - self.bottom, self.top


def draw_axes(frame: Canvas, x: ChartAxis, y: ChartAxis) -> Markup:
    """Return grid lines, tick labels that do not overlap, and titles with units."""
    (left, right), (bottom, top) = frame.across, frame.upward
    parts: list[Markup] = []
    for value, text in y.labels:
        at = y.scale(value)
        parts.append(tag("line", class_="grid", x1=left, x2=right, y1=at, y2=at))
        parts.append(tag("text", text, class_="tick", x=left - 6, y=at + 4, text_anchor="end"))
    for value, text in spread(x.labels, x.scale):
        at = x.scale(value)
        parts.append(tag("line", class_="grid", x1=at, x2=at, y1=top, y2=bottom))
        place = min(at, frame.width - len(text) * LETTER / 2)
        parts.append(_below(text, place, bottom))
    parts.append(tag("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
    parts.append(tag("text", y.caption, class_="title", x=2, y=12))
    parts.append(
        tag("text", x.caption, class_="title", x=right, y=frame.height - 5, text_anchor="end")
    )
    return joined(parts)


def _below(text: str, x: float, bottom: float) -> Markup:
    return tag("text", text, class_="tick", x=x, y=bottom + 15, text_anchor="middle")


def spread(labels: Sequence[tuple[float, str]], scale: Scale) -> list[tuple[float, str]]:
    """Return the labels that fit side by side, from the first on."""
    kept: list[tuple[float, str]] = []
    end = -math.inf
    for value, text in labels:
        half = len(text) * LETTER / 2
        if scale(value) - half >= end + LETTER:
            kept.append((value, text))
            end = scale(value) + half
    return kept
