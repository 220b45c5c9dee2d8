"""`nestwright show`: a model at any stage of compilation, its graph passes, or all as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ...ir.archive import is_zip
from ...ir.errors import ArgumentError
from ..syntax.options import (
    ModelCommand,
    RecipeOptions,
    recipe_options,
    refuse_trusted,
    trusted_option,
)

if TYPE_CHECKING:  # the command line is read before a compiler is needed
    from ...autotune.lowered import Lowered

DEFAULT = "optimized"
STDOUT = "-"


class StageOption(click.Option):
    """An option whose help lists the stages, which load the compiler when help is asked for.

    A shell completes their names.
    """

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the stages that begin as what was typed."""
        from ...codegen.driver.stages import STAGES

        return [CompletionItem(name) for name in STAGES if name.startswith(incomplete)]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help with the names of all stages."""
        from ...codegen.driver.stages import STAGES

        self.help = f"{', '.join(STAGES)}.  [default: {DEFAULT}]"
        return super().get_help_record(ctx)


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--stage", cls=StageOption)
@click.option(
    "--passes", is_flag=True, help="List all passes, of graphs and of lowering: effect, size, time."
)
@click.option("--dump", type=click.Path(), help="Write every stage into this folder.")
@click.option("--html", type=click.Path(), help="Write the graph of groups as one HTML page.")
@click.option(
    "--dot",
    type=click.Path(),
    is_flag=False,
    flag_value=STDOUT,
    help="Write the graph of groups as Graphviz text; without a path, to stdout.",
)
@click.option("--stages", help="Stages that --html shows for each group, as `hlo,loop,asm`.")
@click.option("--group", help="Only this group (for te and later stages).")
@click.option("--target", default="cpu", show_default=True, help="Target to compile for.")
@click.option("--log", type=click.Path(), help="Tuning log whose schedules are shown, or `auto`.")
@recipe_options()
@trusted_option()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(
    model: str,
    stage: str | None,
    passes: bool,
    dump: str | None,
    html: str | None,
    dot: str | None,
    stages: str | None,
    group: str | None,
    target: str,
    log: str | None,
    recipe: RecipeOptions,
    trusted: str | None,
    as_json: bool,
) -> None:
    """Print MODEL at a stage, from HLO to assembly, list its graph passes, or draw its groups.

    Of OUT (a built model) the stages are `plan`, which is the default, and `hlo`.
    """
    if not passes and dump is html is dot is group is None and is_zip(model):
        from ..display.built import show_built

        if show_built(model, stage, trusted, as_json):
            return
    refuse_trusted(model, trusted)
    whole = passes + sum(given is not None for given in (dump, html, dot))
    _refuse_together(stage, whole, group)
    if stages is not None and html is None:
        raise ArgumentError("--stages needs --html", hint="--stage prints one stage")
    lowered = recipe.lowered(model, target)
    if passes:
        facts, text = _passes(lowered, log)
    elif dump is not None:
        facts, text = _dump(lowered, Path(dump), log)
    elif html is not None:
        facts, text = _page(lowered, Path(html), stages, log)
    elif dot is not None:
        facts, text = _graphviz(lowered, dot)
    else:
        shown = stage or DEFAULT
        text = lowered.as_text(shown, group, log)
        facts = {"stage": shown, "text": text}
    if as_json:
        text = json.dumps({"version": 1, "model": model, **facts})
    click.echo(text)


Shown = tuple[dict[str, Any], str]  # for programs, for people


def _refuse_together(stage: str | None, whole: int, group: str | None) -> None:
    """Raise ``ArgumentError`` for options that exclude each other.

    ``whole`` is the number of options given that show the model as a whole.
    """
    if (stage is not None) + whole > 1:
        text = "--stage, --passes, --dump, --html and --dot exclude each other"
        raise ArgumentError(text, "give one")
    if group is not None and whole:
        raise ArgumentError("--group needs --stage", hint="leave --group out")


def _dump(model: Lowered, folder: Path, log: str | None) -> Shown:
    from ...codegen.driver.dump import dump_stages

    paths = dump_stages(
        model.imported.module, model.options, folder, model.schedules(log), model.frozen
    )
    written = list(map(str, paths))
    return {"written": written}, "\n".join(written)


def _page(model: Lowered, path: Path, stages: str | None, log: str | None) -> Shown:
    """Write the page of a model's groups."""
    from ...autotune.explain.model import graph_page
    from ...ir.files import whole_file

    page = graph_page(model, stages, log).encode()
    with whole_file(path) as file:
        file.write(page)
    return {"written": [str(path)], "bytes": len(page)}, f"{path}: {len(page) / 1e6:.2f} MB"


def _graphviz(model: Lowered, path: str) -> Shown:
    """Write the graph of a model's groups for Graphviz, or return it."""
    from ...autotune.explain.dot import show_dot
    from ...autotune.explain.graph import model_graph
    from ...ir.files import whole_file

    text = show_dot(model_graph(model.prepared(), model.name))
    if path == STDOUT:
        return {"text": text}, text.rstrip("\n")
    with whole_file(Path(path)) as file:
        file.write(text.encode())
    return {"written": [path]}, path


def _passes(model: Lowered, log: str | None) -> Shown:
    from ...codegen.driver.pass_report import graph_report, lowering_report
    from ...ir.hlo.passes.pipeline import finish
    from ...ir.hlo.passes.prepare.freeze_parameters import freeze

    machine, traces = model.target, model.schedules(log)
    graph, optimized = graph_report(freeze(model.imported.module, model.frozen))
    options = model.options
    finished, _ = finish(
        optimized, options.weights, machine, excess_precision=options.excess_precision
    )
    lowering = lowering_report(finished, options, traces)
    notes = [f"{r.name} repeats {', '.join(r.parts)}" for r in graph.rows if r.parts]
    facts = {
        "instructions": graph.start,
        "passes": graph.facts("instructions"),
        "seconds": graph.seconds,
        "lowering": {
            "target": machine.spec,
            "groups": lowering.of,
            "statements": lowering.start,
            "passes": lowering.facts("statements"),
            "seconds": lowering.seconds,
        },
    }
    lines = [
        *graph.table("instructions"),
        "The module was verified after every change.",
        "",
        *dict.fromkeys(notes),
        "",
        f"lowering {lowering.of} distinct group{'s' * (lowering.of != 1)} for {machine.spec}",
        *(lowering.table("statements") if lowering.of else ()),
    ]
    return facts, "\n".join(lines)
