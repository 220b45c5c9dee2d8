"""Seeds of a task: winners of the same group on near machines, and of groups of the same form."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...ir.errors import NestwrightError
from ...ir.hlo.text.canonical import form_and_sizes
from ...ir.target import Target
from ..log.automatic import family, machine_of
from ..log.contents import Log
from ..log.records import DEFAULT_SKETCH, LIBRARY_SKETCH, Best
from ..search.seeds import nearest_point
from ..search.space import Point
from ..tasks.extract import Task

SEEDS = 4  # of a task, at most


def seeds(task: Task, log: Log, target: Target) -> list[Point]:
    """Return the points of a task's space that are nearest to winners in a log, nearest first.

    The same group on the nearest machine comes first, then groups that differ in their sizes only.
    """
    found: dict[Point, None] = {}
    for best in _winners(task, log, target):
        point = nearest_point(task.space, best.sketch, best.decisions)
        if point is not None:
            found.setdefault(point)
    return list(found)[:SEEDS]


def _winners(task: Task, log: Log, target: Target) -> Iterator[Best]:
    """Yield the winners of groups of a task's form, the nearest first."""
    form, sizes = form_and_sizes(task.program.text)
    near: list[tuple[float, int, str, Best]] = []
    for device in log.devices:
        apart = _apart(log, device, target)
        for workload, best in log.best(device).items() if apart is not None else ():
            known = log.workloads.get(workload)
            if known is None or best.sketch in (DEFAULT_SKETCH, LIBRARY_SKETCH):
                continue
            other, others = form_and_sizes(known.text)
            if other == form and known.form == task.program.form and apart is not None:
                near.append((_distance(sizes, others), apart, workload, best))
    return (best for *_, best in sorted(near, key=lambda row: row[:3]))


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    return sum(abs(math.log2(max(1, x) / max(1, y))) for x, y in zip(a, b, strict=True))


def _apart(log: Log, device: str, target: Target) -> int | None:
    """Return how far a device is: 0 the same, 1 its family, 2 the same width of vectors.

    None for others.
    """
    if device.rpartition("-t")[0] == target.key:
        return 0
    try:
        other = machine_of(log.devices[device])
    except NestwrightError:
        return None
    if family(other) == family(target):
        return 1
    same = (other.row, other.vector_bits) == (target.row, target.vector_bits)
    return 2 if same else None
