"""A built model as `nestwright show` prints it: its processors, its plan or HLO."""

from __future__ import annotations

import json

import click

from .variants import variant_lines


def show_built(model: str, stage: str | None, trusted: str | None, as_json: bool) -> bool:
    """Print a built model; false, and nothing printed, for another file.

    ``ArtifactError`` for one that cannot be loaded, or does not hold the stage.
    """
    from ..codegen.driver.artifact import is_artifact, load

    if not is_artifact(model):
        return False
    exe = load(model, trusted)
    shown = stage or "plan"
    text = exe.as_text(shown)
    if as_json:
        facts = {"target": exe.bundle.target.spec, "variants": [v._asdict() for v in exe.variants]}
        click.echo(
            json.dumps({"version": 1, "model": model, **facts, "stage": shown, "text": text})
        )
        return True
    missing = exe.bundle.target.missing
    if not exe.variants:
        state = f"; this machine lacks {', '.join(missing)}" if missing else ""
        click.echo(f"built for {exe.bundle.target.spec}{state}")
    for line in variant_lines(exe):
        click.echo(line)
    click.echo(text)
    return True
