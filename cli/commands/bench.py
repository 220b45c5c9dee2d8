"""`nestwright bench`: sweeps of models as tables, JSON and one HTML page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from os.path import exists, isfile
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import click

from ...ir.errors import ArgumentError, ReportError
from ...ir.target import KINDS
from ..display.profile import print_profile, write_traces
from ..inputs.arrays import read_constants
from ..syntax.options import (
    ModelCommand,
    RecipeOptions,
    profile_options,
    read_shapes,
    recipe_options,
)

Numbers: TypeAlias = tuple[int, ...] | None

BETWEEN_TARGETS = re.compile(rf",\s*(?=(?:{'|'.join(KINDS)})\b)")
"""A comma between targets: their options may have commas, too."""


def counts(most: int) -> Callable[[click.Context, click.Parameter, str | None], Numbers]:
    """Return the callback of an option of whole numbers with commas between, as ``1,2,8``.

    A usage error for what is none, below 1 or above ``most``.
    """

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> Numbers:
        if value is None:
            return None
        parts = value.split(",")
        if not all(p.isascii() and p.isdecimal() and len(p) < 9 for p in parts):
            raise click.BadParameter(f"{value!r} is not whole numbers with commas between")
        numbers = tuple(dict.fromkeys(map(int, parts)))
        if not all(1 <= n <= most for n in numbers):
            raise click.BadParameter(f"{value!r} is not from 1 to {most}")
        return numbers

    return read


@click.command(cls=ModelCommand)
@click.argument("models", nargs=-1, required=True, type=click.Path())
@click.option(
    "--target",
    "--targets",
    default="cpu",
    show_default=True,
    help="Targets to run on, with commas between.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(),
    help="Tuning log, or `auto` (default: each model's own); repeatable.",
)
@click.option(
    "--threads", callback=counts(1024), metavar="N,N", help="Threads to run with, as 1,2."
)
@click.option(
    "--batch",
    callback=counts(1 << 20),
    metavar="N,N",
    help="First size of the inputs that leave it open.",
)
@recipe_options()
@click.option("--peers", help="What else runs the models in the same turns, or `all`.")
@click.option(
    "--callers", callback=counts(256), metavar="N,N", help="Threads that call at once: throughput."
)
@click.option("--json", "json_path", type=click.Path(), help="Write the data here.")
@click.option("--html", "html_path", type=click.Path(), help="Write one self-contained page here.")
@click.option(
    "--attribute",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Measure why winners won, for so long per cell.",
)
@click.option("--against", type=click.Path(), help="Compare with the data of an older bench.")
@click.option("--fail-on-regression", is_flag=True, help="Exit 1 if --against finds one.")
@profile_options()
@click.option("--seed", default=0, show_default=True, help="Seed of the random arguments.")
def bench(
    models: tuple[str, ...],
    target: str,
    logs: tuple[str, ...],
    threads: Numbers,
    batch: Numbers,
    recipe: RecipeOptions,
    peers: str | None,
    callers: Numbers,
    json_path: str | None,
    html_path: str | None,
    attribute: float,
    against: str | None,
    fail_on_regression: bool,
    profile: bool,
    trace: str | None,
    seed: int,
) -> int:
    """Time MODELS as built by default and with the best schedules of a log.

    Several targets, numbers of threads, batch sizes or logs make a sweep.
    """
    from ...autotune.bench import bench as bench_models
    from ...autotune.bench.against import compared
    from ...autotune.bench.data import read_report
    from ...autotune.bench.peers.table import PEERS
    from ...codegen.runtime.profile.data import Profile
    from ...ir.files import require_place
    from ..display.sweep import print_report

    if fail_on_regression and against is None:
        raise ArgumentError("--fail-on-regression", "there is no --against to compare with")
    for place, folders in ((json_path, True), (html_path, True), (trace, False)):
        if place is not None:
            require_place(place, folders)  # before minutes of timing
    old = None if against is None else read_report(against)
    wanted = tuple(PEERS) if peers == "all" else tuple(peers.split(",")) if peers else ()
    with _Underway(json_path, html_path) as under_way:
        report = bench_models(
            models,
            target=[recipe.build_options(t).target.spec for t in BETWEEN_TARGETS.split(target)],
            log=logs or None,
            threads=threads,
            batch=batch,
            peers=wanted,
            callers=callers or (),
            seed=seed,
            shapes=read_shapes(recipe.shapes),
            constants=read_constants(recipe.constants),
            weights=recipe.weights,
            excess_precision=recipe.excess_precision is not False,
            attribute=attribute,
            profile=profile or trace is not None,
            progress=lambda text: click.echo(f"bench: {text}", err=True),
            keep=under_way.place,
        )
    report = report if old is None else compared(report, old)
    print_report(report)
    profiles = [Profile.from_json(c.profile) for c in report.cells if c.profile is not None]
    for found in profiles:
        print_profile(found)
    _write(trace, partial(write_traces, profiles))
    _write(json_path, report.write_json)
    _write(html_path, report.write_html)
    under_way.done()
    if fail_on_regression and report.against is not None and report.against.regressions:
        return 1
    bad = sum(bool(c.problem) for c in report.cells)
    return 0 if not bad else 1 if bad < len(report.cells) else 2


class _Underway:
    """Where a sweep is kept while it runs: the file of ``--json``, else one of the user's caches.

    What was measured before an interrupt or a fault is on the page, too.
    """

    def __init__(self, json_path: str | None, html_path: str | None) -> None:
        self._json, self._html = json_path, html_path
        usable = json_path is not None and (isfile(json_path) or not exists(json_path))
        self.place = Path(json_path) if json_path and usable else _cached()

    def __enter__(self) -> _Underway:
        self._began = time.time()
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from ...autotune.bench.data import read_report
        from ...autotune.bench.kept import kept_line

        if error is None or self.place is None:
            return
        with suppress(ReportError, OSError):
            found = read_report(self.place)
            if found.missing and (found.created >= self._began or kind is KeyboardInterrupt):
                _write(self._html, found.write_html)
                place = self._json or "the cache"
                click.echo(f"bench: {kept_line(found, place)}", err=True)

    def done(self) -> None:
        """Remove the file unless it was asked for."""
        if self.place is not None and self.place != Path(self._json or ""):
            self.place.unlink(missing_ok=True)


def _cached() -> Path | None:
    """Return a file for this command in this folder; None if there is to be no cache.

    Nor if others may write to the folder that it is in.
    """
    from ...codegen.driver.store import folder
    from ...ir.files import cache_folder, distrust_reason

    if folder() is None:
        return None
    asked = repr((sorted(click.get_current_context().params.items()), str(Path.cwd())))
    home = cache_folder() / "sweeps"
    with suppress(OSError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not distrust_reason(home.lstat()):
            return home / f"{sha256(asked.encode()).hexdigest()[:32]}.json"
    return None


def _write(path: str | None, write: Callable[[str], None]) -> None:
    if path is not None:
        write(path)
        click.echo(f"written to {path}")
