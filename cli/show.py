"""`nestwright show`: a model at any stage of compilation, its graph passes, or all as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ..ir.errors import ArgumentError
from .options import ModelCommand, accuracy_option, excess_precision_option, weights_option

if TYPE_CHECKING:  # the command line is read before a compiler is needed
    from ..ir.target import Target
    from ..schedule.language.trace import Trace
    from .arrays import Array

DEFAULT = "optimized"


class StageOption(click.Option):
    """An option whose help lists the stages, which load the compiler when help is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help with the names of all stages."""
        from ..codegen.driver.stages import STAGES

        self.help = f"{', '.join(STAGES)}.  [default: {DEFAULT}]"
        return super().get_help_record(ctx)


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--stage", cls=StageOption)
@click.option(
    "--passes", is_flag=True, help="List all passes, of graphs and of lowering: effect, size, time."
)
@click.option("--dump", type=click.Path(), help="Write every stage into this folder.")
@click.option("--group", help="Only this group (for te and later stages).")
@click.option("--target", default="cpu", show_default=True, help="Target to compile for.")
@click.option("--log", type=click.Path(), help="Tuning log whose schedules are shown, or `auto`.")
@click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz.")
@weights_option()
@excess_precision_option()
@accuracy_option()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(
    model: str,
    stage: str | None,
    passes: bool,
    dump: str | None,
    group: str | None,
    target: str,
    log: str | None,
    constants: str | None,
    weights: str | None,
    excess_precision: bool,
    accuracy: float | None,
    as_json: bool,
) -> None:
    """Print MODEL at a stage, from HLO to assembly, or list its graph passes."""
    if (stage is not None) + passes + (dump is not None) > 1:
        raise ArgumentError("--stage, --passes and --dump exclude each other", "give one")
    if group is not None and (passes or dump is not None):
        raise ArgumentError("--group needs --stage", hint="leave --group out")
    from ..ir.target import with_accuracy

    frozen = _constants(constants)
    target = with_accuracy(target, accuracy).spec
    if passes:
        facts, text = _passes(model, target, log, frozen, excess_precision, weights)
    elif dump is not None:
        facts, text = _dump(model, Path(dump), target, log, frozen, excess_precision, weights)
    else:
        facts, text = _stage(
            model, stage or DEFAULT, group, target, log, frozen, excess_precision, weights
        )
    if as_json:
        text = json.dumps({"version": 1, "model": model, **facts})
    click.echo(text)


Shown = tuple[dict[str, Any], str]  # for programs, for people
Constants: TypeAlias = "Mapping[int | str, Array]"


def _constants(path: str | None) -> Constants | None:
    """Return the arrays of a file by parameter; None without one."""
    if path is None:
        return None
    from .arrays import read_constants

    return read_constants(path)


def _stage(
    model: str,
    stage: str,
    group: str | None,
    target: str,
    log: str | None,
    constants: Constants | None,
    excess_precision: bool,
    weights: str | None,
) -> Shown:
    from ..codegen.driver.stages import check_stage, stage_text
    from ..ir.frontends.load import load_model
    from ..ir.target import Target

    machine = Target.parse(target)
    check_stage(stage, machine, group)  # before a large model is read
    traces = _traces(log, machine)
    module = load_model(model)
    text = stage_text(module, machine, stage, group, traces, constants, excess_precision, weights)
    return {"stage": stage, "text": text}, text


def _traces(log: str | None, target: Target) -> Mapping[str, Trace]:
    """Return the best schedules of a log; none without one."""
    if log is None:
        return {}
    from ..autotune.build import best_traces

    return best_traces(log, target)


def _dump(
    model: str,
    folder: Path,
    target: str,
    log: str | None,
    constants: Constants | None,
    excess_precision: bool,
    weights: str | None,
) -> Shown:
    from ..codegen.driver.dump import dump_stages
    from ..ir.frontends.load import load_model
    from ..ir.target import Target

    machine = Target.parse(target)
    traces = _traces(log, machine)
    module = load_model(model)
    paths = dump_stages(module, machine, folder, traces, constants, excess_precision, weights)
    written = list(map(str, paths))
    return {"written": written}, "\n".join(written)


def _passes(
    model: str,
    target: str,
    log: str | None,
    constants: Constants | None,
    excess_precision: bool,
    weights: str | None,
) -> Shown:
    from ..codegen.driver.pass_report import graph_report, lowering_report
    from ..ir.frontends.load import load_model
    from ..ir.hlo.passes.prepare.freeze_parameters import freeze
    from ..ir.hlo.passes.weights.narrow import narrow_weights
    from ..ir.target import Target

    machine = Target.parse(target)
    traces = _traces(log, machine)
    module = load_model(model)
    graph, optimized = graph_report(freeze(module, constants) if constants else module)
    if weights is not None:
        optimized, _ = narrow_weights(optimized, weights)
    lowering = lowering_report(optimized, machine, traces, excess_precision)
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
