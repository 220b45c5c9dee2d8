"""Comparison of a report with an older one: only what both controls can tell apart is a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..log.records import Json
from .data import CONTROL, Against, BenchReport, CellBench, CellKey, Change


def compared(report: BenchReport, old: BenchReport) -> BenchReport:
    """Return a report with its comparison with an older one.

    Ways of cells with equal keys are compared; a log that was replaced by another under the same
    name is said in the notes, as are another machine, other versions and cells without a partner.
    A change counts if it is larger than the spreads of both controls together.
    """
    before = {cell.key: cell for cell in old.cells}
    pairs = [(c, before[c.key]) for c in report.cells if c.key in before]
    changes = tuple(change for now, then in pairs for change in _changes(now, then))
    return replace(report, against=Against(old.created, tuple(_notes(report, old)), changes))


def _changes(now: CellBench, then: CellBench) -> Iterable[Change]:
    """Yield a change for each way that ran in both cells, but the control."""
    spread = (1 + now.spread) * (1 + then.spread) - 1
    for way in now.ways:
        before, after = then.seconds(way.name), way.seconds
        if before and after and math.isfinite(spread) and way.name != CONTROL:
            kind = _kind(after / before, spread)
            yield Change(now.key, way.name, before, after, spread, kind)


def _kind(ratio: float, spread: float) -> str:
    if ratio > 1 + spread:
        return "regression"
    return "gain" if ratio < 1 / (1 + spread) else "same"


def _notes(report: BenchReport, old: BenchReport) -> Iterable[str]:
    """Yield what else differs between two reports."""
    machines = _differing(old.machine, report.machine)
    if machines:
        yield f"another machine: {'; '.join(machines)}"
    if versions := _differing(old.versions, report.versions):
        yield f"other versions: {'; '.join(versions)}"
    hashes = {log.name: log.sha256 for log in old.logs}
    for log in report.logs:
        if hashes.get(log.name, log.sha256) != log.sha256:
            yield f"the log {log.name} has other contents"
    mine, theirs = ({cell.key for cell in r.cells} for r in (report, old))
    yield from _missing("the old report has no cell", mine - theirs)
    yield from _missing("this report has no cell", theirs - mine)
    for cell in report.cells:
        then = next((c for c in old.cells if c.key == cell.key), None)
        if then is not None and bool(cell.problem) != bool(then.problem):
            ran = "runs now, and did not" if then.problem else "does not run now, and did"
            yield f"{cell.key} {ran}"
        elif then is not None and not cell.problem and not math.isfinite(cell.spread + then.spread):
            yield f"{cell.key}: no control ran, so nothing is compared"
    if report.seed != old.seed:
        yield f"other random arguments: seed {old.seed} before, {report.seed} now"


def _differing(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    names = [n for n in {**old, **new} if n in old and n in new and old[n] != new[n]]
    return [f"{n} {old[n]} before, {new[n]} now" for n in names]


def _missing(what: str, keys: set[CellKey]) -> Iterable[str]:
    if keys:
        some = ", ".join(sorted(map(str, keys))[:3])
        yield f"{what} {some}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
