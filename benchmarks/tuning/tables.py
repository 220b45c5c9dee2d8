"""The tables themselves: generators of rows, and the summary of each."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import nestwright as nw
from nestwright.autotune.log.journal import read
from nestwright.autotune.log.records import Best, Json, quantile, typical
from nestwright.autotune.measure.compare import SpeedComparison
from nestwright.autotune.measure.machine import measure_rate, measure_stream
from nestwright.autotune.measure.protocol import Candidate
from nestwright.autotune.measure.timing import CALIBRATED
from nestwright.autotune.tasks.extract import Task
from nestwright.autotune.tuner.floor import least_seconds
from nestwright.autotune.tuner.progress import Progress

from .figures import above_peak, apart, costs, disagreements, geomean, median, reached
from .runs import Workbench, frozen_beside
from .shapes import MODELS, TWELVE, module, sixty

Row = dict[str, Json]
STRATEGIES = ("native", "prior", "random", "optuna:tpe")
ENOUGH = 0.98  # of the final speed
BURNING = """
import os
if hasattr(os, "sched_setscheduler"):
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def workloads(only: Sequence[str], models: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return modules or paths, each with what is frozen, by name."""
    chosen = {n: (module(n, b), None) for n, b in sixty().items() if not only or n in only}
    found: dict[str, tuple[Any, Any]] = {Path(m).stem: (m, frozen_beside(m)) for m in models}
    return found if models and not only else chosen | found


def small_models(models: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return the models at paths, or the small ones of our own."""
    if models:
        return workloads((), models)
    return {n: (module(n, b), None) for n, b in MODELS.items()}


def shares(
    bench: Workbench, only: Sequence[str], models: Sequence[str], trials: int
) -> Iterator[Row]:
    """Yield the share of the tuned speed that each workload has untuned, raced."""
    for name, (model, frozen) in workloads(only, models).items():
        if bench.over:
            return
        path = bench.log("shares", name)
        nw.tune(model, bench.target, trials=trials, log=path, constants=frozen)
        found = bench.compared(bench.prepared(model, frozen), read(path))
        low, high = found.interval if found else (1.0, 1.0)
        share = 1 / found.speedup if found else 1.0
        seconds = quantile(found.runs, 0.5) if found else None
        yield {
            "workload": name,
            "share": share,
            "least": 1 / high,
            "most": 1 / low if low else None,
            "tuned_seconds": seconds,
        }


def summary_of_shares(rows: Sequence[Row]) -> Row:
    """Return the geometric mean and the worst share."""
    found = [_number(r["share"]) for r in rows]
    worst = min(rows, key=lambda r: _number(r["share"]), default=None)
    return {
        "workloads": len(rows),
        "geomean": geomean(found),
        "worst": worst and worst["share"],
        "of": worst and worst["workload"],
    }


def quick(
    bench: Workbench, only: Sequence[str], trials: int, few: int, seeds: int, by: Sequence[str]
) -> Iterator[Row]:
    """Yield the shares of the best of ``trials`` that strategies reach after ``few``, raced.

    The best is the fastest of all that are raced: of a long tuning, and of every short one.
    """
    for name in only or TWELVE:
        if bench.over:
            return
        task = bench.tasks(bench.prepared(module(name, sixty()[name])))[0]
        long = bench.best(task, bench.tuned(task, bench.log("quick", name), trials))
        runs = [(s, seed) for s in by for seed in range(seeds)]
        short = [
            bench.best(task, bench.tuned(task, bench.log("quick", name, *run), few, run[1], run[0]))
            for run in runs
        ]
        yield {"workload": name, **_quality(bench, task, long, runs, short)}


def _quality(
    bench: Workbench,
    task: Task,
    long: Best | None,
    runs: Sequence[tuple[str, int]],
    short: Sequence[Best | None],
) -> Row:
    known = [b for b in (long, *short) if b is not None]
    times = dict(zip(map(id, known), bench.raced(task, known), strict=False))
    best = min(times.values(), default=0.0)
    found: dict[str, list[Json]] = {}
    for (strategy, _), b in zip(runs, short, strict=True):
        found.setdefault(strategy, []).append(best / times[id(b)] if id(b) in times else None)
    return {**found, "best_seconds": best}


def summary_of_quick(rows: Sequence[Row]) -> Row:
    """Return the median and the worst share of each strategy, over tasks and seeds."""
    summary: Row = {"tasks": len(rows)}
    for strategy in STRATEGIES:
        found = [x for r in rows for x in _list(r.get(strategy)) if x is not None]
        if found:
            summary[strategy] = {"median": median(found), "worst": min(found), "runs": len(found)}
    return summary


def agree(bench: Workbench, only: Sequence[str], trials: int, busy: bool) -> Iterator[Row]:
    """Yield how far apart two tunings log the cost of the same schedules.

    With ``busy`` another process keeps a core busy during the second.
    """
    for name in only or TWELVE:
        if bench.over:
            return
        task = bench.tasks(bench.prepared(module(name, sixty()[name])))[0]
        first = bench.tuned(task, bench.log("agree", name, "first"), trials)
        kind = "busy" if busy else "second"
        with burning() if busy else nullcontext():
            second = bench.tuned(task, bench.log("agree", name, kind), trials)
        found = disagreements(*(costs(x, task.key, bench.device) for x in (first, second)))
        winners = [bench.best(task, x) for x in (first, second)]
        ends = [w.seconds for w in winners if w is not None]
        least = least_seconds(
            task, measure_rate(bench.target), measure_stream(bench.target), bench.target
        )
        above = above_peak([*first.trials, *second.trials], {task.key: least}, CALIBRATED)
        yield {
            "workload": name,
            "apart": sorted(found),
            "median": median(found),
            "winners": apart(*ends) if len(ends) == 2 else None,
            "above_peak": len(above),
        }


def summary_of_agree(rows: Sequence[Row]) -> Row:
    """Return the median and the 95th percentile over all schedules in common."""
    found = tuple(x for r in rows for x in _list(r["apart"]))
    return {
        "schedules": len(found),
        "median": median(found),
        "percentile_95": quantile(found, 0.95) if found else None,
        "above_peak": sum(int(_number(r["above_peak"])) for r in rows),
    }


@contextmanager
def burning() -> Iterator[None]:
    """Keep a core busy with another process, of normal priority, that does not outlive this one."""
    process = subprocess.Popen([sys.executable, "-c", BURNING])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def sums(bench: Workbench, models: Sequence[str]) -> Iterator[Row]:
    """Yield the sum of the tasks' times, default schedules, against the time of the model."""
    for name, (model, frozen) in small_models(models).items():
        if bench.over:
            return
        builder = bench.prepared(model, frozen)
        exe = builder.build({})
        before = bench.compare(exe, exe)
        tasks = bench.tasks(builder)
        jobs = [bench.job(t, "measure", (Candidate("default", {}),)) for t in tasks]
        took = {j.key: outcomes[0] for j, outcomes in bench.pool.run(jobs)}
        after = bench.compare(exe, exe)
        whole = typical((*before.default_runs, *before.runs, *after.default_runs, *after.runs))
        total = sum(t.weight * typical(took[t.key].runs) for t in tasks if took[t.key].runs)
        yield {
            "model": name,
            "tasks": len(tasks),
            "groups": len(builder.groups.distinct),
            "seconds": whole,
            "sum": total,
            "share": total / whole,
        }


def summary_of_sums(rows: Sequence[Row]) -> Row:
    """Return the largest disagreement of a sum with its model."""
    return {
        "models": len(rows),
        "apart": max((apart(_number(r["share"]), 1) for r in rows), default=0),
    }


def never(bench: Workbench, models: Sequence[str], runs: int, trials: int) -> Iterator[Row]:
    """Yield for each run, with a seed of its own, whether the tuned model is slower."""
    known = list(small_models(models).items())
    for run in range(runs):
        if bench.over:
            return
        name, (model, frozen) = known[run % len(known)]
        path = bench.log("never", name, run)
        nw.tune(model, bench.target, trials=trials, log=path, seed=run, constants=frozen)
        found = bench.compared(bench.prepared(model, frozen), read(path))
        yield {"run": run, "model": name, **_slower(found)}


def _slower(found: SpeedComparison | None) -> Row:
    low, high = found.interval if found else (1.0, 1.0)
    speedup = found.speedup if found else 1.0
    return {"speedup": speedup, "low": low, "high": high, "slower": high < ENOUGH}


def summary_of_never(rows: Sequence[Row]) -> Row:
    """Return how many runs made a model clearly slower, and the geometric mean of the gains."""
    return {
        "runs": len(rows),
        "slower": sum(bool(r["slower"]) for r in rows),
        "least": min((_number(r["speedup"]) for r in rows), default=None),
        "geomean": geomean(_number(r["speedup"]) for r in rows),
    }


def speed(bench: Workbench, models: Sequence[str], trials: int, seconds: float) -> Iterator[Row]:
    """Yield after how many seconds of tuning a model has nearly its final speed."""
    for name, (model, frozen) in small_models(models).items():
        if bench.over:
            return
        path = bench.log("speed", name)
        path.unlink(missing_ok=True)
        curve: list[tuple[float, float]] = []
        began = time.monotonic()
        result = nw.tune(
            model,
            bench.target,
            trials=trials,
            seconds=seconds,
            log=path,
            constants=frozen,
            progress=_recorder(curve),
        )
        yield {
            "model": name,
            "reached": reached(curve, ENOUGH),
            "seconds": time.monotonic() - began,
            "trials": result.trials,
            "tasks": len(result.tasks),
            "speedup": result.speedup,
            "curve": [list(p) for p in curve],
        }


def _recorder(curve: list[tuple[float, float]]) -> Callable[[Progress], None]:
    """Return a listener that notes the sum of the tasks' best times, once all are known."""

    def note(p: Progress) -> None:
        measured = p.phase == "measuring" and all(t.best_seconds for t in p.tasks)
        if measured and (not curve or p.best_seconds < curve[-1][1]):
            curve.append((p.elapsed, p.best_seconds))

    return note


def summary_of_speed(rows: Sequence[Row]) -> Row:
    """Return the longest time."""
    return {
        "models": len(rows),
        "longest": max((_number(r["reached"]) for r in rows), default=None),
    }


def _number(x: Json) -> float:
    assert isinstance(x, int | float)
    return float(x)


def _list(x: Json) -> list[Any]:
    return x if isinstance(x, list) else []


SUMMARIES: Mapping[str, Callable[[Sequence[Row]], Row]] = {
    "shares": summary_of_shares,
    "quick": summary_of_quick,
    "agree": summary_of_agree,
    "sums": summary_of_sums,
    "never": summary_of_never,
    "speed": summary_of_speed,
}
