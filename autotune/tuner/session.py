"""A call of ``tune``: its budget and options, from the tasks of a model to the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path

from ...codegen.driver.build import PreparedModule
from ...ir.errors import ArgumentError, TargetError
from ...ir.hlo.analysis.inputs import require_seed
from ...ir.target import Target, keeping
from ..calibrate.take import calibrated
from ..fleet.fleet import Fleet
from ..fleet.identity import question
from ..fleet.worker_pool import ExecutorPool, WorkerPool
from ..log.automatic import automatic_log
from ..log.best import AUTO, warn_of
from ..log.contents import Log
from ..log.journal import LogWriter, read
from ..log.records import device_id
from ..log.tool import tool_versions
from ..measure.estimate import Estimator
from ..measure.machine import machine_class, require_timeable
from ..measure.pool import Pool
from ..measure.protocol import Measurer
from ..search.space import Point
from ..tasks.extract import Task, priced
from .budget import Budget
from .plan import STRATEGIES, TuningPlan
from .progress import Listener, TuneResult
from .seeding import seeds
from .tune import Tuner

LOGS = Path("tuning_logs")
ESTIMATES = "simulate_cost=True (--simulate-cost) ranks schedules without measuring"


@dataclass(frozen=True, slots=True)
class Subject:
    """The name and tasks of a model, and how the whole is built (None for one function)."""

    name: str
    tasks: tuple[Task, ...]
    builder: PreparedModule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSession:
    """The options of a call of ``tune``, which documents them; its time budget starts here.

    Schedules are tuned with denormals kept, and serve builds that flush them as well.
    """

    target: Target
    trials: int = 500
    seconds: float | None = None
    log: str | os.PathLike[str] | None = None
    seed: int = 0
    resume: bool = True
    workers: int | None = None
    strategy: str = "native"
    progress: Listener | None = None
    simulate_cost: bool = False
    executor: Executor | WorkerPool | None = None
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "trials", int(self.trials))
        object.__setattr__(self, "seed", int(self.seed))
        seconds = None if self.seconds is None else float(self.seconds)
        object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "budget", Budget(seconds))
        object.__setattr__(self, "target", keeping(self.target))

    def run(self, find: Callable[[], Subject]) -> TuneResult:
        """Tune the subject that ``find`` returns; raises as ``tune``."""
        machine = self._machine()
        subject = find()
        here, note = (machine, "") if self._elsewhere else calibrated(machine, self.seconds)
        path = self.log_path(subject)
        tool = tool_versions()
        with self._measurer(machine, path) as measurer, LogWriter(path, tool) as writer:
            before = read(path)
            warn_of(before)
            plan = self._plan(subject, here, note, before, tool)
            if isinstance(measurer, Fleet):
                plan = replace(plan, machine=measurer.machine, peaks=measurer.peaks)
            tuner = Tuner(
                plan, writer, before, measurer, self.progress, subject.builder, self.budget
            )
            with closing(tuner):
                return tuner.run()

    @property
    def _elsewhere(self) -> bool:
        """True if nothing is measured on this machine, as far as is known."""
        return self.simulate_cost or self.executor is not None

    def _machine(self) -> Target:
        """Return the target; ``TargetError`` if nothing can be measured for it."""
        if self.simulate_cost and self.executor is not None:
            why = "with simulate_cost nothing is measured, on any machine"
            raise ArgumentError(f"executor={self.executor!r}", why)
        if not self.simulate_cost:
            require_timeable(self.target, "tune for", ESTIMATES)
        return self.target if self._elsewhere else _runnable(self.target)

    def _measurer(self, target: Target, log: Path) -> Measurer:
        if self.simulate_cost:
            return Estimator()
        if self.executor is None:
            return Pool(target.threads, self.workers)
        pool = self.executor
        if not isinstance(pool, WorkerPool):
            pool = ExecutorPool(pool, self.workers)
        device, before = device_id(target), read(log) if log.exists() else Log(())
        kinds = {t.machine for t in before.trials if t.device == device and t.machine}
        return Fleet(pool, question(target, next(iter(kinds), "")))

    def log_path(self, subject: Subject) -> Path:
        """Return the path of the log that is written."""
        if self.log is None or self.log == AUTO:
            return default_log(subject.name, self.target)
        return Path(self.log)

    def _plan(
        self, subject: Subject, here: Target, note: str, before: Log, tool: dict[str, str]
    ) -> TuningPlan:
        known, trials = {t.key for t in subject.tasks}, self.trials
        if not self.resume:
            trials += sum(t.workload in known for t in before.trials)
        tasks = subject.tasks
        if here is not self.target:
            tasks = tuple(priced(t, here) for t in tasks)
        return TuningPlan(
            model=subject.name,
            target=here,
            tasks=tasks,
            trials=trials,
            seconds=self.seconds,
            seed=self.seed,
            strategy=self.strategy,
            workers=self.workers,
            tool=tuple(tool.items()),
            estimate=self.simulate_cost,
            notes=(note,),
            seeds=_seeds(tasks, self.target) if self.log == AUTO else {},
            machine="" if self._elsewhere else machine_class(here),
        )

    def _check(self) -> None:
        trials, seconds, workers, log = self.trials, self.seconds, self.workers, self.log
        if not isinstance(trials, Integral) or trials < 1:
            raise ArgumentError(f"trials={trials!r}", "at least one trial is needed, as an integer")
        if seconds is not None and not (isinstance(seconds, Real) and seconds > 0):
            raise ArgumentError(f"seconds={seconds!r}", "a positive time is needed, as a number")
        if workers is not None and not (isinstance(workers, Integral) and workers > 0):
            raise ArgumentError(f"workers={workers!r}", "at least one is needed, as an integer")
        if self.progress is not None and not callable(self.progress):
            raise ArgumentError(f"progress={self.progress!r:.60}", "it is a function of one event")
        if not isinstance(log, str | os.PathLike | None):
            raise ArgumentError(f"log={log!r}", "it is not a path")
        if not isinstance(self.strategy, str):
            raise ArgumentError(f"strategy={self.strategy!r}", "it is not a name", hint=STRATEGIES)
        require_seed(self.seed)


def _seeds(tasks: Sequence[Task], target: Target) -> dict[str, tuple[Point, ...]]:
    """Return the points to try first, by a task's key, from all logs that are found."""
    held = automatic_log()
    return {t.key: tuple(seeds(t, held, target)) for t in tasks}


def default_log(name: str, target: Target) -> Path:
    """Return the default path of a log, under the working directory."""
    return LOGS / target.key / f"{name}.jsonl"


def _runnable(target: Target) -> Target:
    if not target.is_host:
        raise TargetError(
            f"cannot tune for {target.spec}",
            f"this machine cannot run its code: it lacks {', '.join(target.missing)}",
            hint=f"tune on such a machine, or on a cluster of them (executor=, --scheduler); "
            f"{ESTIMATES}",
        )
    return target
