"""`nestwright run`: build or load a model, run it once, check it if asked."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click
import numpy as np

from ..ir.errors import ArgumentError
from ..ir.hlo.nodes import HloModule
from .arrays import Array, Comparison, compare, read_constants, read_npz, write_npz


@click.command()
@click.argument("model", type=click.Path())
@click.option("--inputs", type=click.Path(), help="Arguments as .npz (arg0, arg1, ...).")
@click.option("--random", "seed", type=int, help="Draw the arguments from this seed instead.")
@click.option("--outputs", type=click.Path(), help="Write the results here as .npz.")
@click.option("--check", is_flag=True, help="Compare with the interpreter; exit 1 if wrong.")
@click.option("--target", default="cpu", show_default=True, help="What to build for.")
@click.option("--log", type=click.Path(), help="Tuning log to build with.")
@click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def run(
    model: str,
    inputs: str | None,
    seed: int | None,
    outputs: str | None,
    check: bool,
    target: str,
    log: str | None,
    constants: str | None,
    as_json: bool,
) -> int:
    """Run MODEL (HLO text) or OUT (a built model) once."""
    from ..autotune.api import build
    from ..codegen.artifact import is_artifact, load
    from ..ir.hlo.passes.freeze_parameters import freeze
    from ..ir.load import load_model

    if (inputs is None) == (seed is None):
        raise ArgumentError(
            f"cannot run {model}",
            "it needs arguments, from one place",
            hint="pass either --inputs X.npz or --random SEED",
        )
    frozen = None if constants is None else read_constants(constants)
    if is_artifact(model):
        if log is not None or frozen is not None:
            raise ArgumentError(
                f"cannot build {model} again",
                "it is a built model; --log and --constants are for HLO",
            )
        exe = load(model)
        module = exe.module
    else:
        module = load_model(model)
        exe = build(module, target=target, log=log, constants=frozen)
        module = module if frozen is None else freeze(module, frozen)
    args = _arguments(module, inputs, seed)
    start = time.perf_counter()
    result = exe(*args)
    seconds = time.perf_counter() - start
    results = list(result) if isinstance(result, tuple) else [result]
    if outputs is not None:
        write_npz(outputs, results)
    rows = _check(module, args, results) if check else []
    if as_json:
        click.echo(json.dumps(_as_json(model, seconds, results, rows, check)))
    else:
        _tell(model, seconds, results, rows, check)
    return 1 if any(not r.ok for r in rows) else 0


def _arguments(module: HloModule, inputs: str | None, seed: int | None) -> list[Array]:
    if inputs is not None:
        return read_npz(inputs)
    from ..ir.hlo.inputs import random_arguments

    return random_arguments(module.entry, seed or 0)


def _check(module: HloModule, args: Sequence[Array], results: Sequence[Array]) -> list[Comparison]:
    from ..ir.hlo.interp import evaluate

    want = evaluate(module, args)
    wanted = list(want) if isinstance(want, tuple) else [want]
    return [
        compare(i, np.asarray(x), np.asarray(y))
        for i, (x, y) in enumerate(zip(results, wanted, strict=True))
    ]


def _tell(
    model: str, seconds: float, results: list[Array], rows: list[Comparison], check: bool
) -> None:
    click.echo(f"ran {model} in {seconds * 1e3:.3f} ms (first call)")
    for i, a in enumerate(results):
        verdict = ""
        if check:
            r = rows[i]
            word = "right" if r.ok else "WRONG"
            verdict = f"  {word}: error {r.error:.2e} of RMS, tolerance {r.tolerance:.0e}"
            verdict += f" ({r.mismatch})" if r.mismatch else ""
        click.echo(f"  out{i}: {a.dtype}{list(a.shape)}{verdict}")
    if check:
        bad = sum(not r.ok for r in rows)
        click.echo("check: all outputs match the interpreter" if not bad else f"check: {bad} wrong")


def _as_json(
    model: str, seconds: float, results: list[Array], rows: list[Comparison], check: bool
) -> dict[str, object]:
    outs = [{"dtype": str(a.dtype), "shape": list(a.shape)} for a in results]
    checks = [
        {"output": r.output, "ok": r.ok, "error": r.error, "tolerance": r.tolerance} for r in rows
    ]
    answer: dict[str, object] = {"version": 1, "model": model, "seconds": seconds, "outputs": outs}
    if check:
        answer["checks"] = checks
        answer["ok"] = all(r.ok for r in rows)
    return answer
