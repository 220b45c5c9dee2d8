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
    from ..autotune.report import BenchReport

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
        progress=lambda text: click.echo(f"bench: {text}", err=True),
    )
    print_report(report)
    for path, write in ((json_path, report.write_json), (html_path, report.write_html)):
        if path is not None:
            write(path)
            click.echo(f"written to {path}")
    bad = sum(bool(m.problem) for m in report.models)
    return 0 if not bad else 1 if bad < len(report.models) else 2


def print_report(report: BenchReport) -> None:
    """Print a sweep as tables: a line per model, then its heaviest groups."""
    from rich.console import Console
    from rich.table import Table

    from ..autotune.log.units import duration, rate

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED)
    peak = report.peak
    console.print(
        f"machine: {report.machine['cpu']}, {report.machine['threads']} threads, "
        f"{rate(peak.flops)} GFLOP/s FMA, {rate(peak.bandwidth)} GB/s copy ({peak.origin})"
    )
    for m in report.models:
        if m.problem:
            console.print(f"{m.name}: {m.problem}", markup=False)
            continue
        error = "not checked" if m.error is None else f"{m.error:.1e}"
        table = Table(title=m.name, title_justify="left", box=None, pad_edge=False)
        for name in ("group", "kind", "default", "tuned", "gain", "GFLOP/s", "GB/s", "error"):
            table.add_column(name, justify="left" if name in ("group", "kind") else "right")
        table.add_row(
            "whole model",
            "",
            duration(m.default_seconds),
            duration(m.tuned_seconds),
            f"{m.speedup:.2f}x",
            rate(m.flops / m.tuned_seconds),
            rate(m.bytes / m.tuned_seconds),
            error,
        )
        for g in sorted(m.groups, key=lambda g: -g.weight * g.tuned_seconds):
            gain = g.default_seconds / g.tuned_seconds if g.tuned_seconds else 1.0
            table.add_row(
                f"{g.name} x{g.weight:g}",
                g.kind,
                duration(g.default_seconds),
                duration(g.tuned_seconds),
                f"{gain:.2f}x",
                rate(g.flops / g.tuned_seconds),
                rate(g.bytes / g.tuned_seconds),
                f"{g.error:.1e}",
            )
        console.print(table)
