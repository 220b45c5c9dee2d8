"""One cell of a sweep: a model built twice, timed in turns, checked, and its groups raced."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen.driver.build import PreparedModule
from ...codegen.driver.oracle import reference
from ...codegen.plan.bundle import write
from ...codegen.runtime.executable import Executable
from ...ir.accuracy import relative_error
from ...ir.errors import ArtifactError
from ...ir.frontends.imported import Imported
from ...ir.hlo.analysis.inputs import random_arguments
from ...ir.hlo.nodes import HloModule
from ...ir.scratch import scratch
from ...ir.target import Target
from ...schedule.language.trace import Trace
from ..log.contents import Log
from ..measure.compare import SpeedComparison
from ..measure.pool import Pool
from ..modelrace import time_models
from ..recipe import Constants
from ..tasks.extract import extract
from .data import DEFAULT, TUNED, CellBench, CellKey, WayBench
from .groups import bench_groups, edges

SECONDS = 12.0  # limit for timing a model, unless the result is clear before
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The options of a sweep, the same in all its cells; ``tell`` gets a line at each step."""

    constants: Constants
    seed: int
    check: bool
    excess_precision: bool
    weights: str | None
    tell: Callable[[str], object]


def bench_cell(
    key: CellKey, model: Imported, target: Target, log: Log, plan: CellPlan
) -> CellBench:
    """Build a model by default and with the winners of a log, and measure both.

    Raises ``NestwrightError`` for a model that cannot be built or run.
    """
    began = time.perf_counter()
    builder = PreparedModule(
        model.module,
        target,
        model.constants(plan.constants, freeze=True),
        excess_precision=plan.excess_precision,
        weights=plan.weights,
    )
    plain = builder.build({})
    spent = time.perf_counter() - began
    winners = log.winners(target, builder.groups.distinct)
    tuned = builder.build({k: Trace.from_json(b.trace) for k, b in winners.items()})
    plan.tell(f"{key}: timing")
    with scratch("bench") as folder, Pool(target.threads) as pool:
        found = _compare(plain, tuned, pool, folder, plan.seed)
        error = _error(tuned, builder.frozen, plan) if plan.check else None
        plan.tell(f"{key}: groups")
        tasks = extract(builder.optimized, target, groups=builder.groups)
        groups = bench_groups(tasks, target, log, winners, pool, folder, plan.seed)
    ways = (
        WayBench(DEFAULT, "default schedules", found.default_runs, first=spent),
        WayBench(TUNED, _schedules(key, len(winners)), found.runs, error=error),
    )
    cost = plain.cost_analysis()
    flops, moved = float(cost.get("flops", 0.0)), float(cost.get("bytes accessed", 0.0))
    return CellBench(key, ways, groups, edges(builder.groups), flops, moved)


def _schedules(key: CellKey, count: int) -> str:
    return f"{count} schedules of {key.log}" if count else "default schedules: no log has others"


def _compare(
    plain: Executable, tuned: Executable, pool: Pool, folder: Path, seed: int
) -> SpeedComparison:
    """Time both in turns in a measuring child; identical code is timed once, and equal exactly."""
    places = folder / "default.nw", folder / "tuned.nw"
    for exe, place in zip((plain, tuned), places, strict=True):
        write(exe.bundle, place, durable=False)
    same = _code(plain) == _code(tuned)
    pair = (places[0], places[0]) if same else places
    found = time_models(pair, plain.bundle.target, pool, seed, SECONDS)
    if isinstance(found, str):
        raise ArtifactError("cannot time the model", found)
    return SpeedComparison(found.default_runs, found.default_runs) if same else found


def _code(exe: Executable) -> tuple[object, ...]:
    """Return everything that determines the code of an executable."""
    return exe.bundle.program, dict(exe.bundle.kernels), exe.plan


def _error(exe: Executable, module: HloModule, plan: CellPlan) -> float:
    """Return the largest error over all results, relative to each one's root mean square."""
    arguments = random_arguments(module.entry, plan.seed)
    with np.errstate(all="ignore"):
        expected = reference(module, arguments, exe.bundle.excess_precision, plan.weights)
    pairs = zip(_flat(exe(*arguments)), _flat(expected), strict=True)
    return max((relative_error(np.asarray(a), np.asarray(b)) for a, b in pairs), default=0.0)


def _flat(value: Any) -> Sequence[Any]:
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in _flat(v)]
    return [value]
