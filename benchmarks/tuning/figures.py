"""The arithmetic of the tables: nothing here measures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.records import Trial, quantile


def geomean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers; NaN of none."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def median(values: Sequence[float]) -> float:
    """Return the median; NaN of none."""
    return quantile(tuple(values), 0.5) if values else math.nan


def apart(first: float, second: float) -> float:
    """Return by which share the larger of two times exceeds the smaller."""
    return max(first, second) / min(first, second) - 1


def costs(log: Log, workload: str, device: str) -> dict[object, float]:
    """Return the logged cost in seconds of each schedule of a task that ran."""
    return {t.point: t.cost for t in log.trials_of(workload, device) if t.ran}


def disagreements(first: Mapping[object, float], second: Mapping[object, float]) -> list[float]:
    """Return how far apart the costs are of each schedule that two tunings have in common."""
    return [apart(first[p], second[p]) for p in first if p in second]


def above_peak(trials: Iterable[Trial], least: Mapping[str, float], slack: float) -> list[Trial]:
    """Return the trials that claim a time below what the machine takes at least for their task.

    ``least`` are these seconds by workload, ``slack`` the factor by which they may be too long.
    """
    return [t for t in trials if t.ran and t.cost < least.get(t.workload, 0.0) / slack]


def reached(curve: Sequence[tuple[float, float]], share: float) -> float:
    """Return when a falling curve of (seconds of tuning, seconds of the model) comes near its end.

    That is the first moment from which the final time is at least ``share`` of the current one.
    NaN without a point.
    """
    if not curve:
        return math.nan
    final = curve[-1][1]
    return next(at for at, seconds in curve if final >= share * seconds)
