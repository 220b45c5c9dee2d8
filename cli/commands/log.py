"""`nestwright log`: look into tuning logs, check them, merge them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..syntax.group import Suggesting

if TYPE_CHECKING:
    from ...autotune.log.contents import Log


@click.group(cls=Suggesting)
def log() -> None:
    """Show, check and merge tuning logs, given as files or as folders of them."""


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(paths: tuple[str, ...], as_json: bool) -> None:
    """List every trial."""
    from ...autotune.log.journal import read
    from ...autotune.log.units import duration

    held = read(*paths)
    if as_json:
        rows = [
            {
                "id": t.id,
                "workload": t.workload,
                "device": t.device,
                "sketch": t.sketch,
                "decisions": dict(t.decisions),
                "status": t.status,
                "source": t.source,
                "runs": list(t.runs),
                "note": t.note,
            }
            for t in held.trials
        ]
        click.echo(json.dumps({"version": 1, "trials": rows}))
        return
    for t in held.trials:
        time = duration(t.cost) if t.ran else t.status
        time = f"~{time}" if t.status == "estimated" else time
        choices = " ".join(f"{k}={v}" for k, v in t.decisions.items())
        click.echo(f"{t.workload[:12]}  {time:>9}  {t.source:<8} {t.sketch:<12} {choices}")
    _problems(held.problems, held.notes)


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--target", help="Only for this target (default: every device in the log).")
@click.option("--as", "form", type=click.Choice(["table", "python"]), default="table")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def best(paths: tuple[str, ...], target: str | None, form: str, as_json: bool) -> None:
    """Show each workload's best schedule."""
    from ...autotune.log.journal import read
    from ...autotune.log.records import holds_estimates, quantile
    from ...autotune.log.units import duration
    from ...ir.target import Target
    from ...schedule.language.schedule import Trace

    held, key = read(*paths), None
    if target is not None:
        key = Target.parse(target).key
        found = list(held.winners(Target.parse(target)).values())
    else:
        found = [b for d in held.devices for b in held.best(d).values()]
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "workload": b.workload,
                "device": b.device,
                "sketch": b.sketch,
                "decisions": dict(b.decisions),
                "estimated": holds_estimates(b.device),
                "seconds": quantile(b.runs, 0.5),
                "default_seconds": quantile(b.default_runs, 0.5),
                "trace": b.trace,
            }
            for b in found
        ]
        click.echo(json.dumps({"version": 1, "best": rows, "models": _models(held, key)}))
        return
    for b in found:
        sign = "~" if holds_estimates(b.device) else ""
        now, before = (f"{sign}{duration(quantile(x, 0.5))}" for x in (b.runs, b.default_runs))
        head = f"{b.workload[:12]}  {before:>9} -> {now:>9}  {b.sketch}"
        if form == "python":
            click.echo(f"# {head}\n{Trace.from_json(b.trace).show()}")
        else:
            choices = " ".join(f"{k}={v}" for k, v in b.decisions.items())
            click.echo(f"{head}  {choices}")
    if form == "table":
        for m in _models(held, key):
            told = f"{m['kept']} of {m['groups']} groups tuned, {m['speedup']:.2f}x"
            click.echo(f"model {m['name']} on {m['device']}: {told}")
    _problems(held.problems, held.notes)


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="File to write.")
@click.option("--winners", is_flag=True, help="Keep only what builds need.")
def merge(paths: tuple[str, ...], output: str, winners: bool) -> None:
    """Merge logs, keeping each record once."""
    from ...autotune.log.journal import merge as merge_logs

    kept, dropped = merge_logs(paths, output, winners)
    told = "others" if winners else "repeated ones"
    click.echo(f"{output}: {kept} records, {dropped} {told} dropped")


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def check(paths: tuple[str, ...], as_json: bool) -> int:
    """Look for broken lines and inconsistent records; exit 1 if there are any."""
    from ...autotune.log.journal import check as check_log
    from ...autotune.log.journal import log_files
    from ...autotune.log.units import counted

    files = log_files(*paths)
    found = [problem for path in files for problem in check_log(path)]
    if as_json:
        click.echo(json.dumps({"version": 1, "ok": not found, "problems": found}))
    else:
        for problem in found:
            click.echo(problem)
        click.echo(f"{counted(len(found), 'problem')} in {counted(len(files), 'file')}")
    return 1 if found else 0


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def stats(paths: tuple[str, ...], as_json: bool) -> None:
    """Count trials by status and source, and show each winner's gain."""
    from ...autotune.log.contents import stats as count
    from ...autotune.log.journal import read

    facts = count(read(*paths))
    if as_json:
        click.echo(json.dumps({"version": 1, **facts}))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            click.echo(f"{name}:")
            for key, x in value.items():
                click.echo(f"  {key:<40} {x if not isinstance(x, float) else f'{x:.2f}'}")
        else:
            told = ", ".join(map(str, value)) if isinstance(value, list) else value
            click.echo(f"{name}: {told}")


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--optuna", "storage", required=True, help="Optuna's storage, such as sqlite:///study.db."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def export(paths: tuple[str, ...], storage: str, as_json: bool) -> None:
    """Write a study of Optuna's for each workload, and show which decisions matter."""
    from ...autotune.log.journal import read
    from ...autotune.log.units import counted

    export_log = _exporter()
    held = read(*paths)
    shares = export_log(held, storage)
    if as_json:
        click.echo(json.dumps({"version": 1, "storage": storage, "importances": shares}))
        return
    for name, found in shares.items():
        told = ", ".join(f"{n} {x:.0%}" for n, x in found.items()) or "too few trials to tell"
        click.echo(f"{name}: {told}")
    click.echo(f"{counted(len(shares), 'workload')} in {storage}")


def _exporter() -> Callable[[Log, str], dict[str, dict[str, float]]]:
    from ...ir.errors import UnsupportedError

    try:
        from ...autotune.search.optuna_study import export
    except ImportError:
        raise UnsupportedError(
            "export to Optuna", "optuna is not installed", hint="pip install 'nestwright[optuna]'"
        ) from None
    return export


def _models(log: Log, key: str | None) -> list[dict[str, Any]]:
    """Return the races of whole models, oldest first; of all targets without a key."""
    names = {m.id: m.name for m in log.models}
    return [
        {
            "name": names.get(v.model, v.model),
            "device": v.device,
            "groups": len(v.picks),
            "kept": sum(bool(pick) for _, pick in v.picks),
            "speedup": v.speedup,
        }
        for v in sorted(log.verdicts, key=lambda v: v.ts)
        if key is None or v.device.rpartition("-t")[0] == key
    ]


def _problems(problems: list[str], notes: list[str]) -> None:
    for text in (*problems, *notes):
        click.echo(f"nestwright: {text}", err=True)
