"""`nestwright explain`: why a model is built as it is, and why the cache was not used."""

from __future__ import annotations

import json

import click

from ..syntax.options import ModelCommand, RecipeOptions, recipe_options


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--group", help="Only this group, by its name or the start of its key, in full.")
@click.option("--target", default="cpu", show_default=True, help="Target to compile for.")
@click.option("--log", type=click.Path(), help="Tuning log that a build would use, or `auto`.")
@recipe_options()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def explain(
    model: str,
    group: str | None,
    target: str,
    log: str | None,
    recipe: RecipeOptions,
    as_json: bool,
) -> None:
    """Tell why MODEL is fused and scheduled as it is, what tuning promises, and why the cache has
    it or not. Options are those of `build`; nothing is compiled or measured."""
    from ...autotune.explain.model import explain_model
    from ...autotune.explain.text import show_group, show_model

    lowered = recipe.lowered(model, target)
    found = explain_model(lowered, log)
    chosen = None if group is None else found.group(group)
    if as_json:
        facts = found.to_json()
        if chosen is not None:
            facts["groups"] = [g for g in facts["groups"] if g["key"] == chosen.key]
        click.echo(json.dumps(facts))
    else:
        click.echo(show_model(found) if chosen is None else show_group(found, chosen))
