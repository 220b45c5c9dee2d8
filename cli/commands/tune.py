"""`nestwright tune`: search for faster schedules of a model and log them."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING

import click

from ...ir.errors import ArgumentError
from ..syntax.options import ModelCommand, RecipeOptions, recipe_options

if TYPE_CHECKING:
    from ...autotune.fleet.worker_pool import WorkerPool
    from ...autotune.tuner.progress import TuneResult
    from ...ir.target import Target

LEAST = 1e-3  # seconds given to tuning where starting has used them up


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--target", default="cpu", show_default=True, help="Target to tune for.")
@click.option(
    "--trials", default=500, show_default=True, help="Number of trials, earlier ones included."
)
@click.option("--seconds", type=float, help="Limit on wall time in seconds, races included.")
@click.option(
    "--log",
    type=click.Path(),
    help="Log to write and resume from; `auto`: the default, with seeds.",
)
@click.option(
    "--strategy",
    default="native",
    show_default=True,
    help="Search strategy: native, prior, random, or optuna: with the name of a sampler.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@recipe_options()
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Measure on the workers of the Dask cluster there: tls://HOST:PORT, or a port of "
    "127.0.0.1.",
)
@click.option(
    "--resource",
    metavar="LABEL",
    help="Resource that those workers offer; by default nestwright-cpu, as the target is.",
)
@click.option("--tls-ca-file", type=click.Path(), help="Certificate of the cluster's authority.")
@click.option("--tls-cert", type=click.Path(), help="Certificate of this client.")
@click.option("--tls-key", type=click.Path(), help="Key of that certificate.")
@click.option(
    "--simulate-cost", is_flag=True, help="Measure nothing: rank by the analytic model alone."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def tune(
    began: float,
    model: str,
    target: str,
    trials: int,
    seconds: float | None,
    log: str | None,
    strategy: str,
    seed: int,
    recipe: RecipeOptions,
    scheduler: str | None,
    resource: str | None,
    tls_ca_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    simulate_cost: bool,
    as_json: bool,
) -> int:
    """Tune MODEL. Safe to interrupt: the same command resumes where it stopped."""
    from ...autotune.tuner.progress import TuningInterrupted
    from ..display.live import Display

    lowered = recipe.lowered(model, target)
    if seconds is not None:  # what it took to get here counts, too
        seconds = max(LEAST, seconds - (time.monotonic() - began)) if seconds > 0 else seconds
    certificates = (tls_ca_file, tls_cert, tls_key)
    pool = _worker_pool(scheduler, resource, certificates, lowered.target, simulate_cost)
    try:
        with Display() as display:
            result = lowered.tune(
                trials=trials,
                seconds=seconds,
                log=log,
                strategy=strategy,
                seed=seed,
                progress=display,
                simulate_cost=simulate_cost,
                executor=pool,
            )
    except TuningInterrupted as stopped:
        click.echo(f"nestwright: {stopped}", err=True)
        return 130
    if as_json:
        click.echo(json.dumps(_facts(result, simulate_cost)))
    else:
        from ...ir.target import HERE

        asked = "" if target == HERE else f" --target {shlex.quote(target)}"
        asked += recipe.asked
        click.echo(_told(result, simulate_cost))
        named = shlex.quote(model), shlex.quote(str(result.log))
        click.echo(f"next: nestwright build {named[0]}{asked} --log {named[1]} -o model.nw")
    return 0


def _worker_pool(
    scheduler: str | None,
    resource: str | None,
    certificates: tuple[str | None, ...],
    target: Target,
    simulated: bool,
) -> WorkerPool | None:
    """Return the workers of the cluster at ``--scheduler``; None without."""
    if scheduler is None:
        if resource is not None or any(certificates):
            what = "--resource" if resource is not None else "--tls-ca-file, --tls-cert, --tls-key"
            raise ArgumentError(what, "there is no cluster", hint="--scheduler tls://HOST:PORT")
        return None
    if simulated:
        raise ArgumentError(f"--scheduler {scheduler}", "with --simulate-cost nothing is measured")
    from ...autotune.fleet.dask import Certificates, connect, resource_of

    return connect(scheduler, Certificates(*certificates), resource or resource_of(target))


def _facts(result: TuneResult, estimated: bool) -> dict[str, object]:
    """Return the result as plain data for JSON."""
    from ...autotune.tuner.progress import totals

    before, after = totals(result.tasks)
    return {
        "version": 1,
        "model": result.model,
        "target": result.target,
        "log": str(result.log),
        "trials": result.trials,
        "measured": result.measured,
        "seconds": result.seconds,
        "stopped": result.stopped,
        "failures": dict(result.failures),
        "estimated": estimated,
        "default_seconds": before,
        "best_seconds": after,
        "raced": result.verdict is not None,
        "speedup": result.speedup,
    }


def _told(result: TuneResult, estimated: bool) -> str:
    """Return the result as text: a line per task, the whole, the notes."""
    from ...autotune.log.units import counted, duration

    lines, sign = [], "~" if estimated else ""
    for t in sorted(result.tasks, key=lambda t: -(t.weight * (t.default_seconds or 0.0))):
        before, after = (f"{sign}{duration(x)}" for x in (t.default_seconds, t.best_seconds))
        lines.append(
            f"  {t.name:<28} x{t.weight:<4g} {before:>9} -> {after:>9}  {t.speedup:5.2f}x  "
            f"{counted(t.trials, 'trial')}"
        )
    done = "estimated" if estimated else "measured"
    head = f"{counted(result.measured, 'trial')} {done} in {result.seconds:.1f} s"
    lines.append(f"{head} ({result.stopped}): {_gain(result, sign)}")
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])


def _gain(result: TuneResult, sign: str) -> str:
    """Return the speedup as text: of the whole model if it was raced, else of its tasks."""
    from ...autotune.log.records import quantile
    from ...autotune.log.units import duration
    from ...autotune.tuner.progress import totals

    verdict = result.verdict
    if verdict is None:
        before, after = (f"{sign}{duration(x)}" for x in totals(result.tasks))
        return f"{before} -> {after}, {result.speedup:.2f} times faster"
    if not verdict.runs:
        return "the default schedules are kept"
    before, after = (duration(quantile(x, 0.5)) for x in (verdict.default_runs, verdict.runs))
    return f"whole model {before} -> {after}, {verdict.speedup:.2f} times faster"
