"""Benchmark sweeps: models x targets x threads x batch sizes x logs, one cell after another."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...ir.errors import ArgumentError, NestwrightError
from ...ir.frontends.imported import Imported
from ...ir.frontends.load import imported
from ...ir.frontends.registry import Shapes
from ...ir.hlo.nodes import HloModule
from ...ir.target import Target
from ..best import AUTO
from ..log.contents import Log
from ..log.journal import read
from ..log.shelf import shelved, with_kin
from ..log.units import counted
from ..measure.machine import measure_peak, require_timeable
from ..measure.trust import trust
from ..recipe import Constants, GraphLike
from ..session import default_log
from .cell import CellPlan, bench_cell
from .data import BenchReport, CellBench, CellKey, LogBench, TargetPeak
from .facts import load_now, log_facts, machine_facts, versions

LogLike = str | os.PathLike[str]
Notify = Callable[[str], object]


def bench(
    models: Sequence[GraphLike] | GraphLike,
    target: str | Target | Sequence[str | Target] = "cpu",
    log: LogLike | Sequence[LogLike] | None = None,
    constants: Constants | None = None,
    threads: int | Sequence[int] | None = None,
    seed: int = 0,
    check: bool = True,
    progress: Notify | None = None,
    example: Any = None,
    excess_precision: bool = True,
    weights: str | None = None,
    shapes: Shapes | None = None,
) -> BenchReport:
    """Time models built with default schedules and with the best schedules of a log.

    Models, ``excess_precision``, ``weights`` and ``shapes`` are as for ``build``; ``example`` are
    the arguments of models that are functions. Several targets, logs or numbers of threads make a
    sweep: a cell of the report for each combination. A log is used for all models; without one,
    each model's default log is used if it exists. ``check`` compares results with the
    interpreter's. A model that cannot be built is a cell with its problem, and the sweep continues.
    ``progress`` is called with a line of text at each step.
    """
    tell = progress or (lambda text: None)
    machines = [_Machine.of(t, n) for t in _each(target) for n in _each(threads)]
    for m in machines:
        require_timeable(m.target, "time")
    tell("measuring the machine's peaks")
    began, load = time.time(), load_now()
    peaks = {m: measure_peak(m.target) for m in machines}
    plan = CellPlan(constants or {}, seed, check, excess_precision, weights, tell)
    logs = _Logs()
    cells = [
        _cell(_Place(model, machine, chosen), plan, logs, example, shapes)
        for model in _each(models)
        for machine, chosen in itertools.product(machines, _each(log))
    ]
    found = [trust(n) for n in sorted({m.target.threads for m in machines})]
    return BenchReport(
        machine_facts(),
        (load, load_now()),
        versions(),
        seed,
        began,
        tuple(cells),
        tuple(TargetPeak(m.name, m.target.threads, peak) for m, peak in peaks.items()),
        tuple(logs.facts.values()),
        tuple(f"{counted(t.threads, 'thread')}: {t.told}" for t in found if t.level != "good"),
    )


def _each(value: Any) -> list[Any]:
    """Return the values of an axis: those of a sequence, or the one that was given."""
    if isinstance(value, str | os.PathLike) or not isinstance(value, Sequence):
        return [value]
    if not value:
        raise ArgumentError("an empty sweep", "an axis has no values", hint="leave it out")
    return list(value)


@dataclass(frozen=True, slots=True)
class _Machine:
    """A target of the sweep, by the ``name`` that was asked for, with a number of threads."""

    name: str
    target: Target

    @staticmethod
    def of(target: str | Target, threads: int | None) -> _Machine:
        """Return the target with so many threads; None for as many as it has by itself."""
        spec = target.spec if isinstance(target, Target) else target
        return _Machine(spec, Target.parse(f"{spec} -threads={threads}" if threads else spec))


@dataclass(slots=True)
class _Logs:
    """The logs that were read, by the path or name that was asked for."""

    read: dict[str, tuple[str, Log]] = field(default_factory=dict)
    facts: dict[str, LogBench] = field(default_factory=dict)

    def find(self, asked: LogLike | None, model: str, target: Target) -> tuple[str, Log]:
        """Return the name and contents of the log for a model; an empty name for none."""
        place = Path(asked) if asked is not None else default_log(model, target)
        if asked is None and not place.exists():
            return "", Log(())
        if asked == AUTO:
            return AUTO, with_kin(shelved(), target)[0]
        if (known := self.read.get(str(place))) is None:
            known = self.read[str(place)] = self._new(place, read(place))
        return known

    def _new(self, place: Path, log: Log) -> tuple[str, Log]:
        name = place.name
        if name in self.facts:
            name = f"{place.parent.name}/{name}"
        self.facts[name] = log_facts(name, log)
        return name, log


@dataclass(frozen=True, slots=True)
class _Place:
    """A model, a machine and a log that meet in a cell."""

    model: GraphLike
    machine: _Machine
    log: LogLike | None


def _cell(
    place: _Place, plan: CellPlan, logs: _Logs, example: Any, shapes: Shapes | None
) -> CellBench:
    model, machine = place.model, place.machine.target
    key = CellKey(_name(model), place.machine.name, machine.threads)
    plan.tell(str(key))
    try:
        known: Imported = imported(model, example if callable(model) else None, shapes)
        name = _name(model) if isinstance(model, str | os.PathLike) else known.module.name
        used, history = logs.find(place.log, name, machine)
        key = replace(key, model=name, log=used)
        return bench_cell(key, known, machine, history, plan)
    except NestwrightError as e:
        return CellBench(key, problem=_relative(str(e), model))


def _relative(text: str, model: GraphLike) -> str:
    """Return a message without the folder of the model's file."""
    if isinstance(model, str | os.PathLike) and (folder := str(Path(model).parent)) != ".":
        return text.replace(f"{folder}{os.sep}", "")
    return text


def _name(model: GraphLike) -> str:
    match model:
        case HloModule(name=name):
            return name
        case str() | os.PathLike():
            return Path(model).stem
        case _:
            return str(getattr(model, "__name__", type(model).__name__))
