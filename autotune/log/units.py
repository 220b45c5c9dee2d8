"""Formatting of times, rates and shares for tables, progress lines and reports."""

from __future__ import annotations

import math


def duration(seconds: float | None) -> str:
    """Format a time with a suitable unit; a dash for none."""
    if not seconds or not math.isfinite(seconds):
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def rate(per_second: float) -> str:
    """Format a rate in units of 1e9; a dash for none."""
    return f"{per_second / 1e9:.1f}" if per_second else "–"


def share(part: float) -> str:
    """Format a share in percent; a dash for none."""
    return f"{100 * part:.0f} %" if part else "–"


def clock(seconds: float | None) -> str:
    """Format a time as minutes:seconds."""
    whole = int(max(0.0, seconds or 0.0))
    return f"{whole // 60}:{whole % 60:02d}"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: 1 trial, 2 trials."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def span(seconds: tuple[float, float]) -> str:
    """Format a range of times as minutes:seconds; a single time if both ends look the same."""
    low, high = (clock(s) for s in seconds)
    return low if low == high else f"{low} to {high}"
