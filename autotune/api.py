"""``tune``: search for faster schedules of a model, and log what is found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..codegen.driver.build import PreparedModule
from ..ir.errors import ArgumentError, TargetError
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import as_model, imported
from ..ir.loop.nodes import Func
from ..ir.target import Target, with_accuracy
from ..schedule.language.schedule import Schedule
from .budget import Budget
from .build import AUTO, Constants, ModelLike, check_constants, warn_of
from .calibrate.take import calibrated
from .log.journal import LogWriter, read
from .log.shelf import shelved
from .measure.estimate import Estimator
from .measure.machine import require_timeable
from .measure.pool import Pool
from .plan import TuningPlan
from .progress import Listener, TuneResult
from .search.space import Point
from .seeding import seeds
from .tasks.extract import Task, extract, from_func, priced
from .tune import Tuner

LOGS = Path("tuning_logs")


def tune(
    model: ModelLike,
    target: str | Target = "cpu",
    trials: int = 500,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    constants: Constants | None = None,
    resume: bool = True,
    workers: int | None = None,
    strategy: str = "native",
    progress: Listener | None = None,
    simulate_cost: bool = False,
    example: Any = None,
    excess_precision: bool = True,
    weights: str | None = None,
    accuracy: float | None = None,
    freeze: bool = True,
) -> TuneResult:
    """Search for faster schedules of a model's groups, and log them.

    ``model``, ``example``, ``excess_precision``, ``weights``, ``accuracy`` and ``freeze`` are as
    for ``build``. For a ``Schedule`` its function is tuned, unless it has holes (``sample_tile``,
    ``sample_choice``): then those are. ``trials`` is the total for this model in the log, including
    earlier calls; with ``resume`` false it counts new trials only. ``seconds`` limits the wall time
    of the call, including the final races. ``constants`` maps parameter numbers or names to arrays
    that are frozen. ``workers`` is the number of measuring children, ``strategy`` is native, prior
    (the same without a learned model), random or optuna:tpe. ``progress`` is called with a
    ``Progress`` after every trial. With ``simulate_cost`` schedules are only ranked by the analytic
    model, for a machine that need not be present; ``build`` uses such records for workloads that
    were never measured.

    With ``log="auto"`` the default log is written, and each task begins with what won for it on
    near machines, or for groups that differ in their sizes only, in all logs that are found.

    Raises ``TuningInterrupted`` (a ``KeyboardInterrupt``) on Ctrl-C; no trial is lost.
    """
    budget = Budget(seconds)
    asked = with_accuracy(target, accuracy)
    machine = asked if simulate_cost else _runnable(asked)
    name, tasks, builder = _tasks(
        model, machine, constants, example, excess_precision, weights, freeze
    )
    here, note = (machine, "") if simulate_cost else calibrated(machine, seconds)
    if here is not machine:
        tasks = tuple(priced(t, here) for t in tasks)
    path = default_log(name, machine) if log is None or log == AUTO else Path(log)
    _check_budget(trials, seconds)
    tool = _tool()
    with (
        LogWriter(path, tool) as writer,
        Estimator() if simulate_cost else Pool(machine.threads, workers) as measurer,
    ):
        before = read(path)
        warn_of(before)
        known = {t.key for t in tasks}
        if not resume:
            trials += sum(t.workload in known for t in before.trials)
        plan = TuningPlan(
            name,
            here,
            tasks,
            trials,
            seconds,
            seed,
            strategy,
            workers,
            tuple(tool.items()),
            simulate_cost,
            (note,),
            _seeds(tasks, machine) if log == AUTO else {},
        )
        with closing(Tuner(plan, writer, before, measurer, progress, builder, budget)) as tuner:
            return tuner.run()


def _seeds(tasks: Sequence[Task], target: Target) -> dict[str, tuple[Point, ...]]:
    """Return the points to try first, by a task's key, from all logs that are found."""
    held = shelved()
    return {t.key: tuple(seeds(t, held, target)) for t in tasks}


def default_log(name: str, target: Target) -> Path:
    """Return the default path of a log, under the working directory."""
    return LOGS / target.key / f"{name}.jsonl"


def _tasks(
    model: ModelLike,
    target: Target,
    constants: Constants | None,
    example: Any,
    excess_precision: bool,
    weights: str | None,
    freeze: bool,
) -> tuple[str, tuple[Task, ...], PreparedModule | None]:
    """Return a model's name, its tasks, and its prepared module (None for a single function)."""
    check_constants(constants)
    if isinstance(model, Func | Schedule):
        name = model.name if isinstance(model, Func) else model.func.name
        func = model.func if isinstance(model, Schedule) and not model.holes else None
        return name, from_func(model if func is None else func, target), None
    known = as_model(model, example)
    found = imported(known)
    name = found.module.name if isinstance(known, Imported) else Path(known).stem
    frozen = found.constants(constants or {}, freeze)
    builder = PreparedModule(
        found.module, target, frozen, excess_precision=excess_precision, weights=weights
    )
    return name, extract(builder.optimized, target, groups=builder.groups), builder


def _runnable(target: Target) -> Target:
    hint = "simulate_cost=True (--simulate-cost) ranks schedules without measuring"
    require_timeable(target, "tune for", hint)
    if not target.is_host:
        raise TargetError(
            f"cannot tune for {target.spec}",
            "this machine cannot run its code",
            hint="tune on such a machine; simulate_cost=True (--simulate-cost) ranks schedules "
            "without measuring",
        )
    return target


def _check_budget(trials: int, seconds: float | None) -> None:
    if not isinstance(trials, int) or trials < 1:
        raise ArgumentError(f"trials={trials}", "at least one trial is needed")
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise ArgumentError(f"seconds={seconds}", "a positive time is needed")


def _tool() -> dict[str, str]:
    """Return the versions that determine the generated code, for the log."""
    found = {}
    for package in ("nestwright", "llvmlite"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a source tree that is not installed
            continue
    return found
