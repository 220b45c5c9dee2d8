"""`nestwright replay`: run a model beside the interpreter, find what is wrong, pack a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...ir.errors import ArgumentError
from ..inputs.arrays import in_order, read_constants, read_npz
from ..syntax.group import Suggesting
from ..syntax.options import ModelCommand, excess_precision_option

if TYPE_CHECKING:  # `--help` needs no LLVM
    from ...codegen.replay.archive import Report
    from ...codegen.replay.locate import Fault
    from ...codegen.replay.run import ReplayResult, Setting
    from ...codegen.replay.shrink import Failing
    from ...ir.hlo.nodes import AnyShape, Computation, HloModule
    from ...ir.target import Target
    from ...schedule.language.trace import Trace
    from ..inputs.arrays import Array


class _Replay(Suggesting):
    """``replay MODEL`` runs it; ``replay pack MODEL`` packs it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Replay, context_settings={"ignore_unknown_options": True})
def replay() -> None:
    """Compare MODEL or a packed report with the interpreter, or pack a report."""


def _given(f: Any) -> Any:
    """Add the options that both commands take."""
    options = (
        click.argument("model", type=click.Path()),
        click.option("--inputs", type=click.Path(), help="Arguments as .npz (arg0, arg1, ...)."),
        click.option(
            "--random", "seed", type=click.IntRange(0), help="Draw the arguments from this seed."
        ),
        click.option("--target", help="Target to build for (default: cpu, or the report's)."),
        click.option("--log", type=click.Path(), help="Tuning log to build with."),
        click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz."),
        excess_precision_option(default=None),
    )
    for option in reversed(options):
        f = option(f)
    return f


@replay.command(cls=ModelCommand)
@_given
@click.option(
    "--against",
    type=click.Choice(["interpreter", "bundle"]),
    default="interpreter",
    show_default=True,
    help="Reference: the interpreter, or the results in the report.",
)
@click.option("--bisect", is_flag=True, help="Shrink a failing model and write the result.")
@click.option("-o", "--output", type=click.Path(), help="File for the report of --bisect.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def run(
    model: str, against: str, bisect: bool, output: str | None, as_json: bool, **given: Any
) -> int:
    """Run MODEL, compare its results, and name the first wrong group.

    MODEL is a model, a built model, or a report from `nestwright replay pack`. Without --inputs and
    --random, a report provides its own arguments, and those of a model are drawn from seed 0. With
    --bisect, a failing model is shrunk and written as a report, with its HLO next to it.
    """
    from ...codegen.replay.locate import locate
    from ...codegen.replay.run import replay as again

    case = _case(model, **given)
    wanted = _stored(case, model) if against == "bundle" else None
    outcome = again(case.module, case.args, case.setting, wanted)
    fault = smallest = None
    if not outcome.ok and not (wanted is not None and _right_here(case)):
        fault = locate(case.module, case.args, case.setting)
        smallest = _shrink(fault) if bisect else None
    setting = fault.setting if fault is not None else case.setting
    small = output or f"{Path(model).stem}-small.zip"
    written = _write_smallest(case, setting, smallest, small)
    answer = ReplayAnswer(model, against, outcome, fault, smallest, written)
    click.echo(json.dumps(answer.facts()) if as_json else answer.text())
    return 0 if outcome.ok else 1


@replay.command(cls=ModelCommand)
@_given
@click.option("-o", "--output", type=click.Path(), required=True, help="File to write.")
def pack(model: str, output: str, **given: Any) -> None:
    """Run MODEL once and pack everything needed to run it on another machine."""
    from ...codegen.replay.archive import write
    from ...codegen.replay.run import replay as again

    case = _case(model, **given)
    outcome = again(case.module, case.args, case.setting)
    write(_report(case, outcome), Path(output))
    verdict = "its results are right here" if outcome.ok else "it fails here"
    click.echo(f"packed {model} into {output}; {verdict}")


@dataclass(frozen=True)
class ReplayCase:
    """A model with its arguments and options; ``report`` is what they were read from, if any."""

    module: HloModule
    args: list[Any]
    seed: int | None
    setting: Setting
    records: bytes
    report: Report | None


def _case(
    model: str,
    inputs: str | None,
    seed: int | None,
    target: str | None,
    log: str | None,
    constants: str | None,
    excess_precision: bool | None,
) -> ReplayCase:
    from ...codegen.driver.artifact import is_artifact, load
    from ...codegen.driver.options import BuildOptions
    from ...codegen.replay.archive import is_report, read
    from ...codegen.replay.run import Setting
    from ...ir.frontends.imported import Imported
    from ...ir.frontends.load import load as load_model
    from ...ir.hlo.passes.prepare.freeze_parameters import freeze
    from ...ir.hlo.text import parse
    from ...ir.target import Target

    report = read(Path(model)) if is_report(Path(model)) else None
    built = load(model) if report is None and is_artifact(model) else None
    if report is not None:
        source = Imported(module=parse(report.hlo, f"{model}:model.hlo"))
    else:
        source = load_model(model) if built is None else Imported(module=built.module)
    module = source.module
    given = read_constants(constants) or (dict(report.constants) if report else {})
    frozen = source.constants(given, freeze=True) or None
    known = report.target if report else built.bundle.target.spec if built else "cpu"
    machine = Target.parse(target or known)
    records = Path(log).read_bytes() if log is not None else report.records if report else b""
    if excess_precision is None:
        origin = report if report is not None else built.bundle if built else None
        excess_precision = origin is None or origin.excess_precision
    options = BuildOptions(machine, excess_precision)
    setting = Setting(options, _schedules(records, machine), frozen)
    entry = (freeze(module, frozen) if frozen else module).entry
    args, drawn = _arguments(entry, inputs, seed, report)
    return ReplayCase(module, args, drawn, setting, records, report)


