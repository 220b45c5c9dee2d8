"""Makes the parts of the kit: wheels, small models, whole models, the kernels of the ladder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import places
from ..measure import models, prebuilt, workloads
from ..measure.ours import leaves
from ..measure.prediction import predictions
from . import contents, right

TARGET = "cuda -arch=sm_90a"  # what "cuda" means on that machine
TF32 = f"{TARGET} -tf32=1"
WHEELS = ("platformdirs", "xgboost-cpu")
TAGS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
PYTHON = "3.12"
SMALL = 100_000  # characters of HLO
KEPT = 1 << 18  # bytes of right results: where they are more, the interpreter is asked again


class Refused(Exception):
    """The kit cannot be packed, and why."""


def pack(kit: Path, makers: Sequence[str]) -> str:
    """Pack these parts of a kit anew and keep the others; the packing list.

    The old kit stays as it is where the new one lacks something, has what no row knows, or is
    too large.
    """
    kit.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".kit-", dir=kit.parent) as folder:
        made = Path(folder) / "kit"
        if kit.is_dir():
            shutil.copytree(kit, made)
        for name in makers:
            shutil.rmtree(made / name, ignore_errors=True)
            (made / name).mkdir(parents=True)
            MAKERS[name](made / name)
        listing, bad = contents.listing(made), contents.faults(made, makers)
        if bad:
            raise Refused("\n".join((listing, *bad)))
        size = sum((made / path).stat().st_size for path in contents.files(made))
        if size > contents.LIMIT:
            raise Refused(f"{listing}\nthat is too large: nothing was packed")
        shutil.rmtree(kit, ignore_errors=True)
        made.rename(kit)
    return listing


def wheels(folder: Path) -> None:
    """Download the wheels that the target machine lacks."""
    for name in WHEELS:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
        command += [part for tag in TAGS for part in ("--platform", tag)]
        run([*command, "-d", str(folder), name])


def corpus(folder: Path, source: Path | None = None) -> None:
    """Small models, each with the interpreter's results for the arguments of seed 0."""
    from nestwright.ir.frontends.load import load_model
    from nestwright.ir.hlo.analysis.inputs import random_arguments
    from nestwright.ir.hlo.interp.evaluate import evaluate

    models_of = places.corpus() if source is None else source
    for path in sorted(models_of.glob("*.hlo")):
        if path.stat().st_size < SMALL:
            module = load_model(path)
            with np.errstate(all="ignore"):
                results = leaves(evaluate(module, random_arguments(module.entry, 0)))
            shutil.copy(path, folder)
            place = folder / f"{path.stem}{right.SUFFIX}"
            right.write(place, results)
            if place.stat().st_size > KEPT:
                place.unlink()


def kernels(folder: Path, small: bool = False) -> None:
    """Every workload: building them all takes longer than a part of gpu/measure may."""
    from nestwright.codegen.driver.build import build
    from nestwright.ir.hlo.text import parse

    for work in workloads.every(small):
        target = f"{TARGET} {work.options}".strip()
        build(parse(work.hlo), target).save(folder / f"{work.name}.nw")


def whole_models(folder: Path) -> None:
    """The models that are written in jax: built, exported, and run by jax for right results."""
    for name, model in models.MODELS.items():
        prebuilt.write(folder / name, whole_model(name, model))


def whole_model(name: str, model: models.Model) -> prebuilt.Prebuilt:
    """One model as the kit has it; jax computes the right results in f32 throughout."""
    try:
        import jax
        from jax import export
    except ImportError as error:
        raise Refused(f"models need jax and flatbuffers to be packed: {error}") from None
    from nestwright.codegen.driver.build import build
    from nestwright.ir.hlo.text import parse
    from nestwright.ir.target import Target

    recipes = models.recipes(model)
    names = [r.name for r in recipes[: len(recipes) - len(model.inputs)]]
    function = jax.jit(models.flat(model, names))
    arguments = [r.drawn() for r in recipes]
    module = parse(models.text(model))
    with jax.default_matmul_precision("highest"):
        exact = [prebuilt.sample(np.asarray(x)) for x in leaves(function(*arguments))]
    exported = export.export(function, platforms=["cuda"])(*arguments).serialize()
    return prebuilt.Prebuilt(
        name,
        build(module, TF32),
        recipes,
        tuple(exact),
        predictions(module, Target.parse(TF32)),
        bytes(exported),
    )


def ladder(folder: Path) -> None:
    """The kernels of the ladder's rungs."""
    script = places.ROOT / "benchmarks" / "gpu" / "ladder" / "main.py"
    run([sys.executable, str(script), "--prebuild", str(folder)])


def run(command: Sequence[str], **how: Any) -> str:
    """Run a command and return its stdout; ``Refused`` with its last 20 lines if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    if done.returncode:
        words = "\n".join((done.stdout + done.stderr).strip().split("\n")[-20:])
        raise Refused(f"{' '.join(command[:6])} ... ended with {done.returncode}:\n{words}")
    return done.stdout


MAKERS: Mapping[str, Callable[[Path], None]] = {
    "wheels": wheels,
    "corpus": corpus,
    "kernels": kernels,
    "models": whole_models,
    "ladder": ladder,
}
