"""Benchmark sweeps: default against tuned schedules, per model and per group, with checks.

Compared programs are timed in turns, in alternating order, in a measuring child and under the
machine's lock; medians are reported. Rates are relative to this machine's measured peaks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.driver.build import PreparedModule
from ..codegen.driver.oracle import reference
from ..codegen.plan.bundle import write
from ..codegen.runtime.executable import Executable
from ..ir.accuracy import relative_error
from ..ir.errors import ArtifactError, NestwrightError
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import imported
from ..ir.frontends.registry import Shapes
from ..ir.hlo.analysis.inputs import random_arguments
from ..ir.hlo.nodes import HloModule
from ..ir.scratch import scratch
from ..ir.target import Target
from ..schedule.language.trace import Trace
from .best import AUTO
from .log.contents import Log
from .log.journal import read
from .log.records import DEFAULT_SKETCH, Best, device_id, quantile
from .log.shelf import shelved, with_kin
from .measure.compare import SpeedComparison
from .measure.machine import measure_peak, require_timeable
from .measure.pool import Pool
from .measure.protocol import Candidate, Job, Limits
from .modelrace import time_models
from .recipe import Constants, GraphLike
from .report import BenchReport, GroupBench, ModelBench
from .session import default_log
from .tasks.counting import flops as count_flops
from .tasks.counting import moved
from .tasks.extract import Task, extract

SECONDS = 12.0  # limit for timing a model, unless the result is clear before
Array = np.ndarray[Any, Any]
Notify = Callable[[str], object]


def bench(
    models: Sequence[GraphLike] | GraphLike,
    target: str | Target = "cpu",
    log: str | os.PathLike[str] | None = None,
    constants: Constants | None = None,
    threads: int | None = None,
    seed: int = 0,
    check: bool = True,
    progress: Notify | None = None,
    example: Any = None,
    excess_precision: bool = True,
    weights: str | None = None,
    shapes: Shapes | None = None,
) -> BenchReport:
    """Time models built with default schedules and with the best schedules of a log.

    Models, ``excess_precision``, ``weights`` and ``shapes`` are as for ``build``; ``example`` are
    the arguments of models that are functions. ``log`` is used for all models; without it, each
    model's default log is used if it exists. ``check`` compares the tuned model's results with the
    interpreter. A model that cannot be built is reported with its problem, and the sweep continues.
    ``progress`` is called with a line of text at each step.
    """
    if isinstance(models, str) or not isinstance(models, Sequence):
        models = [models]
    spec = target.spec if isinstance(target, Target) else target
    machine = Target.parse(f"{spec} -threads={threads}" if threads else spec)
    require_timeable(machine, "time")
    tell = progress or (lambda text: None)
    tell("measuring the machine's peaks")
    peak = measure_peak(machine)
    done = []
    for model in models:
        name = _name(model)
        tell(name)
        try:
            known = imported(model, example if callable(model) else None, shapes)
            name = name if isinstance(model, str | os.PathLike) else known.module.name
            model_bench = _bench_model(
                known, name, machine, log, constants, seed, check, tell, excess_precision, weights
            )
            done.append(model_bench)
        except NestwrightError as e:
            done.append(ModelBench(name, 0, 0, (), (), None, 0, 0, 0, "", (), str(e)))
    facts = {
        "cpu": machine.cpu,
        "threads": machine.threads,
        "vector_bits": machine.vector_bits,
        "l1": machine.l1,
        "l2": machine.l2,
        "l3": machine.l3,
        "load": os.getloadavg()[0],
    }
    return BenchReport(machine.spec, facts, peak, tuple(done), time.time())


def _name(model: GraphLike) -> str:
    match model:
        case HloModule(name=name):
            return name
        case str() | os.PathLike():
            return Path(model).stem
        case _:
            return str(getattr(model, "__name__", type(model).__name__))


def _bench_model(
    model: Imported,
    name: str,
    target: Target,
    log: str | os.PathLike[str] | None,
    constants: Constants | None,
    seed: int,
    check: bool,
    tell: Notify,
    excess_precision: bool,
    weights: str | None,
) -> ModelBench:
    path = Path(log) if log is not None else default_log(name, target)
    if log == AUTO:
        history, _ = with_kin(shelved(), target)
    else:
        history = read(path) if log is not None or path.exists() else Log(())
    began = time.perf_counter()
    builder = PreparedModule(
        model.module,
        target,
        model.constants(constants or {}, freeze=True),
        excess_precision=excess_precision,
        weights=weights,
    )
    plain = builder.build({})
    spent = time.perf_counter() - began
    winners = history.winners(target, builder.groups.distinct)
    tuned = builder.build({key: Trace.from_json(b.trace) for key, b in winners.items()})
    tell(f"{name}: timing")
    with (
        scratch("bench") as folder,
        Pool(target.threads) as pool,
    ):
        found = _compare(plain, tuned, pool, folder, seed)
        error = None
        if check:
            arguments = random_arguments(builder.frozen.entry, seed)
            error = _error(tuned, builder.frozen, arguments, weights)
        tell(f"{name}: groups")
        tasks = extract(builder.optimized, target, groups=builder.groups)
        groups = _bench_groups(tasks, target, history, winners, pool, folder, seed)
    cost = plain.cost_analysis()
    return ModelBench(
        name,
        quantile(found.default_runs, 0.5),
        quantile(found.runs, 0.5),
        found.default_runs,
        found.runs,
        error,
        float(cost.get("flops", 0.0)),
        float(cost.get("bytes accessed", 0.0)),
        spent,
        str(path) if winners else "",
        groups,
    )


def _compare(
    plain: Executable, tuned: Executable, pool: Pool, folder: Path, seed: int
) -> SpeedComparison:
    """Time both in turns in a measuring child; identical code is timed once, and equal exactly."""
    places = folder / "default.nw", folder / "tuned.nw"
    for exe, place in zip((plain, tuned), places, strict=True):
        write(exe.bundle, place, durable=False)
    same = _code(plain) == _code(tuned)
    target = plain.bundle.target
    pair = (places[0], places[0]) if same else places
    found = time_models(pair, target, pool, seed, SECONDS)
    if isinstance(found, str):
        raise ArtifactError("cannot time the model", found)
    return SpeedComparison(found.default_runs, found.default_runs) if same else found


def _code(exe: Executable) -> tuple[object, ...]:
    """Return everything that determines the code of an executable."""
    return exe.bundle.program, dict(exe.bundle.kernels), exe.plan


def _error(
    exe: Executable, module: HloModule, arguments: Sequence[Array], weights: str | None
) -> float:
    """Return the largest error over all results, relative to each one's root mean square."""
    with np.errstate(all="ignore"):
        expected = reference(module, arguments, exe.bundle.excess_precision, weights)
    pairs = zip(_flat(exe(*arguments)), _flat(expected), strict=True)
    return max((relative_error(np.asarray(a), np.asarray(b)) for a, b in pairs), default=0.0)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in _flat(v)]
    return [value]


