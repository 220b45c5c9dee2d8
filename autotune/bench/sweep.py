"""Benchmark sweeps: models x targets x threads x batch sizes x logs, one cell after another."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...ir.errors import ArgumentError, NestwrightError
from ...ir.frontends.registry import Shapes
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
from .peers.table import ways_of
from .subject import BenchModel, name_of

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
    batch: int | Sequence[int] | None = None,
    peers: Sequence[str] = (),
    callers: Sequence[int] = (),
    attribute: float = 0.0,
) -> BenchReport:
    """Time models built with default schedules and with the best schedules of a log.

    Models, ``excess_precision``, ``weights`` and ``shapes`` are as for ``build``; ``example`` are
    the arguments of models that are functions. Several targets, logs, numbers of threads or batch
    sizes make a sweep: a cell of the report for each combination. A log is used for all models;
    without one, each model's default log is used if it exists. A ``batch`` is the first size of
    the inputs that leave it open. ``peers`` are timed in the same turns on the same arrays:
    ``peers.table.PEERS``; ``callers`` are numbers of threads whose throughput is measured.
    ``check`` compares results with the interpreter's. A model that cannot be built is a cell with
    its problem, and the sweep continues. ``attribute`` seconds per cell go to measuring why the
    winners won: their decisions are put back to the default's one at a time. ``progress`` is called
    with a line of text at each step.
    """
    tell = progress or (lambda text: None)
    machines = [_Machine.of(t, n) for t in _each(target) for n in _each(threads)]
    for m in machines:
        require_timeable(m.target, "time")
    ways = ways_of(peers)
    plan = CellPlan(
        constants or {},
        seed,
        check,
        excess_precision,
        weights,
        ways,
        tuple(callers),
        tell,
        attribute,
    )
    tell("measuring the machine's peaks")
    began, load = time.time(), load_now()
    peaks = {m: measure_peak(m.target) for m in machines}
    trusts = [trust(n) for n in sorted({m.target.threads for m in machines})]
    logs = _Logs()
    cells = [
        cell
        for model in _each(models)
        for size in _each(batch)
        for cell in _cells(_Model(model, size, shapes, example), machines, _each(log), plan, logs)
    ]
    return BenchReport(
        machine_facts(),
        (load, load_now()),
        versions(dict.fromkeys(w.package for w in ways)),
        seed,
        began,
        tuple(cells),
        tuple(TargetPeak(m.name, m.target.threads, peak) for m, peak in peaks.items()),
        tuple(logs.facts.values()),
        tuple(f"{counted(t.threads, 'thread')}: {t.told}" for t in trusts if t.level != "good"),
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
class _Model:
    """A model of the sweep as it was given, and the batch size that it is to have."""

    model: GraphLike
    batch: int | None
    shapes: Shapes | None
    example: Any

    @property
    def name(self) -> str:
        """A name for it, before it is read."""
        found = getattr(self.model, "__name__", type(self.model).__name__)
        return name_of(self.model) or str(found)

    def problem(self, error: NestwrightError) -> str:
        """Return an error's message without the folder of the model's file."""
        told = str(error)
        if isinstance(self.model, str | os.PathLike):
            folder = str(Path(self.model).parent)
            return told.replace(f"{folder}{os.sep}", "") if folder != "." else told
        return told


def _cells(
    given: _Model,
    machines: Sequence[_Machine],
    chosen: Sequence[LogLike | None],
    plan: CellPlan,
    logs: _Logs,
) -> Iterator[CellBench]:
    """Yield the cells of one model at one batch size; it is read once."""
    places = list(itertools.product(machines, chosen))
    keys = [CellKey(given.name, m.name, m.target.threads, given.batch) for m, _ in places]
    try:
        subject = BenchModel.read(given.model, given.batch, given.shapes, given.example)
    except NestwrightError as e:
        yield from (CellBench(key, problem=given.problem(e)) for key in keys)
        return
    for key, (machine, asked) in zip(keys, places, strict=True):
        here = replace(key, model=subject.name)
        plan.tell(str(here))
        try:
            used, history = logs.find(asked, subject.name, machine.target)
            here = replace(here, log=used)
            yield bench_cell(here, subject, machine.target, history, plan)
        except NestwrightError as e:
            yield CellBench(here, problem=given.problem(e))
