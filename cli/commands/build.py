"""`nestwright build`: compile a model with the best schedules of a log, and write it to a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...ir.errors import ArgumentError
from ..display.built import library_lines, variant_lines, weight_lines
from ..syntax.options import ModelCommand, RecipeOptions, recipe_options

if TYPE_CHECKING:
    from ...codegen.plan.interface import CLibrary
    from ...codegen.runtime.executable import Executable

FORMATS = ("nw", "c")


def library_options() -> Callable[[Any], Any]:
    """``--format``, ``--weights-as`` and ``--name``; ``read_library`` reads them."""
    options = (
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            default="nw",
            show_default=True,
            help="What is written: a file for `nestwright run`, or a folder with a C library.",
        ),
        click.option(
            "--weights-as",
            type=click.Choice(["object", "file"]),
            help="Where a C library has its weights: in itself (default), or in a file to map.",
        ),
        click.option("--name", help="Name of a C library, with which its symbols begin."),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option("--target", default="cpu", show_default=True, help="Target to build for.")
@click.option("--from", "stage", help="Start at this stage; MODEL is its text from `show`.")
@click.option(
    "--log", type=click.Path(), help="Tuning log whose best schedules are used, or `auto`."
)
@recipe_options()
@click.option("-o", "--output", type=click.Path(), help="Where to write the built model.")
@library_options()
@click.option("--sign", type=click.Path(), help="Sign it with this private key (Ed25519, PEM).")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of built models.")
@click.option("--timings", is_flag=True, help="Print the time of every stage.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def build(
    model: str,
    target: str,
    stage: str | None,
    log: str | None,
    recipe: RecipeOptions,
    output: str | None,
    form: str,
    weights_as: str | None,
    name: str | None,
    sign: str | None,
    no_cache: bool,
    timings: bool,
    as_json: bool,
) -> None:
    """Build MODEL for a target. Nothing is measured.

    With --from, compilation starts at a stage. `hlo`, `optimized`, one group of `fused`, and one
    function of `loop`, `scheduled` or `flat` become a model that `nestwright run` takes; `llvm` and
    `ptx` become code for the target.

    With --format c the output is a folder with a static library, which C programs link, headers,
    an example program, and files for CMake and pkg-config.
    """
    from ...ir.files import require_place

    library = read_library(form, weights_as, name, output, target)
    if output is not None and library is None:
        require_place(output)  # before a large model is compiled
    if sign is not None and (output is None or library is not None):
        raise ArgumentError(
            "--sign needs -o OUT.nw", "only a built model that is written is signed"
        )
    if stage is not None:
        others = {"--timings": timings or None, "--format": library}
        _refuse_beside_stage({"--sign": sign, "--log": log, **recipe.given, **others})
        click.echo(_from_stage(model, stage, target, output, as_json))
        return
    from ...autotune.variants import built
    from ...ir.target import Target

    start = time.perf_counter()
    stages: dict[str, float] = {}
    variants = [recipe.build_options(each) for each in Target.several(target)]
    exe = built(partial(recipe.lowered_for, model), variants, log, stages, not no_cache)
    made = exe.export_c(output, **library.options) if output and library else None
    if output is not None and made is None:
        exe.save(output, sign)
    total = time.perf_counter() - start
    if as_json:
        facts = {"model": model, "output": output, "seconds": total, "timings": stages}
        click.echo(json.dumps({"version": 1, **facts, **_facts(exe, made)}))
        return
    where = f", written to {output}" if output else ""
    click.echo(f"built {model} in {total:.2f} s{where}")
    spent = {**stages, "other": total - sum(stages.values())} if timings else {}
    for line in (*_lines(exe, made), *(f"  {name:<10} {t:8.3f} s" for name, t in spent.items())):
        click.echo(line)


def _refuse_beside_stage(given: Mapping[str, object]) -> None:
    """Raise ``ArgumentError`` for options that --from does not take; None is not given."""
    for option, value in given.items():
        if value is not None and option != "--excess-precision":  # a part of a stage's text
            why = f"{option} cannot be used with --from"
            raise ArgumentError(why, hint=f"leave {option} out")


def _facts(exe: Executable, made: CLibrary | None) -> dict[str, Any]:
    """Return the facts about a build that its JSON ends with."""
    narrow = {"narrow_weights": found} if (found := exe.weights_analysis()) else {}
    library = {"library": asdict(made)} if made else {}
    return {**narrow, "memory": exe.memory_analysis(), **library}


def _lines(exe: Executable, made: CLibrary | None) -> Iterator[str]:
    """Yield what is to be known about a build, line by line."""
    from ...codegen.plan.code.device import DeviceCode

    yield from (*weight_lines(exe), *variant_lines(exe), *library_lines(made))
    if any(isinstance(c, DeviceCode) and not c.cubin for c in exe.bundle.kernels.values()):
        yield "note: no ptxas was found: this holds PTX only, which the driver compiles on load"


@dataclass(frozen=True, slots=True)
class LibraryOptions:
    """Options of ``Executable.export_c``."""

    options: dict[str, Any]


def read_library(
    form: str, weights_as: str | None, name: str | None, output: str | None, target: str
) -> LibraryOptions | None:
    """Return the options of the C library that is asked for; None if it is not.

    ``ArgumentError`` for options without the format they belong to, or the format without ``-o``;
    ``UnsupportedError`` for a target that has no C libraries.
    """
    if form != "c":
        for option, value in {"--weights-as": weights_as, "--name": name}.items():
            if value is not None:
                why = "only C libraries have this option"
                raise ArgumentError(f"{option} {value}", why, hint="add --format c")
        return None
    if output is None:
        raise ArgumentError("--format c", "a C library is a folder", hint="name it: -o DIR")
    from ...codegen.export.checks import require_target
    from ...ir.target import Target

    require_target(Target.parse(target))
    return LibraryOptions({"name": name or "", "weights": weights_as or "object"})


def _from_stage(path: str, stage: str, target: str, output: str | None, as_json: bool) -> str:
    """Build a dumped text, write it if that is wanted, and return what is to be said."""
    from ...codegen.driver.from_stage import build_from, made_of, read_text, require_start
    from ...ir.files import whole_file
    from ...ir.target import Target

    start = time.perf_counter()
    machine = Target.parse(target)
    require_start(stage, machine)  # before a large text is read
    built = build_from(stage, read_text(path), machine, path)
    if output is not None and isinstance(built, bytes):
        with whole_file(Path(output)) as file:
            file.write(built)
    elif output is not None and not isinstance(built, bytes):
        built.save(output)
    seconds = time.perf_counter() - start
    made = made_of(stage, machine)
    if as_json:
        facts = {"model": path, "from": stage, "made": made, "output": output, "seconds": seconds}
        return json.dumps({"version": 1, **facts})
    where = f", written to {output}" if output else ""
    return f"built {made} from stage {stage} of {path} in {seconds:.2f} s{where}"
