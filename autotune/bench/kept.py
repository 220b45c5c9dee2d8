"""The cells of a sweep in a file as they are measured, from which an interrupted sweep goes on.

A cell is known by its inputs: model, weights, target, machine, versions, log and options. One
measured before counts only if all of them are the same, so a sweep may also go on with other axes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from ...codegen.driver.build_key import build_key
from ...codegen.driver.options import BuildOptions
from ...ir.errors import ReportError
from ..compiled import content_of
from ..log.contents import Log
from ..log.records import Json, digest
from ..log.units import counted
from .cell import CellPlan
from .data import BenchReport, CellBench, CellKey, read_report
from .subject import BenchModel


class KeptCells:
    """The file of a sweep, None for none, and the cells that it has of an interrupted one.

    Any other file is replaced when the first cell is measured.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._old = None if path is None else _unfinished(path)
        measured = () if self._old is None else self._old.cells
        self._left = {c.inputs: c for c in measured if c.inputs and not c.problem}
        self._used = 0
        self._unkept = ""

    def find(self, inputs: str) -> CellBench | None:
        """Return the cell that was measured with these inputs, once; None if there is none."""
        found = self._left.pop(inputs, None)
        self._used += found is not None
        return found

    def keep(self, report: BenchReport) -> None:
        """Write the report as it is so far, with the cells that may still be found, atomically.

        Where that is impossible, the sweep goes on, with a warning.
        """
        if self._path is None:
            return
        left = tuple(self._left.values()) if report.missing else ()
        missing = max(1, report.missing - len(left)) if report.missing else 0
        whole = replace(report, cells=(*report.cells, *left), missing=missing)
        try:
            whole.write_json(self._path)
        except OSError as error:
            self._unkept = f"not kept in case of an interrupt: {error.strerror}"

    @property
    def told(self) -> str:
        """A line on the cells of an interrupted run in the file; "" without any."""
        if self._old is None or not self._left:
            return ""
        found = f"going on with {_of(len(self._left), self._old)}"
        return f"{found}, as far as nothing of theirs has changed"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the cells that were found, when they were measured, and of their machine; and
        if the file cannot be written."""
        unkept = (self._unkept,) if self._unkept else ()
        if self._old is None or not self._used:
            return unkept
        found = f"not measured in this run: {_of(self._used, self._old)}"
        return (*unkept, found, *self._old.warnings)


def _of(count: int, old: BenchReport) -> str:
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(old.created))
    return f"{counted(count, 'cell')} of the interrupted run that began {begun}"


def _unfinished(path: Path) -> BenchReport | None:
    """Return the report of a file if cells are missing; None for any other file, or none."""
    try:
        found = read_report(path)
    except ReportError:
        return None
    return found if found.missing else None


def inputs_of(
    key: CellKey,
    subject: BenchModel,
    options: BuildOptions,
    log: Log,
    plan: CellPlan,
    facts: Mapping[str, Json],
) -> str:
    """Return a digest of all that decides a cell's figures; ``facts`` are of machine and versions.

    The source of the compiler is among it, as for the cache of builds.
    """
    frozen = subject.known.constants(plan.constants, freeze=True)
    content = content_of(subject.known) or b""
    built = build_key(content, options, {}, frozen)
    tried, raced = [t.id for t in log.trials], [b.id for b in log.bests]
    records: list[Json] = [*tried, *raced, *(v.id for v in log.verdicts)]
    return digest(
        {
            "cell": asdict(key),
            "build": built.name,
            "log": records,
            "facts": dict(facts),
            "seed": plan.seed,
            "check": plan.check,
            "peers": [p.name for p in plan.peers],
            "callers": list(plan.callers),
            "attribute": plan.attribute,
            "profile": plan.profile,
        }
    )


def kept_line(report: BenchReport, place: str) -> str:
    """Return how an interrupted sweep goes on, in one line; ``place`` is where its cells are."""
    have, lack = counted(len(report.cells), "cell"), report.missing
    return f"{have} kept in {place}, {lack} to go; run the same command again to go on"
