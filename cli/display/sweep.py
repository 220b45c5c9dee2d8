"""A benchmark report as tables in a terminal: cells, their ways, their heaviest groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ...autotune.bench.data import TUNED
from ...autotune.log.units import counted, duration, rate
from .terminal import terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ...autotune.bench.data import Against, BenchReport, CellBench, Change, WayBench

PIPED = 120  # columns where there is no terminal
FEW = 4  # cells up to which their groups are printed


def print_report(report: BenchReport) -> None:
    """Print a sweep: the machine, a table per cell, warnings, and changes since an older report."""
    console = terminal(PIPED)
    console.print(f"machine: {report.machine['model']} ({report.machine['cpu']})")
    for p in report.peaks:
        console.print(
            f"peaks of {p.target} with {counted(p.threads, 'thread')}: {p.peak.told} "
            f"({p.peak.origin})"
        )
    for cell in report.cells:
        if cell.problem:
            console.print(f"\n{cell.key}: {cell.problem}")
            continue
        console.print(_ways(cell))
        if len(report.cells) <= FEW:
            console.print(_groups(cell))
    for cell in report.cells:
        for warning in cell.warnings:
            console.print(f"warning: {cell.key}: {warning}")
    for warning in report.warnings:
        console.print(f"warning: {warning}")
    if report.against is not None:
        _print_against(console, report.against)


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    """Return an empty table. Names of models, groups and files are text, never rich's markup."""
    told = Text(title, style="table.title")
    table = Table(title=told, title_justify="left", box=None, pad_edge=False)
    for name in (*left, *right):
        table.add_column(name, justify="left" if name in left else "right")
    return table


def _ways(cell: CellBench) -> Table:
    """Return the ways of a cell as rows.

    Callers call one executable, or have their own. Ratios are medians over the rounds.
    """
    count = sorted({(t.callers, not t.shared) for w in cell.ways for t in w.throughput})
    callers = tuple(f"{n} callers, {'own' if own else 'one'}" for n, own in count)
    right = ("time", "tuned is", "GFLOP/s", "p50", "p90", "p99", *callers, "first", "error")
    table = _table(f"\n{cell.key}", ("whole model",), right)
    for way in cell.ways:
        figures = ["–"] * len(right) if way.problem else _figures(cell, way, count)
        table.add_row(*map(Text, (way.name, *figures)))
    notes = [f"{w.name}: {w.problem}" for w in cell.ways if w.problem]
    spread = f"the control differs by {cell.spread:.0%}: smaller differences say nothing"
    table.caption = Text("\n".join([spread, *notes]), style="table.caption")
    table.caption_justify = "left"
    return table


def _figures(cell: CellBench, way: WayBench, count: list[tuple[int, bool]]) -> list[str]:
    seconds, gain = way.seconds or 0.0, cell.speedup(TUNED, way.name)
    rates = {(t.callers, not t.shared): f"{t.rate:,.0f}/s" for t in way.throughput}
    singly = way.latency
    return [
        duration(seconds),
        "" if way.name == TUNED or gain is None else f"{gain:.2f}x",
        rate(cell.flops / seconds if seconds else 0.0),
        *([duration(s) for s in (singly.p50, singly.p90, singly.p99)] if singly else ["–"] * 3),
        *(rates.get(c, "–") for c in count),
        duration(way.first),
        "–" if way.error is None else f"{way.error:.1e}",
    ]


def _groups(cell: CellBench) -> Table:
    """Return the groups of a cell as rows, the heaviest first."""
    right = ("default", "tuned", "gain", "GFLOP/s", "GB/s", "error")
    table = _table("", ("group", "kind"), right)
    for g in sorted(cell.groups, key=lambda g: -g.weight * g.tuned_seconds):
        seconds = g.tuned_seconds
        cells = (
            f"{g.name} x{g.weight:g}",
            g.kind,
            duration(g.default_seconds),
            duration(seconds),
            f"{g.default_seconds / seconds:.2f}x" if seconds else "–",
            rate(g.flops / seconds if seconds else 0.0),
            rate(g.bytes / seconds if seconds else 0.0),
            f"{g.error:.1e}",
        )
        table.add_row(*map(Text, cells))
    return table


def _print_against(console: Console, against: Against) -> None:
    """Print what changed since an older report, and what else differs."""
    console.print()
    for note in against.notes:
        console.print(f"note: {note}")
    marked = [c for c in against.changes if c.kind != "same"]
    for change in sorted(marked, key=lambda c: -c.ratio):
        console.print(_line(change))
    same = len(against.changes) - len(marked)
    console.print(f"{counted(same, 'time')} as before, within the spread of the controls")


def _line(c: Change) -> str:
    return (
        f"{c.kind}: {c.cell}, {c.way}: {duration(c.before)} before, {duration(c.after)} now "
        f"({c.ratio:.2f}x the time; {c.spread:.0%} would say nothing)"
    )
