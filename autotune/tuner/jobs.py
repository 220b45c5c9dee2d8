"""Jobs for the measuring children: candidates of a task, and the limits of each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import cast

from ...ir.target import Target
from ..log.records import Json
from ..measure.machine import measure_rate, measure_stream, meter_row
from ..measure.protocol import Candidate, Job, Limits
from ..search.space import Point, Space
from ..tasks.extract import Task
from .floor import least_seconds

FILL = 0.05  # seconds for which a promising candidate is timed
RACE_FILL = 0.04  # the same for each candidate of a race
RUN_LIMIT = 20.0  # seconds for a candidate before any has succeeded, in addition to its work:
PACES = (1e9, 1e8)  # operations and bytes per second of the slowest schedule worth waiting for
CALLS = 40  # limit on a candidate's seconds for all of its calls, in runs of the best schedule
BESIDE = {"measure": 2.0, "race": 4.0}  # seconds that it may take in addition to these runs
MEMORY = 6 << 30  # bytes of address space of a child, in addition to 16 times those of the task


@dataclass(slots=True)
class JobMaker:
    """Makes the jobs of a tuning for a target; ``folder`` is for the tasks' reference results.

    ``rate`` and ``stream`` are the machine's peaks, as of ``least_seconds``; 0 if unknown.
    """

    target: Target
    seed: int
    folder: Path
    rate: float = 0.0
    stream: float = 0.0
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def know_peaks(self, peaks: tuple[float, float] | None) -> None:
        """Take the peaks of the machines that measure; measure this one's for None."""
        self.rate, self.stream = peaks or (measure_rate(self.target), measure_stream(self.target))

    def job(self, task: Task, kind: str, candidates: tuple[Candidate, ...], best: float) -> Job:
        """Return a job; ``best`` is the task's best time so far in seconds, or infinite."""
        known = math.isfinite(best)
        fill = RACE_FILL if kind == "race" else FILL
        run = BESIDE["measure"] + CALLS * best
        if not known:
            run = RUN_LIMIT + task.flops / PACES[0] + task.bytes / PACES[1]
        if kind == "race":
            run = BESIDE["race"] + 4 * len(candidates) * (fill + CALLS * best)
        limited = meter_row(self.target).limited
        limits = Limits(run=run, memory=int(MEMORY + 16 * task.bytes) if limited else 0)
        number = next(self._numbers)
        job = race_of(number, task, self.target, candidates, self.folder, self.seed, limits)
        floor = least_seconds(task, self.rate, self.stream, self.target)
        incumbent = best if known else 0.0
        return replace(job, kind=kind, incumbent=incumbent, fill=fill, floor=floor)


def race_of(
    number: int,
    task: Task,
    target: Target,
    candidates: tuple[Candidate, ...],
    folder: Path,
    seed: int,
    limits: Limits,
) -> Job:
    """Return a race of a task's candidates; each run finds the caches as it does in the model.

    ``folder`` is for the task's reference results.
    """
    return Job(
        number=number,
        kind="race",
        key=task.key,
        form=task.program.form,
        text=task.program.text,
        target=target.spec,
        candidates=candidates,
        reference=str(folder / f"{task.key}.npz"),
        seed=seed,
        reuse=task.reuse,
        limits=limits,
    )


def candidate(space: Space, point: Point) -> Candidate:
    """Return a point of a space as children get it."""
    sketch, choices = space.sketches[point.sketch], space.choices(point)
    trace = None if sketch.trace is None else sketch.trace(choices)
    decisions = cast("dict[str, Json]", choices)
    return Candidate(sketch.name, decisions, cast("list[Json] | None", trace))