def _arguments(
    entry: Computation, inputs: str | None, seed: int | None, report: Report | None
) -> tuple[list[Array], int | None]:
    """Return the arguments of a run, and the seed that they are drawn by; None if they are read.

    Without either option they are those of the report, else drawn by the seed 0.
    """
    if inputs is not None and seed is not None:
        raise ArgumentError("--inputs and --random exclude each other", hint="give one of them")
    if inputs is not None:
        return _read(inputs, entry), None
    if seed is None and report is not None:
        stored = report.inputs
        return _drawn(entry, report.seed or 0) if stored is None else list(stored), report.seed
    return _drawn(entry, seed or 0), seed or 0


def _drawn(entry: Computation, seed: int) -> list[Array]:
    from ...ir.hlo.analysis.inputs import random_arguments

    return list(random_arguments(entry, seed))


def _read(path: str, entry: Computation) -> list[Array]:
    from ...codegen.plan.signature import ArraySpec
    from ...ir.hlo.nodes import Shape, TupleShape

    def specs(name: str, shape: AnyShape) -> list[ArraySpec]:
        match shape:
            case Shape(dtype=dtype, dims=dims):
                return [ArraySpec(name, dtype, dims)]
            case TupleShape(elements=elements):
                return [s for e in elements for s in specs(name, e)]
            case _:
                return []

    return in_order(read_npz(path), [s for p in entry.parameters for s in specs(p.name, p.shape)])


def _schedules(records: bytes, target: Target) -> Mapping[str, Trace]:
    """Return the best schedules of a log's text."""
    from ...autotune.log.best import best_traces
    from ...ir.scratch import scratch

    if not records:
        return {}
    with scratch("replay") as folder:
        path = folder / "records.jsonl"
        path.write_bytes(records)
        return best_traces(path, target)


def _stored(case: ReplayCase, model: str) -> tuple[Array, ...]:
    if case.report is None or case.report.results is None:
        raise ArgumentError(
            f"{model} holds no results to compare with",
            "only a report of a model that ran where it was packed holds some",
            hint="--against interpreter",
        )
    return tuple(case.report.results)


def _right_here(case: ReplayCase) -> bool:
    """True if the model agrees with the interpreter on this machine."""
    from ...codegen.replay.run import replay as again

    return again(case.module, case.args, case.setting).ok


def _shrink(fault: Fault) -> Failing | None:
    from ...codegen.replay.shrink import Shrinker

    def tell(found: Failing) -> None:
        click.echo(f"  {found.size} instructions still fail", err=True)

    return Shrinker(fault.setting, tell).shrink(fault.module, fault.arguments)


def _write_smallest(case: ReplayCase, setting: Setting, found: Failing | None, output: str) -> str:
    """Write a report and its HLO; return its path, empty if there is nothing to write."""
    from ...codegen.replay.archive import write
    from ...ir.files import whole_file
    from ...ir.hlo.text import show

    if found is None:
        return ""
    small = ReplayCase(found.module, list(found.arguments), None, setting, case.records, None)
    write(_report(small, found.outcome, frozen=True), Path(output))
    with whole_file(Path(output).with_suffix(".hlo")) as file:
        file.write(show(found.module).encode())
    return output


def _report(case: ReplayCase, outcome: ReplayResult, frozen: bool = False) -> Report:
    """Return what is packed of a case; with ``frozen`` its constants are in the module."""
    from ...codegen.replay.archive import Report, machine, versions
    from ...ir.comparison import leaves
    from ...ir.hlo.text import show

    return Report(
        name=case.module.name,
        hlo=show(case.module),
        target=case.setting.target.spec,
        seed=case.seed,
        inputs=leaves(case.args) if case.seed is None else None,
        constants={} if frozen else dict(case.setting.constants or {}),
        records=case.records,
        results=leaves(outcome.results) if outcome.error is None else None,
        failure="" if outcome.ok else str(outcome),
        versions=versions(),
        machine=machine(case.setting.target),
        excess_precision=case.setting.options.excess_precision,
    )


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """The outcome of a replay, and the fault that was found, if any."""

    model: str
    against: str
    outcome: ReplayResult
    fault: Fault | None
    smallest: Failing | None
    written: str

    def text(self) -> str:
        """Return the answer as text for people."""
        of = "the interpreter" if self.against == "interpreter" else "the report's results"
        head = f"{self.model}: " + ("agrees with" if self.outcome.ok else "DIFFERS from") + f" {of}"
        lines = [head, *(f"  {row}" for row in str(self.outcome).splitlines())]
        if self.fault is not None:
            lines.append(str(self.fault))
        elif not self.outcome.ok:
            lines.append(
                "it agrees with the interpreter here: the results differ on the report's machine"
            )
        if self.smallest is not None:
            size = f"{self.smallest.size} instructions"
            lines.append(f"shrunk to {size}, written to {self.written} and as .hlo beside it")
        return "\n".join(lines)

    def facts(self) -> dict[str, object]:
        """Return the answer as plain data for JSON."""
        rows = [
            {
                "output": r.output,
                "ok": r.ok,
                "error": r.error,
                "tolerance": r.tolerance,
                "mismatch": r.mismatch,
            }
            for r in self.outcome.rows
        ]
        error = self.outcome.error
        fault = self.fault
        return {
            "version": 1,
            "model": self.model,
            "against": self.against,
            "ok": self.outcome.ok,
            "checks": rows,
            "failure": None if error is None else f"{type(error).__name__}: {error}",
            "fault": None if fault is None else {"kind": fault.kind, "name": fault.name},
            "instructions": None if self.smallest is None else self.smallest.size,
            "written": self.written or None,
        }
