"""``study``: options of a build, such as the number of threads, chosen by whole-model races."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..codegen.plan.saved.write import write
from ..ir.errors import ArgumentError, NestwrightError, UnsupportedError
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import imported
from ..ir.hlo.analysis.inputs import require_seed
from ..ir.hlo.nodes import HloModule, Shape
from ..ir.scratch import scratch
from ..ir.target import Target
from .log.records import Json
from .lowered import lower
from .measure.machine import require_timeable
from .measure.pool import Pool
from .recipe import Constants, GraphLike
from .tuner.modelrace import time_models

OPTIONS = ("threads", "excess_precision", "weights", "log")
SECONDS = 3.0  # of timing for each trial, at most


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The outcome of a study. ``options`` are the best found, the defaults if none are faster.

    ``speedup`` is that of ``options`` over the defaults, ``tried`` the speed-up of everything
    tried, ``failed`` why others could not be built or run, ``importances`` the share of each option
    in the differences. ``study`` is Optuna's.
    """

    options: Mapping[str, Json]
    speedup: float
    tried: tuple[tuple[Mapping[str, Json], float], ...]
    failed: tuple[tuple[Mapping[str, Json], str], ...]
    importances: Mapping[str, float]
    study: Any = field(repr=False)


def study(
    model: GraphLike,
    options: Mapping[str, Sequence[Json]] | None = None,
    target: str | Target = "cpu",
    trials: int = 16,
    sampler: str = "tpe",
    constants: Constants | None = None,
    storage: str | None = None,
    seed: int = 0,
    example: Any = None,
) -> StudyResult:
    """Choose options of ``build`` by timing the whole model, each against the defaults in turns.

    ``options`` maps ``threads``, ``excess_precision``, ``weights`` and ``log`` to the values to
    try; by default the numbers of threads, and ``excess_precision`` for a model with narrow
    floats. Other results are the user's to judge: narrow weights and strict rounding change them.
    Optuna's ``sampler`` proposes, at most ``trials`` different ones; ``storage`` keeps the study
    (``sqlite:///study.db``).
    """
    optuna_study = _optuna()
    machine = Target.parse(target)
    require_timeable(machine, "study")
    known = imported(model, example)
    wanted = _usual(known.module, machine) if options is None else dict(options)
    _check(wanted, trials)
    require_seed(seed)
    tried: list[tuple[Mapping[str, Json], float]] = []
    failed: list[tuple[Mapping[str, Json], str]] = []
    with scratch("study") as folder, Pool(machine.threads) as pool:
        plain = _written(known, machine, {}, constants, folder / "default.nw")

        def measure(chosen: dict[str, Json]) -> float:
            try:
                place = _written(known, machine, chosen, constants, folder / "other.nw")
            except NestwrightError as error:
                failed.append((chosen, str(error).splitlines()[0]))
                return math.inf
            found = time_models((plain, place), machine, pool, seed, SECONDS)
            if isinstance(found, str):
                failed.append((chosen, found))
                return math.inf
            tried.append((chosen, found.speedup if found.faster else min(found.speedup, 1.0)))
            return 1 / found.speedup

        made = optuna_study.choose(
            wanted, measure, trials, sampler, seed, storage, known.module.name
        )
    best = max(tried, key=lambda row: row[1], default=({}, 1.0))
    chosen, speedup = best if best[1] > 1 else ({}, 1.0)
    shares = optuna_study.importances(made)
    return StudyResult(chosen, speedup, tuple(tried), tuple(failed), shares, made)


def _optuna() -> Any:
    try:
        from .search import optuna_study  # an extra
    except ImportError:
        raise UnsupportedError(
            "a study", "optuna is not installed", hint="pip install 'nestwright[optuna]'"
        ) from None
    return optuna_study


def _usual(module: HloModule, target: Target) -> dict[str, Sequence[Json]]:
    """Return the options that a study tries by default: threads by powers of two, rounding."""
    counts = {1 << n for n in range(target.threads.bit_length()) if 1 << n <= target.threads}
    found: dict[str, Sequence[Json]] = {"threads": sorted(counts | {target.threads})}
    shapes = (i.shape for c in module.computations for i in c.instructions)
    if any(s.dtype.is_float and s.dtype.bits < 32 for s in shapes if isinstance(s, Shape)):
        found["excess_precision"] = [True, False]
    return found


def _check(options: Mapping[str, Sequence[Json]], trials: int) -> None:
    for name, values in options.items():
        if name not in OPTIONS:
            raise ArgumentError(f"option {name!r}", f"a study knows {', '.join(OPTIONS)}")
        if isinstance(values, str) or not len(values):
            raise ArgumentError(f"option {name!r}", "a list of values to try is needed")
    if trials < 1:
        raise ArgumentError(f"trials={trials}", "at least one trial is needed")


def _written(
    model: Imported,
    target: Target,
    options: Mapping[str, Any],
    constants: Constants | None,
    place: Path,
) -> Path:
    """Build a model with options and write it; return where."""
    given = dict(options)
    threads = given.pop("threads", target.threads)
    words = [w for w in target.spec.split() if not w.startswith("-threads=")]
    machine = Target.parse(" ".join([*words, f"-threads={threads}"]))
    log = given.pop("log", None)
    exe = lower(model, target=machine, constants=constants, **given).compile(log, cache=False).flat
    write(exe.bundle, place, durable=False)
    return place
