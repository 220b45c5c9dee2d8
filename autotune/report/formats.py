"""Figures as text for the page's tables, always with a unit or a column that names it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..bench.data import WayBench
from .charts.axes import SECONDS, WALL, figure

DASH = "–"


def seconds(value: float | None) -> str:
    """Return a time of a call with three digits; a dash for none."""
    return SECONDS.text(value) if value else DASH


def wall(value: float) -> str:
    """Return a time of work that a person waits for."""
    return WALL.text(value) if value >= 1 else "under 1 s"


def percent(value: float | None) -> str:
    """Return a share in percent."""
    if value is None:
        return DASH
    shown = 100 * value
    return f"{shown:.0f} %" if shown >= 9.5 or shown == 0 else f"{shown:.1f} %"


def spread(value: float) -> str:
    """Return a relative difference; a dash if it is not known."""
    return percent(value) if math.isfinite(value) else DASH


def rate(value: float) -> str:
    """Return a rate in units of 1e9 per second."""
    return figure(value / 1e9) if value else DASH


def amount(value: float) -> str:
    """Return a number of operations or bytes with a decimal prefix."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{figure(value / size)} {prefix}"
    return figure(value) if value else "0"


def size(value: object) -> str:
    """Return the size of a cache in binary units."""
    if not isinstance(value, int | float) or not value:
        return DASH
    return f"{value / (1 << 20):g} MiB" if value >= 1 << 20 else f"{value / 1024:g} KiB"


def count(value: int) -> str:
    """Return a whole number with separators."""
    return f"{value:,}"


def bound(value: float) -> str:
    """Return the upper end of an interval."""
    return f"{value:.2f}" if math.isfinite(value) else "unknown"


def date(value: float) -> str:
    """Return a time since 1970 as a date with hours and minutes."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))


def way(value: WayBench | None) -> str:
    """Return the time of a way; a dash if it did not run."""
    return seconds(value.seconds) if value is not None else DASH


FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {f.__name__: f for f in (seconds, wall, percent, spread, rate, amount, count, bound, date, way)}
)
