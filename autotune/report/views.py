"""A cell as the templates show it: figures, pictures and tables, computed once."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import islice

from markupsafe import Markup

from ..bench.data import CONTROL, TUNED, BenchReport, CellBench, Latency, LogBench
from ..bench.peers.table import WAYS
from .charts.roofline import roofline
from .detail import Detail
from .formats import DASH, size
from .graph import GraphView, graph_views
from .groupviews import GroupView, group_view
from .kernels import KernelRow, kernel_rows, marks, roof_of
from .steps import ProfileView, profile_view
from .verdicts import CellVerdict, doubts, verdict


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell with everything that its sections show."""

    id: str
    cell: CellBench
    setting: str
    verdict: CellVerdict
    doubts: tuple[str, ...]
    fastest: str
    latency: Latency | None
    throughput: tuple[str, ...]
    error: str
    log: LogBench | None
    rows: tuple[KernelRow, ...]
    roofline: Markup
    groups: tuple[GroupView, ...]
    graphs: tuple[GraphView, ...]
    profile: ProfileView | None


def views_of(report: BenchReport, detail: Detail) -> list[CellView]:
    """Return the views of all cells, with so much detail."""
    seen: set[str] = set()
    found = []
    for number, cell in enumerate(report.cells, 1):
        whole = detail.repeated or cell.key.model not in seen
        found.append(_view(report, cell, number, detail, whole))
        seen.add(cell.key.model)
    return found


def _view(
    report: BenchReport, cell: CellBench, number: int, detail: Detail, whole: bool
) -> CellView:
    peak = report.peak(cell.key)
    rows = kernel_rows(cell, peak)
    log = next((log for log in report.logs if log.name == cell.key.log), None)
    tuned = cell.way(TUNED)
    timed = [w for w in cell.ways if w.seconds is not None and w.name != CONTROL]
    error = None if tuned is None else tuned.error
    found = verdict(cell, peak)
    return CellView(
        id=f"cell-{number}",
        cell=cell,
        setting=setting(cell, report),
        verdict=found,
        doubts=doubts(cell),
        fastest=min(timed, key=lambda w: w.seconds or 0.0).name if timed else "",
        latency=tuned.latency if tuned else None,
        throughput=tuple(
            f"{t.rate:,.0f} ({t.callers} {'share one' if t.shared else 'apart'})"
            for t in (tuned.throughput if tuned else ())
        ),
        error=DASH if error is None else f"{error:.0e}",
        log=log,
        rows=rows,
        roofline=roofline(marks(rows), roof_of(peak), str(cell.key)) if peak else Markup(""),
        groups=_groups(rows, detail),
        graphs=graph_views(cell) if whole else (),
        profile=profile_view(cell, peak) if whole else None,
    )


def _groups(rows: tuple[KernelRow, ...], detail: Detail) -> tuple[GroupView, ...]:
    """Return views of the groups that are shown, the heaviest first, as the rows are."""
    tuned = (v for r in rows if (v := group_view(r, detail.nests)) is not None)
    return tuple(islice(tuned, detail.groups))


def setting(cell: CellBench, report: BenchReport) -> str:
    """Return what tells a cell from others of its model: target, threads, batch, log."""
    key = cell.key
    parts = [key.target, f"{key.threads} thread{'s' if key.threads != 1 else ''}"]
    if key.batch is not None:
        parts.append(f"batch {key.batch}")
    if len({c.key.log for c in report.cells if c.key.model == key.model}) > 1:
        parts.append(key.log or "no log")
    return ", ".join(parts)


def ways_of(report: BenchReport) -> tuple[str, ...]:
    """Return the names of all ways but the control, in the order of their first cell."""
    names = dict.fromkeys(w.name for c in report.cells for w in c.ways)
    return tuple(n for n in names if n != CONTROL)


def machine_rows(report: BenchReport) -> tuple[tuple[str, str], ...]:
    """Return names and values of what decides the figures: machine, load, peaks, versions."""
    m = report.machine
    caches = " / ".join(size(m.get(name)) for name in ("l1", "l2", "l3"))
    rows = [
        ("system", str(m.get("system", DASH))),
        ("processor", str(m.get("cpu", DASH))),
        ("cores usable", str(m.get("cores", DASH))),
        ("vector width", f"{m.get('vector_bits', DASH)} bits"),
        ("L1 / L2 / L3", caches),
        ("load before, after", ", ".join(f"{load:.2f}" for load in report.load) or DASH),
    ]
    for p in report.peaks:
        name = f"peaks, {p.threads} thread{'s' if p.threads != 1 else ''}"
        if len({q.target for q in report.peaks}) > 1:
            name = f"{name}, {p.target}"
        rows.append((name, f"{p.peak.told} ({p.peak.origin})"))
    rows += [(name, value) for name, value in report.versions.items()]
    rows += [(f"log {log.name}", f"SHA-256 {log.sha256[:12]}…") for log in report.logs]
    return tuple(rows)


def command_of(report: BenchReport) -> str:
    """Return the command that makes such a report, as far as its data tell.

    Models and logs have names in place of paths.
    """
    keys = [c.key for c in report.cells]
    peer_of = {way.name: way.peer for way in WAYS}
    peers = dict.fromkeys(peer_of[name] for name in ways_of(report) if name in peer_of)
    callers = sorted({t.callers for c in report.cells for w in c.ways for t in w.throughput})
    axes = (
        ("--targets", dict.fromkeys(k.target for k in keys)),
        ("--threads", dict.fromkeys(str(k.threads) for k in keys)),
        ("--batch", dict.fromkeys(str(k.batch) for k in keys if k.batch is not None)),
        *(("--log", [log]) for log in _shared_logs(report)),
        ("--peers", peers),
        ("--callers", list(map(str, callers))),
        ("--seed", [str(report.seed)]),
        ("--html", ["report.html"]),
    )
    words = [*dict.fromkeys(k.model for k in keys)]
    words += [word for name, values in axes if values for word in (name, ",".join(values))]
    words += ["--profile"] if any(c.profile is not None for c in report.cells) else []
    return f"nestwright bench {shlex.join(words)}"


def _shared_logs(report: BenchReport) -> list[str]:
    """Return the logs that every model had; none where each had one of its own."""
    of_models: dict[str, dict[str, None]] = {}
    for cell in report.cells:
        if not cell.problem:
            of_models.setdefault(cell.key.model, {})[cell.key.log] = None
    found = list(map(list, of_models.values()))
    same = all(logs == found[0] for logs in found)
    return [log for log in found[0] if log] if found and same else []
