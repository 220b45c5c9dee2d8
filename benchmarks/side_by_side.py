"""Timing of calls against each other: in turn, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
ROOT = Path(__file__).parents[1]


def seconds_of(call: Call, repeat: int) -> float:
    """Seconds of one of ``repeat`` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat


def medians(
    calls: Mapping[str, Call], seconds: float = 1.0, pause: float = 0.0
) -> dict[str, float]:
    """Seconds of one call of each, the median of many rounds in which each has its turn.

    A turn is long enough for the clock (about a millisecond); all rounds together take about
    ``seconds`` for each call. Where the calls belong to runtimes with threads of their own, a turn
    begins with a ``pause`` in seconds and with untimed calls for a tenth of that, two at least: the
    threads of the runtime before spin while they wait for work, on the processors that this one
    needs, its data fill the caches, and this one's threads are asleep.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        repeats[name] = max(1, round(1e-3 / max(seconds_of(call, 1), 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(next(iter(found.values()))) < 7:
        for name, call in calls.items():
            if pause:
                time.sleep(pause)
                _warm(call, pause / 10)
            found[name].append(seconds_of(call, repeats[name]))
    return {name: statistics.median(times) for name, times in found.items()}


def _warm(call: Call, seconds: float) -> None:
    """Call it twice, and on until so much time is over."""
    end = time.perf_counter() + seconds
    call()
    call()
    while time.perf_counter() < end:
        call()


def show_seconds(s: float) -> str:
    """Return ``s`` in a unit that gives few digits before the point."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if s >= scale:
            return f"{s / scale:.3g} {unit}"
    return f"{s / 1e-9:.0f} ns"
