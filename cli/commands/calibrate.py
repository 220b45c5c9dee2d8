"""`nestwright calibrate`: measure what this machine does at best, and keep it for tuning."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...autotune.calibrate.readings import Calibration


@click.command()
@click.option("--target", default="cpu", show_default=True, help="Target, with its threads.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def calibrate(target: str, as_json: bool) -> int:
    """Measure this machine's rates for `tune`; exit 1 if they are not kept.

    Takes a few seconds, during which nothing else should run. Builds do not depend on it.
    """
    from ...autotune.calibrate.store import path, save
    from ...autotune.calibrate.take import take
    from ...autotune.measure.machine import require_timeable
    from ...ir.errors import TargetError
    from ...ir.target import Target

    machine = Target.parse(target)
    require_timeable(machine, "calibrate")
    if machine.row.work != "threads" or not machine.is_host:
        raise TargetError(
            f"cannot calibrate {machine.spec}", "it is not this machine's processor", hint='"cpu"'
        )
    found, why = take(machine, told=_told if sys.stderr.isatty() else lambda text: None)
    place = path(machine) if why else save(found, machine)
    if as_json:
        told = {"version": 1, "kept": not why and place is not None, "why": why}
        click.echo(json.dumps(told | {"path": str(place or ""), "rates": rows(found)}))
    elif why:
        family = machine.core.family
        click.echo(f"not kept: {why}; tuning takes the figures of its family ({family})")
    else:
        click.echo("\n".join(lines(found)))
        click.echo(f"kept in {place}" if place else "not kept: NESTWRIGHT_CALIBRATION is off")
    return 0 if not why and place is not None else 1


def rows(found: Calibration) -> list[dict[str, object]]:
    """Return rates as plain data."""
    return [
        {"what": what, "level": level, "threads": threads, "rate": rate}
        for (what, level, threads), rate in found.rates.items()
    ]


def lines(found: Calibration) -> list[str]:
    """Return rates as text, a line each."""
    from ...autotune.calibrate.readings import called

    return [f"  {called(n):<36} {_figure(n[0], r):>12}" for n, r in found.rates.items()]


def _figure(what: str, rate: float) -> str:
    match what:
        case "clock":
            return f"{rate / 1e9:.2f} GHz"
        case "fma":
            return f"{rate / 1e9:.0f} GFLOP/s"
        case "fork":
            return f"{1e6 / rate:.2f} us"
        case _:
            return f"{rate / 1e9:.1f} GB/s"


def _told(text: str) -> None:
    click.echo(f"measuring {text}", err=True)