def _bench_groups(
    tasks: Sequence[Task],
    target: Target,
    log: Log,
    winners: Mapping[str, Best],
    pool: Pool,
    folder: Path,
    seed: int,
) -> tuple[GroupBench, ...]:
    """Race each group against its default in a measuring child."""
    by_key = {t.key: t for t in tasks}
    changed = {k: b for k, b in winners.items() if b.sketch != DEFAULT_SKETCH}
    found: dict[str, GroupBench] = {}

    def job(number: int, t: Task) -> Job:
        default, best = Candidate(DEFAULT_SKETCH, {}), changed.get(t.key)
        tuned = () if best is None else (Candidate(best.sketch, best.decisions, best.trace),)
        return Job(
            number,
            "race",
            t.key,
            "hlo",
            t.program.text,
            target.spec,
            (default, *tuned),
            str(folder / f"{t.key}.npz"),
            seed,
            reach=t.reach,
            limits=Limits(run=120.0),
        )

    for done, outcomes in pool.run(job(n, t) for n, t in enumerate(tasks)):
        task = by_key[done.key]
        curve = _curve(log, task.key, device_id(target))
        found[task.key] = _group(task, winners.get(task.key), outcomes, curve)
    return tuple(found[t.key] for t in tasks)


def _group(
    t: Task, best: Best | None, outcomes: Sequence[Any], curve: tuple[tuple[int, float], ...]
) -> GroupBench:
    default, tuned = outcomes[0], outcomes[-1]
    medians = [quantile(o.runs, 0.5) if o.runs else 0.0 for o in (default, tuned)]
    note = next((f"{o.status}: {o.note}" for o in outcomes if o.status != "ok"), "")
    c = t.program.computation
    assert c is not None
    return GroupBench(
        t.key,
        t.name,
        t.kind,
        t.weight,
        count_flops(c),
        moved(c),
        medians[0],
        medians[1],
        tuned.error,
        len(curve),
        best.sketch if best else DEFAULT_SKETCH,
        dict(best.decisions) if best else {},
        curve,
        note,
    )


def _curve(log: Log, key: str, device: str) -> tuple[tuple[int, float], ...]:
    """Return (trial number, best seconds so far) from the first trial that ran."""
    points: list[tuple[int, float]] = []
    for number, t in enumerate(log.trials_of(key, device), 1):
        best = min(t.cost, points[-1][1]) if points else t.cost
        if best < float("inf"):
            points.append((number, best))
    return tuple(points)
