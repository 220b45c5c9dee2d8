"""`nestwright opt`: single passes on HLO text or loop IR, as a test or a report needs them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...ir.errors import ArgumentError, ParseError

if TYPE_CHECKING:  # the command line is read before a compiler is needed
    from ...ir.passes import Pass


@click.command()
@click.argument("file", type=click.Path())
@click.option("--pass", "names", multiple=True, help="Pass to run; may be repeated.")
@click.option("--list", "listed", is_flag=True, help="List the passes that apply to FILE.")
@click.option("--target", default="cpu", show_default=True, help="Target to lower loop IR for.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def opt(file: str, names: tuple[str, ...], listed: bool, target: str, as_json: bool) -> None:
    """Run passes on FILE in the order given, and print the result.

    FILE is HLO text, for graph passes, or the text of a loop function, for lowering passes (as
    `show --stage scheduled` prints it, without its heading).
    """
    text = _text(Path(file))
    if listed == bool(names):
        raise ArgumentError("give either --list or passes to run", hint="opt FILE --pass NAME")
    graph = text.lstrip().startswith("HloModule") or "\nHloModule" in text
    if listed:
        found = _graph_passes() if graph else _lowering_passes(target)
        told = "\n".join(f"{n:<24} {says}".rstrip() for n, says in found.items())
        click.echo(json.dumps({"version": 1, "passes": found}) if as_json else told)
        return
    if graph:
        made = _through_graph(text, file, names)
    else:
        made = _through_lowering(text, file, names, target)
    click.echo(json.dumps({"version": 1, "text": made}) if as_json else made.rstrip("\n"))


def _text(path: Path) -> str:
    from ...ir.frontends.registry import FILES

    try:
        data = path.read_bytes()
    except OSError as error:
        raise ParseError("cannot read the text", error.strerror or str(error), str(path)) from None
    row = next((row for row in FILES if row.recognizes(data)), FILES[0])
    why = "" if row is FILES[0] else f"it looks like {row.name}"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        why = why or "it is not text"
    if why:
        hint = f"nestwright show {path} --stage hlo > {path.stem}.hlo"
        raise ParseError("opt takes HLO text or a loop function", why, str(path), hint)
    return text


def _graph_passes() -> dict[str, str]:
    from ...ir.hlo.passes.pipeline import PIPELINE

    named = PIPELINE.named()
    return {name: step.then for name, step in named.items()}


def _lowering_passes(target: str) -> dict[str, str]:
    from ...codegen.targets.registry import backend
    from ...ir.target import Target

    machine = Target.parse(target)
    return {row.name: row.then for row in backend(machine).lowering.rows}


def _through_graph(text: str, source: str, names: Iterable[str]) -> str:
    from ...ir.hlo.analysis.verify import verify
    from ...ir.hlo.passes.pipeline import PIPELINE
    from ...ir.hlo.text import parse, show

    module = parse(text, source)
    verify(module)
    for step in _chosen(PIPELINE.named(), names):
        module = step.run(module)
    return show(module)


def _through_lowering(text: str, source: str, names: Iterable[str], target: str) -> str:
    from ...codegen.targets.registry import backend
    from ...ir.loop.parser import parse
    from ...ir.loop.printer import show
    from ...ir.target import Target

    func = parse(text, source)
    machine = Target.parse(target)
    for step in _chosen(backend(machine).lowering.pipeline(machine).named(), names):
        func = step.run(func)
    return show(func)


def _chosen(known: Mapping[str, Pass[Any]], names: Iterable[str]) -> list[Pass[Any]]:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "--list lists them"
            raise ArgumentError(f"no pass {name!r} applies to this text", hint=hint)
    return [known[name] for name in names]
