"""The passes of a build, one by one: what `nestwright show --passes` and `--dump` tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...ir.hlo.analysis.verify import verify
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.passes import pipeline
from ...ir.hlo.passes.pipeline import instructions, optimize
from ...ir.loop.nodes import Func
from ...ir.loop.printer import show as show_loops
from ...ir.loop.visit import walk
from ...ir.passes import Dump, Instrument, Timing, Verify
from ...ir.target import Target
from ...schedule.language.trace import Trace
from ..plan.groups import Groups, fuse_module, symbol
from ..targets.registry import backend, lower
from .compile_group import apply, loops
from .options import BuildOptions
from .prepack import split_packs
from .schedules import for_groups


@dataclass(frozen=True, slots=True)
class PassRow:
    """One pass of a list: what holds after it, and what it did.

    ``changed`` counts the functions that it changed, ``size`` is the sum of its results' sizes.
    """

    number: int
    name: str
    then: str
    parts: tuple[str, ...]
    changed: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PassReport:
    """A list of passes after a run on ``of`` functions, whose size was ``start`` in all."""

    of: int
    start: int
    rows: tuple[PassRow, ...]

    @property
    def seconds(self) -> float:
        """The time of all passes together."""
        return sum(r.seconds for r in self.rows)

    def facts(self, unit: str) -> list[dict[str, Any]]:
        """Return the rows as plain data; ``unit`` is that of their sizes."""
        return [
            {
                "number": r.number,
                "name": r.name,
                "then": r.then,
                "parts": r.parts,
                "changed": r.changed if self.of != 1 else bool(r.changed),
                unit: r.size,
                "seconds": r.seconds,
            }
            for r in self.rows
        ]

    def table(self, unit: str) -> list[str]:
        """Return the input, the passes in order, and their sum as lines of text."""
        width, total = max(len(r.name) for r in self.rows), self.seconds
        lines = [
            f" #  {'pass':{width}}  {'changed':>11}  {unit:>12}        ms  share",
            f" 0  {'input':{width}}  {'':11}  {self.start:12}",
        ]
        for r in self.rows:
            share = r.seconds / total if total else 0.0
            told = "(unchanged)" if not r.changed else "yes" if self.of == 1 else f"{r.changed}"
            line = f"{r.number:2}  {r.name:{width}}  {told:>11}  {r.size:12}"
            lines.append(f"{line}  {r.seconds * 1e3:8.2f}  {share:5.0%}  {r.then}")
        changed = sum(r.changed > 0 for r in self.rows)
        last = self.rows[-1].size
        end = f"    {'total':{width}}  {changed:>11}  {last:12}  {total * 1e3:8.2f}   100%"
        return [*lines, end]


def graph_report(module: HloModule) -> tuple[PassReport, HloModule]:
    """Optimize a module; return what each pass did, and the result, verified after every change."""
    timing = Timing(instructions)
    optimized = optimize(module, instruments=(timing, Verify(verify)))
    first, *ran = timing.rows
    rows = tuple(
        PassRow(r.number, r.name, step.then, step.parts, int(r.changed), r.size, r.seconds)
        for r, step in zip(ran, pipeline.PIPELINE.passes, strict=True)
    )
    return PassReport(1, first.size, rows), optimized


def lowering_report(
    module: HloModule, options: BuildOptions, schedules: Mapping[str, Trace]
) -> PassReport:
    """Lower each distinct group of an optimized module; return what each pass did to them."""
    target = options.target
    groups = fuse_module(module, options.excess_precision, target)
    timings: list[Timing[Func]] = []
    for key in groups.distinct:
        timings.append(Timing(_statements))
        _lowered(groups, key, target, for_groups(schedules, groups.distinct), (timings[-1],))
    rows = []
    for n, step in enumerate(backend(target).lowering.rows, 1):
        ran = [t.rows[n] for t in timings]
        changed, size = sum(r.changed for r in ran), sum(r.size for r in ran)
        seconds = sum(r.seconds for r in ran)
        rows.append(PassRow(n, step.name, step.then, (), changed, size, seconds))
    return PassReport(len(timings), sum(t.rows[0].size for t in timings), tuple(rows))


def dump_lowering(
    groups: Groups, target: Target, traces: Mapping[str, Trace], folder: Path
) -> list[Path]:
    """Write each group's function before lowering and after each pass that changes it.

    They are files of a folder for each group.
    """
    written: list[Path] = []
    for key, group in groups.distinct.items():
        files = Dump(show_loops, folder / group.name, "txt", written)
        _lowered(groups, key, target, traces, (files,))
    return written


def _statements(func: Func) -> int:
    return sum(1 for _ in walk(func.body))


def _lowered(
    groups: Groups,
    key: str,
    target: Target,
    traces: Mapping[str, Trace],
    instruments: Sequence[Instrument[Func]],
) -> None:
    trace = traces.get(key)
    func, _ = loops(groups.distinct[key].computation, symbol(key), trace, target)
    lower(split_packs(apply(func, target, trace).func)[0], target, instruments)
