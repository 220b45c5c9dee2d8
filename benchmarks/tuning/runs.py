"""Tuning and races for the tables: one pool of measuring children, one folder of logs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nestwright.autotune.calibrate.take import calibrated
from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.journal import LogWriter, read
from nestwright.autotune.log.records import DEFAULT_SKETCH, Best, Json, device_id, typical
from nestwright.autotune.measure.compare import SpeedComparison
from nestwright.autotune.measure.machine import measure_rate, measure_stream
from nestwright.autotune.measure.pool import Pool
from nestwright.autotune.measure.protocol import Candidate, Job, Limits
from nestwright.autotune.tasks.extract import Task, extract, priced
from nestwright.autotune.tuner.jobs import JobMaker
from nestwright.autotune.tuner.modelrace import time_models
from nestwright.autotune.tuner.plan import TuningPlan
from nestwright.autotune.tuner.tune import Tuner
from nestwright.codegen.driver.build import PreparedModule
from nestwright.codegen.plan.saved.write import write
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.frontends.load import as_module
from nestwright.ir.target import Target
from nestwright.schedule.language.trace import Trace

LIMIT = 300.0  # seconds for all candidates of a job
RACE = 6.0  # seconds for a race of two models


@dataclass(frozen=True)
class Workbench:
    """A machine to measure on, and a folder for logs; what a log there has is not measured again.

    ``until`` is the time of ``time.monotonic`` at which to begin nothing more.
    """

    target: Target
    pool: Pool
    folder: Path
    until: float

    @property
    def over(self) -> bool:
        """True if the time is up."""
        return time.monotonic() >= self.until

    @property
    def device(self) -> str:
        """The device id of trials."""
        return device_id(self.target)

    def log(self, *names: object) -> Path:
        """Return the path of a log."""
        return self.folder / ("-".join(map(str, names)).replace(":", "_") + ".jsonl")

    def prepared(self, model: Any, frozen: Mapping[int, Any] | None = None) -> PreparedModule:
        """Return a model as ``build`` prepares it, from a module or a path."""
        constants = dict(frozen) if frozen else None
        return PreparedModule(as_module(model), self.target, constants)

    def tasks(self, builder: PreparedModule) -> tuple[Task, ...]:
        """Return the tasks of a model, the heaviest first, with estimates for this very machine."""
        here, _ = calibrated(self.target, None)
        found = extract(builder.optimized, self.target, groups=builder.groups)
        return tuple(priced(t, here) for t in found) if here is not self.target else found

    def tuned(self, task: Task, path: Path, trials: int, seed: int = 0, by: str = "native") -> Log:
        """Tune a task alone; return its log."""
        with LogWriter(path, {}) as writer:
            plan = TuningPlan(task.name, self.target, (task,), trials, None, seed, by)
            with closing(Tuner(plan, writer, read(path), self.pool, None)) as tuner:
                tuner.run()
        return read(path)

    def best(self, task: Task, log: Log) -> Best | None:
        """Return the winner of a task in a log."""
        return log.best(self.device).get(task.key)

    def raced(self, task: Task, schedules: Sequence[Best]) -> list[float]:
        """Return the seconds per call of schedules of a task, timed in turns; empty if one fails.

        Equal schedules are timed once.
        """
        kinds: dict[str, Candidate] = {}
        for s in schedules:
            kinds.setdefault(repr(s.trace), _candidate(s))
        job = self.job(task, "race", tuple(kinds.values()))
        for _, outcomes in self.pool.run([job]):
            if all(o.status == "ok" for o in outcomes):
                times = dict(zip(kinds, (typical(o.runs) for o in outcomes), strict=True))
                return [times[repr(s.trace)] for s in schedules]
        return []

    def job(self, task: Task, kind: str, candidates: tuple[Candidate, ...]) -> Job:
        """Return a job on schedules of a task, of whose times nothing is known."""
        made = JobMaker(self.target, 0, self.folder).job(task, kind, candidates, math.inf)
        return replace(made, limits=Limits(run=LIMIT))

    def compared(self, builder: PreparedModule, log: Log | None) -> SpeedComparison | None:
        """Race a model with a log's winners against its default; None if both are the same."""
        winners = {} if log is None else log.winners(self.target, builder.groups.distinct)
        traces = {
            k: Trace.from_json(b.trace) for k, b in winners.items() if b.sketch != DEFAULT_SKETCH
        }
        if log is not None and not traces:
            return None
        return self.compare(builder.build({}), builder.build(traces))

    def compare(self, first: Executable, second: Executable) -> SpeedComparison:
        """Race two built models."""
        places = self.folder / "first.nw", self.folder / "second.nw"
        for exe, place in zip((first, second), places, strict=True):
            write(exe.bundle, place, durable=False)
        found = time_models(places, self.target, self.pool, 0, RACE)
        for place in places:
            place.unlink()
        if isinstance(found, str):
            raise RuntimeError(f"the model cannot be timed: {found}")
        return found

    def machine(self) -> dict[str, Json]:
        """Return what is known of the machine, for the head of a table."""
        return {
            "cpu": self.target.cpu,
            "key": self.target.key,
            "threads": self.target.threads,
            "cores": self.target.cores,
            "gflops": measure_rate(self.target) / 1e9,
            "gigabytes": measure_stream(self.target) / 1e9,
            "load": os.getloadavg()[0],
        }


def _candidate(best: Best) -> Candidate:
    return Candidate(best.sketch, best.decisions, best.trace or None)


def frozen_beside(path: str | os.PathLike[str]) -> dict[int, Any] | None:
    """Return the arrays in the ``.npz`` beside a model, by parameter number; None without one."""
    place = Path(path).with_suffix(".npz")
    if not place.exists():
        return None
    with np.load(place) as held:
        return {int(name): held[name] for name in held.files}
