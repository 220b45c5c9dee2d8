"""`nestwright show`: print a model at any stage of compilation."""

from __future__ import annotations

import json

import click

from ..ir.errors import ArgumentError
from .arrays import read_constants

STAGES = ("hlo", "optimized", "fused", "te", "loop", "scheduled", "flat", "llvm", "asm", "plan")
WHOLE = ("hlo", "optimized", "fused", "plan")  # stages that show the model as one


@click.command()
@click.argument("model", type=click.Path())
@click.option("--stage", default="optimized", show_default=True, help=", ".join(STAGES) + ".")
@click.option("--group", help="Only this group (for te and later stages).")
@click.option("--target", default="cpu", show_default=True, help="What to compile for.")
@click.option("--log", type=click.Path(), help="Tuning log whose schedules are shown.")
@click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz.")
@click.option("--json", "as_json", is_flag=True, help="Print the text inside a JSON object.")
def show(
    model: str,
    stage: str,
    group: str | None,
    target: str,
    log: str | None,
    constants: str | None,
    as_json: bool,
) -> None:
    """Print MODEL at a stage: from HLO text to assembly."""
    from ..autotune.api import stage_text

    if stage not in (*STAGES, "ptx"):
        import difflib

        near = difflib.get_close_matches(stage, STAGES, n=1)
        raise ArgumentError(
            f"no stage {stage!r}",
            hint=(f"did you mean {near[0]!r}? " if near else "") + f"stages: {', '.join(STAGES)}",
        )
    if group is not None and stage in WHOLE:
        raise ArgumentError(f"stage {stage} has no groups of its own", hint="leave --group out")
    frozen = read_constants(constants)
    text = stage_text(model, stage, group=group, target=target, log=log, constants=frozen)
    if as_json:
        click.echo(json.dumps({"version": 1, "model": model, "stage": stage, "text": text}))
    else:
        click.echo(text)
