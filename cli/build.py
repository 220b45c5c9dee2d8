"""`nestwright build`: compile a model with the best schedules of a log, and write it down."""

from __future__ import annotations

import json
import time

import click

from .arrays import read_constants
from .options import ModelCommand, excess_precision_option


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--target", default="cpu", show_default=True, help="Target to build for.")
@click.option("--log", type=click.Path(), help="Tuning log whose best schedules are used.")
@click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz.")
@excess_precision_option()
@click.option("-o", "--output", type=click.Path(), help="Where to write the built model.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of built models.")
@click.option("--timings", is_flag=True, help="Print the time of every stage.")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def build(
    model: str,
    target: str,
    log: str | None,
    constants: str | None,
    excess_precision: bool,
    output: str | None,
    no_cache: bool,
    timings: bool,
    as_json: bool,
) -> None:
    """Build MODEL for a target. Nothing is measured."""
    from ..autotune.build import build as build_model
    from ..codegen.plan.code import DeviceCode

    start = time.perf_counter()
    stages: dict[str, float] = {}
    frozen = read_constants(constants)
    exe = build_model(
        model,
        target=target,
        log=log,
        constants=frozen,
        timings=stages,
        cache=not no_cache,
        excess_precision=excess_precision,
    )
    if output is not None:
        exe.save(output)
    total = time.perf_counter() - start
    if as_json:
        facts = {"model": model, "output": output, "seconds": total, "timings": stages}
        memory = exe.memory_analysis()
        click.echo(json.dumps({"version": 1, **facts, "memory": memory}))
        return
    where = f", written to {output}" if output else ""
    click.echo(f"built {model} in {total:.2f} s{where}")
    if any(isinstance(c, DeviceCode) and not c.cubin for c in exe.bundle.kernels.values()):
        click.echo(
            "note: no ptxas was found: this holds PTX only, which the driver compiles on load"
        )
    if timings:
        for name, seconds in stages.items():
            click.echo(f"  {name:<10} {seconds:8.3f} s")
        click.echo(f"  {'other':<10} {total - sum(stages.values()):8.3f} s")
