"""Benchmark sweeps: models x targets x threads x batch sizes x logs, one cell after another."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...ir.errors import ArgumentError, NestwrightError
from ...ir.frontends.registry import Shapes
from ...ir.target import Target
from ..log.units import counted
from ..measure.host.trust import trust
from ..measure.machine import measure_peak, require_timeable
from ..recipe import Constants, GraphLike
from .cell import CellPlan, bench_cell
from .data import BenchReport, CellBench, CellKey, TargetPeak
from .facts import load_now, machine_facts, versions, without_folders
from .logs import BenchLogs, LogLike
from .peers.table import ways_of
from .subject import BenchModel, name_of

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
    profile: bool = False,
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
    winners won: their decisions are put back to the default's one at a time. ``profile`` adds the
    tuned build's to each cell. ``progress`` is called with a line of text at each step.
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
        profile,
    )
    tell("measuring the machine's peaks")
    began, load = time.time(), load_now()
    peaks = {m: measure_peak(m.target) for m in machines}
    trusts = [trust(n) for n in sorted({m.target.threads for m in machines})]
    logs, names = BenchLogs(), _names(_each(models))
    cells = [
        cell
        for model, name in zip(_each(models), names, strict=True)
        for size in _each(batch)
        for cell in _cells(
            _Model(model, name, size, shapes, example), machines, _each(log), plan, logs
        )
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
        (
            *(f"{counted(t.threads, 'thread')}: {t.told}" for t in trusts if t.level != "good"),
            *logs.warnings,
        ),
    )


def _names(models: Sequence[GraphLike]) -> list[str]:
    """Return a name for each model; those that would have the same one are numbered."""
    seen: Counter[str] = Counter()
    found = []
    for model in models:
        name = name_of(model)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


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


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of the sweep as it was given, and the batch size that it is to have."""

    model: GraphLike
    name: str
    batch: int | None
    shapes: Shapes | None
    example: Any

    def problem(self, error: NestwrightError, log: LogLike | None = None) -> str:
        """Return an error's message without the folders of the model's file and the log's."""
        files = [f for f in (self.model, log) if isinstance(f, str | os.PathLike)]
        return without_folders(str(error), map(Path, files))


def _cells(
    given: _Model,
    machines: Sequence[_Machine],
    chosen: Sequence[LogLike | None],
    plan: CellPlan,
    logs: BenchLogs,
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
        plan.tell(str(key))
        here = key
        try:
            used, history = logs.find(asked, subject.name, machine.target)
            here = replace(key, log=used)
            yield bench_cell(here, subject, machine.target, history, plan)
        except NestwrightError as e:
            yield CellBench(here, problem=given.problem(e, asked))
