"""`nestwright bench`: default against tuned, checked, as a table, JSON and one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .arrays import read_constants
from .options import (
    ModelCommand,
    accuracy_option,
    excess_precision_option,
    read_shapes,
    shape_option,
    weights_option,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ..autotune.bench.data import BenchReport, CellBench

PIPED = 120  # columns where there is no terminal


@click.command(cls=ModelCommand)
@click.argument("models", nargs=-1, required=True, type=click.Path())
@click.option("--target", default="cpu", show_default=True, help="Target to run on.")
@click.option("--log", type=click.Path(), help="Tuning log, or `auto` (default: each model's own).")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads to run with.")
@shape_option()
@click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz.")
@weights_option()
@excess_precision_option()
@accuracy_option()
@click.option("--json", "json_path", type=click.Path(), help="Write the data here.")
@click.option("--html", "html_path", type=click.Path(), help="Write one self-contained page here.")
@click.option(
    "--attribute",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Measure why winners won, for so long per model.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random arguments.")
def bench(
    models: tuple[str, ...],
    target: str,
    log: str | None,
    threads: int | None,
    shapes: tuple[str, ...],
    constants: str | None,
    weights: str | None,
    excess_precision: bool,
    accuracy: float | None,
    json_path: str | None,
    html_path: str | None,
    attribute: float,
    seed: int,
) -> int:
    """Time MODELS as built by default and with the best schedules of a log."""
    from ..autotune.bench import bench as bench_models
    from ..ir.target import with_accuracy

    report = bench_models(
        models,
        target=with_accuracy(target, accuracy).spec,
        log=log,
        shapes=read_shapes(shapes),
        constants=read_constants(constants),
        threads=threads,
        seed=seed,
        excess_precision=excess_precision,
        weights=weights,
        attribute=attribute,
        progress=lambda text: click.echo(f"bench: {text}", err=True),
    )
    print_report(report)
    for path, write in ((json_path, report.write_json), (html_path, report.write_html)):
        if path is not None:
            write(path)
            click.echo(f"written to {path}")
    bad = sum(bool(c.problem) for c in report.cells)
    return 0 if not bad else 1 if bad < len(report.cells) else 2


def print_report(report: BenchReport) -> None:
    """Print a sweep as tables: a line per model, then its heaviest groups."""
    from rich.console import Console

    from ..autotune.log.units import rate

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED)
    console.print(f"machine: {report.machine['model']} ({report.machine['cpu']})", markup=False)
    for p in report.peaks:
        console.print(
            f"peaks of {p.target} with {p.threads} threads: {rate(p.peak.flops)} GFLOP/s FMA, "
            f"{rate(p.peak.bandwidth)} GB/s copy ({p.peak.origin})"
        )
    for cell in report.cells:
        if cell.problem:
            console.print(f"{cell.key}: {cell.problem}", markup=False)
        else:
            console.print(_table(cell))


def _table(cell: CellBench) -> Table:
    """Return a cell as a table: the whole model, then its groups, the heaviest first."""
    from rich.table import Table

    from ..autotune.log.units import duration, rate

    default, tuned = cell.way("default"), cell.way("tuned")
    assert default is not None and tuned is not None
    error = "not checked" if tuned.error is None else f"{tuned.error:.1e}"
    table = Table(title=str(cell.key), title_justify="left", box=None, pad_edge=False)
    for name in ("group", "kind", "default", "tuned", "gain", "GFLOP/s", "GB/s", "error"):
        table.add_column(name, justify="left" if name in ("group", "kind") else "right")
    seconds = tuned.seconds or 0.0
    table.add_row(
        "whole model",
        "",
        duration(default.seconds),
        duration(seconds),
        f"{cell.speedup() or 1.0:.2f}x",
        rate(cell.flops / seconds if seconds else 0.0),
        rate(cell.bytes / seconds if seconds else 0.0),
        error,
    )
    for g in sorted(cell.groups, key=lambda g: -g.weight * g.tuned_seconds):
        gain = g.default_seconds / g.tuned_seconds if g.tuned_seconds else 1.0
        table.add_row(
            f"{g.name} x{g.weight:g}",
            g.kind,
            duration(g.default_seconds),
            duration(g.tuned_seconds),
            f"{gain:.2f}x",
            rate(g.flops / g.tuned_seconds if g.tuned_seconds else 0.0),
            rate(g.bytes / g.tuned_seconds if g.tuned_seconds else 0.0),
            f"{g.error:.1e}",
        )
    return table
