"""`nestwright run`: build or load a model, run it once, check it if asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...ir.errors import ArgumentError
from ..display.built import variant_lines, weight_lines
from ..display.profile import print_profile
from ..inputs.arrays import in_order, read_npz, sizes, write_npz
from ..inputs.ranks import Ranks, own_parts, ranks
from ..syntax.options import (
    ModelCommand,
    RecipeOptions,
    has_ranges,
    profile_options,
    read_open_shapes,
    read_rule,
    read_shapes,
    recipe_options,
    refuse_trusted,
    rule_option,
    trusted_option,
)

if TYPE_CHECKING:
    from ...autotune.lowered import Lowered
    from ...autotune.recipe import ImportOptions
    from ...codegen.driver.options import BuildOptions
    from ...codegen.runtime.executable import Executable
    from ...codegen.runtime.profile.data import Profile
    from ...ir.comparison import Comparison
    from ...ir.hlo.nodes import HloModule
    from ..inputs.arrays import Array

_WAYS = "pass either --inputs X.npz or --random SEED"


@click.command(cls=ModelCommand)
@click.argument("model", type=click.Path())
@click.option(
    "--inputs",
    type=click.Path(),
    help="Arguments as .npz, by name or arg0, arg1, ...; open sizes are theirs.",
)
@click.option("--random", "seed", type=click.IntRange(0), help="Draw the arguments from this seed.")
@click.option("--outputs", type=click.Path(), help="Write the results here as .npz.")
@click.option("--check", is_flag=True, help="Compare with the interpreter; exit 1 if wrong.")
@click.option("--target", help="Target to build for (default: cpu).")
@click.option("--log", type=click.Path(), help="Tuning log to build with.")
@recipe_options(ranges=True, excess_precision=None)
@rule_option()
@trusted_option()
@profile_options()
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def run(
    model: str,
    inputs: str | None,
    seed: int | None,
    outputs: str | None,
    check: bool,
    target: str | None,
    log: str | None,
    recipe: RecipeOptions,
    rule: str | None,
    trusted: str | None,
    profile: bool,
    trace: str | None,
    as_json: bool,
) -> int:
    """Run MODEL, or OUT (a built model), once.

    A built model with frozen parameters does not contain its HLO and cannot be checked. A model for
    several devices runs under `mpiexec -n N`, each rank on its part; {rank} in a file's name is its
    number. For a profile it runs again, for some seconds.
    """
    given = {"--target": target, "--log": log, "--rule": rule, **recipe.given}
    from ...ir.comparison import leaves
    from ...ir.files import require_place

    here = ranks()
    with here.together():
        inputs, outputs = here.file(inputs), here.file(outputs, written=True)
        trace = here.file(trace, written=True)
        for place in filter(None, (outputs, trace)):
            require_place(place)
        if inputs is not None and seed is not None:
            raise ArgumentError(f"cannot run {model}", "its arguments are given twice", hint=_WAYS)
        arrays = None if inputs is None else read_npz(inputs)  # before minutes of building
        needs = arrays is None and seed is None
        exe, module = _prepare(model, arrays, recipe, given, trusted, needs)
        here.require(exe)  # before arguments are cut by rank
        args = _arguments(model, exe, module, arrays, seed, here.rank)
    exe = here.bound(exe)
    start = time.perf_counter()
    with here.under_way():
        results = leaves(exe(*args))
    seconds = time.perf_counter() - start
    with here.under_way():
        found = _profiled(exe, args, here) if profile or trace is not None else None
    with here.together():
        if outputs is not None:
            write_npz(outputs, results)
        if found is not None and trace is not None:
            found.write_trace(trace)
        rows = _check(module(), args, results, exe, recipe.weights, here) if check else None
    about = [*weight_lines(exe), *variant_lines(exe)]
    answer = RunAnswer(model, seconds, results, rows, about, here.rank, here.size, found)
    if here.rank == 0 or not answer.ok:
        click.echo(json.dumps(answer.facts()) if as_json else answer.text())
        if found is not None and not as_json:
            print_profile(found)
    return 0 if answer.ok else 1


def _profiled(exe: Executable, args: Sequence[Any], here: Ranks) -> Profile:
    """Return the profile; ranks share the cores, so none is given any, nor compared with a peak."""
    from ...autotune.measure.roofline import profiled

    return profiled(exe, args) if here.size == 1 else exe.profile(*args)


def _prepare(
    model: str,
    arrays: Mapping[str, Array] | None,
    recipe: RecipeOptions,
    given: Mapping[str, Any],
    trusted: str | None,
    needs: bool,
) -> tuple[Executable, Callable[[], HloModule]]:
    """Return the executable, and a function that returns the graph it was built from.

    ``given`` are all options of the build, those of ``recipe`` among them, None for those that are
    not given. ``ArgumentError`` before anything is built if it ``needs`` to take no arguments but
    does.
    """
    from ...codegen.driver.artifact import is_artifact, load
    from ...ir.hlo.passes.prepare.freeze_parameters import freeze

    if is_artifact(model):
        for option, value in given.items():
            if value is not None:
                raise ArgumentError(
                    f"{option} cannot be used with {model}",
                    "it is already built",
                    hint=f"give {option} to `nestwright build`",
                )
        loaded = load(model, trusted)
        return loaded, lambda: loaded.module
    refuse_trusted(model, trusted)
    options = recipe.build_options(given["--target"] or "cpu")
    shapes = read_open_shapes(recipe.shapes)
    rule = read_rule(given["--rule"], shapes)
    if shapes and has_ranges(shapes):
        from ..inputs.open_sizes import prepare_open

        importing = recipe.importing(None)
        return prepare_open(model, arrays, shapes, rule, given["--log"], options, importing)
    lowered = _lowered(model, arrays, options, recipe.importing(read_shapes(recipe.shapes)))
    if needs:
        _require_none(model, len(lowered.imported.names(lowered.frozen)))
    return lowered.compile(given["--log"]).flat, lambda: freeze(
        lowered.imported.module, lowered.frozen
    )


def _lowered(
    model: str,
    arrays: Mapping[str, Array] | None,
    options: BuildOptions,
    importing: ImportOptions,
) -> Lowered:
    """Return the model; sizes that it leaves open are those of the inputs."""
    from ...autotune.lowered import lower_for
    from ...ir.frontends.load import recognized

    lowered = lower_for(options, importing, model)
    if arrays is None or not recognized(Path(model)).sized or _is_settled(lowered):
        return lowered
    shapes = {**sizes(arrays), **(importing.shapes or {})}
    return lower_for(options, replace(importing, shapes=shapes), model)


def _is_settled(lowered: Lowered) -> bool:
    """True if the model can be read: no size is open."""
    try:
        return lowered.imported is not None
    except ArgumentError:
        return False


def _arguments(
    model: str,
    exe: Executable,
    module: Callable[[], HloModule],
    arrays: Mapping[str, Array] | None,
    seed: int | None,
    rank: int,
) -> list[Any]:
    """Return one value per parameter: an array, or a tuple where the parameter is one."""
    from ...codegen.runtime.arguments import rebuild

    params = exe.plan.params
    if arrays is not None:
        parts = own_parts(in_order(arrays, params), module, exe, rank)
        whole = len(parts) == len(params)
        return list(rebuild(parts, exe.plan.param_tree)) if whole else parts
    if seed is not None:
        return list(exe.random_arguments(seed))
    _require_none(model, len(params))
    return []


def _require_none(model: str, params: int) -> None:
    """Raise ``ArgumentError`` for a model with parameters."""
    if params:
        why = f"it takes {params} argument{'s' * (params != 1)}"
        raise ArgumentError(f"cannot run {model}", why, hint=_WAYS)


def _check(
    module: HloModule,
    args: Sequence[Any],
    results: Sequence[Array],
    exe: Executable,
    weights: str | None,
    here: Ranks,
) -> list[Comparison]:
    from ...codegen.driver.options import BuildOptions
    from ...codegen.driver.oracle import Oracle, on_devices
    from ...ir.accuracy import rounds_products
    from ...ir.comparison import compare_all, leaves

    target = exe.bundle.target
    options = BuildOptions(target, exe.bundle.excess_precision, weights)
    if here.size > 1:
        everyone = [list(a) for a in here.gathered(leaves(tuple(args)))]
        expected = on_devices(module, everyone, options)
        return compare_all(results, expected[here.rank], rounds_products(target, weights))
    return Oracle.of(module, args, options).judge(results)


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The results of a run; ``rows`` compares them, None if nothing was checked.

    ``weights`` are the lines about narrow weights; ``profile`` is None if none was asked for.
    """

    model: str
    seconds: float
    results: Sequence[Array]
    rows: Sequence[Comparison] | None
    weights: Sequence[str]
    rank: int = 0
    ranks: int = 1
    profile: Profile | None = None

    @property
    def ok(self) -> bool:
        """True if no result is known to be wrong."""
        return all(r.ok for r in self.rows or ())

    def text(self) -> str:
        """Return the answer as text for people."""
        where = f" on rank {self.rank} of {self.ranks}" if self.ranks > 1 else ""
        took = f"{self.seconds * 1e3:.3f} ms (first call)"
        lines = [f"ran {self.model}{where} in {took}", *self.weights]
        for i, a in enumerate(self.results):
            verdict = f"  {self.rows[i]}" if self.rows is not None else ""
            lines.append(f"  out{i}: {a.dtype}{list(a.shape)}{verdict}")
        if self.rows is not None:
            bad = sum(not r.ok for r in self.rows)
            told = f"{bad} of {len(self.rows)} outputs are WRONG"
            lines.append(f"check: {told if bad else 'all outputs match the interpreter'}")
        return "\n".join(lines)

    def facts(self) -> dict[str, object]:
        """Return the answer as plain data for JSON."""
        outs = [{"dtype": str(a.dtype), "shape": list(a.shape)} for a in self.results]
        facts: dict[str, object] = {
            "version": 1,
            "model": self.model,
            "seconds": self.seconds,
            "outputs": outs,
        }
        if self.ranks > 1:
            facts |= {"rank": self.rank, "ranks": self.ranks}
        if self.rows is not None:
            facts["checks"] = [
                {
                    "output": r.output,
                    "ok": r.ok,
                    "error": r.error,
                    "tolerance": r.tolerance,
                    "mismatch": r.mismatch,
                }
                for r in self.rows
            ]
            facts["ok"] = self.ok
        if self.profile is not None:
            facts["profile"] = self.profile.to_json()
        return facts
