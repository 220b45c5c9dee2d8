"""Benchmark sweeps: models x targets x threads x batch sizes x logs, one cell after another."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

from ...codegen.driver.options import BuildOptions
from ...ir.errors import ArgumentError, NestwrightError
from ...ir.frontends.load import recognized
from ...ir.frontends.registry import Shapes
from ...ir.hlo.analysis.inputs import require_seed
from ...ir.hlo.passes.weights.narrow.forms import check_form
from ...ir.target import Target
from ..log.units import counted
from ..measure.host.trust import trust
from ..measure.machine import measure_peak, require_timeable
from ..recipe import Constants, GraphLike
from .cell import CellPlan, bench_cell
from .data import BenchReport, CellBench, CellKey, TargetPeak
from .facts import load_now, machine_facts, versions, without_folders
from .kept import KeptCells, inputs_of
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
    keep: str | os.PathLike[str] | None = None,
) -> BenchReport:
    """Time models built with default schedules and with the best schedules of a log.

    Several targets, logs, numbers of threads or batch sizes make a sweep: each combination is a
    cell of the report. A model that cannot be built is a cell with its problem, and the sweep
    continues. Models, ``constants``, ``excess_precision``, ``weights`` and ``shapes`` are as for
    ``build``; ``example`` are the arguments of models that are functions.

    - ``log``: used for all models; without one, each model's default log if it exists.
    - ``batch``: the first size of the inputs that leave it open.
    - ``threads``: numbers of threads, as many as the target has by default.
    - ``peers``: other runtimes (``peers.table.PEERS``), timed in the same turns on the same arrays.
    - ``callers``: numbers of calling threads whose throughput is measured.
    - ``check``: compare results with the interpreter's.
    - ``seed``: of the random arguments.
    - ``attribute``: seconds per cell for measuring why the winners won: their decisions are put
      back to the default's one at a time.
    - ``profile``: add a profile of the tuned build to each cell.
    - ``keep``: a file in which the report is written after each cell. If it has one of a sweep that
      was interrupted, cells with the same inputs are taken from there and not measured again.
    - ``progress``: is called with a line of text at each step.
    """
    require_seed(seed)
    for n in callers:
        if not isinstance(n, Integral) or n < 1:
            raise ArgumentError(f"callers={n!r}", "at least one is needed, as an integer")
    if not 0 <= attribute < math.inf:
        raise ArgumentError(f"attribute={attribute}", "expected seconds, 0 or more")
    tell = progress or (lambda text: None)
    machines = [
        _Machine.of(t, n, excess_precision, weights) for t in _each(target) for n in _each(threads)
    ]
    for m in machines:
        require_timeable(m.target, "time")
        check_form(weights, m.target)
    ways = ways_of(peers)
    plan = CellPlan(
        constants=constants or {},
        seed=int(seed),
        check=check,
        peers=ways,
        callers=tuple(callers),
        tell=tell,
        attribute=attribute,
        profile=profile,
    )
    names = _names(_each(models))
    wanted = [
        _Model(model, name, size, shapes, example)
        for model, name in zip(_each(models), names, strict=True)
        for size in _each(batch)
    ]
    kept = KeptCells(None if keep is None else Path(keep))
    if kept.told:
        tell(kept.told)
    chosen, logs = _each(log), BenchLogs()
    unread = [told for m in wanted if (told := m.unread())]
    unusable = [told for asked in chosen if (told := logs.unread(asked))]
    for told in dict.fromkeys((*unread, *unusable)):  # before anything takes time
        tell(told)
    hopeless = len(unusable) == len(chosen)
    return _Sweep(machines, chosen, plan, kept, time.time(), load_now(), logs, hopeless).run(wanted)


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
    options: BuildOptions

    @staticmethod
    def of(
        target: str | Target, threads: int | None, excess_precision: bool, weights: str | None
    ) -> _Machine:
        """Return the target with so many threads; None for as many as it has by itself."""
        spec = target.spec if isinstance(target, Target) else target
        asked = "" if threads is None else f" -threads={threads}"
        return _Machine(spec, BuildOptions.given(spec + asked, excess_precision, weights))

    @property
    def target(self) -> Target:
        """The target with its number of threads."""
        return self.options.target


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of the sweep as it was given, and the batch size that it is to have."""

    model: GraphLike
    name: str
    batch: int | None
    shapes: Shapes | None
    example: Any

    def read(self) -> BenchModel | NestwrightError:
        """Return the model as it is read, or why it cannot be."""
        try:
            return BenchModel.read(self.model, self.batch, self.shapes, self.example)
        except NestwrightError as e:
            return e

    def unread(self) -> str:
        """Return why the model's file is none; "" if there is none, or what it has is read."""
        if not isinstance(self.model, str | os.PathLike):
            return ""
        try:
            recognized(Path(self.model))
        except NestwrightError as e:
            return self.problem(e)
        return ""

    def problem(self, error: NestwrightError, log: LogLike | None = None) -> str:
        """Return an error's message without the folders of the model's file and the log's."""
        files = [f for f in (self.model, log) if isinstance(f, str | os.PathLike)]
        return without_folders(str(error), map(Path, files))


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A sweep under way: machines and logs of each model, the peaks, what was found at the start.

    ``began`` are seconds since 1970, ``load`` is the load average then, ``trusted`` why the machine
    is not to be trusted. Peaks are measured when the first model has been read, unless no log is
    usable: what is wrong with the input is told first.
    """

    machines: Sequence[_Machine]
    chosen: Sequence[LogLike | None]
    plan: CellPlan
    kept: KeptCells
    began: float
    load: float
    logs: BenchLogs
    hopeless: bool = False
    peaks: Sequence[TargetPeak] = ()
    trusted: tuple[str, ...] = ()

    def on_this_machine(self) -> _Sweep:
        """Measure what all cells share."""
        self.plan.tell("measuring the machine's peaks")
        machines = self.machines
        peaks = [TargetPeak(m.name, m.target.threads, measure_peak(m.target)) for m in machines]
        trusts = [trust(n) for n in sorted({m.target.threads for m in machines})]
        told = tuple(
            f"{counted(t.threads, 'thread')}: {t.told}" for t in trusts if t.level != "good"
        )
        return replace(self, peaks=peaks, trusted=told)

    def run(self, models: Sequence[_Model]) -> BenchReport:
        """Measure the cells of all models; the report is kept after each."""
        count = len(models) * len(self.machines) * len(self.chosen)
        cells: list[CellBench] = []
        sweep = self
        for given in models:
            subject = given.read()
            if isinstance(subject, BenchModel) and not sweep.peaks and not sweep.hopeless:
                sweep = sweep.on_this_machine()
            for cell in sweep._cells(given, subject):
                cells.append(cell)
                self.kept.keep(sweep._report(cells, count - len(cells)))
        return sweep._report(cells, 0)

    @property
    def _versions(self) -> dict[str, str]:
        return versions(dict.fromkeys(w.package for w in self.plan.peers))

    def _report(self, cells: Sequence[CellBench], missing: int) -> BenchReport:
        return BenchReport(
            machine=machine_facts(),
            load=(self.load, load_now()),
            versions=self._versions,
            seed=self.plan.seed,
            created=self.began,
            cells=tuple(cells),
            peaks=tuple(self.peaks),
            logs=tuple(self.logs.facts.values()),
            warnings=tuple(
                dict.fromkeys((*self.kept.warnings, *self.trusted, *self.logs.warnings))
            ),
            missing=missing,
        )

    def _cells(self, given: _Model, subject: BenchModel | NestwrightError) -> Iterator[CellBench]:
        """Yield the cells of one model at one batch size, or its error for each."""
        places = list(itertools.product(self.machines, self.chosen))
        keys = [CellKey(given.name, m.name, m.target.threads, given.batch) for m, _ in places]
        if isinstance(subject, NestwrightError):
            yield from (CellBench(key, problem=given.problem(subject)) for key in keys)
            return
        for key, (machine, asked) in zip(keys, places, strict=True):
            yield self._cell(key, given, subject, machine.options, asked)

    def _cell(
        self,
        key: CellKey,
        given: _Model,
        subject: BenchModel,
        options: BuildOptions,
        asked: LogLike | None,
    ) -> CellBench:
        """Return a cell: measured in an interrupted run with the same inputs, else now."""
        here = key
        try:
            used, history = self.logs.find(asked, subject.name, options.target)
            here = replace(key, log=used)
            facts = {**machine_facts(), **self._versions}
            inputs = inputs_of(here, subject, options, history, self.plan, facts)
            if (known := self.kept.find(inputs)) is not None:
                return known
            self.plan.tell(str(key))
            return replace(bench_cell(here, subject, options, history, self.plan), inputs=inputs)
        except NestwrightError as e:
            return CellBench(here, problem=given.problem(e, asked))
