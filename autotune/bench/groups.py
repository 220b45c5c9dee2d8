"""The groups of a cell, each raced alone with its default and tuned schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from ...codegen.plan.groups import Groups
from ...ir.hlo.nodes import Instruction
from ...ir.loop.printer import show
from ...ir.target import Target
from ...schedule.errors import ScheduleError
from ...schedule.language.trace import Trace
from ..log.contents import Log
from ..log.records import DEFAULT_SKETCH, Best, Json, Trial, device_id
from ..measure.pool import Pool
from ..measure.protocol import Candidate, Job, Limits, Outcome
from ..tasks.counting import flops, moved
from ..tasks.extract import Task
from ..tuner.jobs import race_of
from .data import EdgeBench, GroupBench, ScheduleBench, TrialBench

RUN = 120.0  # seconds for the runs of a race


def bench_groups(
    tasks: Sequence[Task],
    target: Target,
    log: Log,
    winners: Mapping[str, Best],
    pool: Pool,
    folder: Path,
    seed: int,
) -> tuple[GroupBench, ...]:
    """Race each group against its default in a measuring child, on caches as in the model.

    ``folder`` is for files of the race.
    """
    by_key = {t.key: t for t in tasks}
    found: dict[str, GroupBench] = {}
    jobs = (_job(n, t, target, winners.get(t.key), folder, seed) for n, t in enumerate(tasks))
    for done, outcomes in pool.run(jobs):
        task = by_key[done.key]
        trials = log.trials_of(task.key, device_id(target))
        found[task.key] = _group(task, winners.get(task.key), outcomes, trials)
    return tuple(found[t.key] for t in tasks)


def _job(number: int, t: Task, target: Target, best: Best | None, folder: Path, seed: int) -> Job:
    default = Candidate(DEFAULT_SKETCH, {})
    changed = best is not None and best.sketch != DEFAULT_SKETCH
    tuned = (Candidate(best.sketch, best.decisions, best.trace),) if best and changed else ()
    return race_of(number, t, target, (default, *tuned), folder, seed, Limits(run=RUN))


def _group(
    t: Task, best: Best | None, outcomes: Sequence[Outcome], trials: Sequence[Trial]
) -> GroupBench:
    default, tuned = outcomes[0], outcomes[-1]
    note = next((f"{o.status}: {o.note}" for o in outcomes if o.status != "ok"), "")
    c = t.program.computation
    assert c is not None
    sketch, decisions = (best.sketch, best.decisions) if best else (DEFAULT_SKETCH, {})
    nests = _nest(t, default), _nest(t, tuned)
    if nests[0] == nests[1]:
        nests = "", ""
    return GroupBench(
        key=t.key,
        name=t.name,
        kind=t.kind,
        weight=t.weight,
        flops=flops(c),
        bytes=moved(c),
        default=_schedule(t, DEFAULT_SKETCH, {}, default, "", nests[0]),
        tuned=_schedule(t, sketch, decisions, tuned, best.trial if best else "", nests[1]),
        error=tuned.error,
        trials=tuple(_trials(t, trials)),
        note=note,
        reach=_median_reuse(t),
    )


def _median_reuse(t: Task) -> float:
    """Return the reuse distance that half of the bytes of a group's parameters do not exceed."""
    sizes = [math.prod(b.shape) * b.dtype.bytes for b in t.program.func.params]
    nearest = sorted(zip(t.reuse, sizes, strict=False))
    passed = accumulate(size for _, size in nearest)
    half = sum(size for _, size in nearest) / 2
    found = zip(nearest, passed, strict=True)
    return next((distance for (distance, _), so_far in found if so_far >= half), 0.0)


def _schedule(
    t: Task, sketch: str, decisions: Mapping[str, Json], o: Outcome, record: str, nest: str
) -> ScheduleBench:
    estimate = predicted(t, sketch, decisions)
    return ScheduleBench(sketch, dict(decisions), o.trace or [], o.runs, estimate, record, nest)


def _nest(t: Task, o: Outcome) -> str:
    """Return the loop nest of a schedule; "" for a library function, or if it has none."""
    try:
        trace = Trace.from_json(o.trace)
        return "" if trace.library else show(trace.replay(t.program.func).func)
    except ScheduleError:
        return ""


def predicted(t: Task, sketch: str, decisions: Mapping[str, Json]) -> float | None:
    """Return the analytic model's seconds for a schedule; None if it has no estimate.

    The default schedule is the first sketch's, as for tuning.
    """
    if sketch == DEFAULT_SKETCH:
        first = t.space.sketches[0]
        seconds = float(first.cost(first.default))
    else:
        point = t.space.find(sketch, decisions)
        if point is None:
            return None
        seconds = float(t.space.sketches[point.sketch].cost(t.space.choices(point)))
    return seconds if 0 < seconds < math.inf else None


def _trials(t: Task, trials: Sequence[Trial]) -> Iterable[TrialBench]:
    """Yield trials with the time since the first one of their seed."""
    began: dict[int, float] = {}
    for number, trial in enumerate(trials, 1):
        at = trial.ts - began.setdefault(trial.seed, trial.ts)
        seconds = trial.cost if trial.cost < math.inf else None
        estimate = predicted(t, trial.sketch, trial.decisions)
        yield TrialBench(
            number,
            trial.seed,
            max(0.0, at),
            seconds,
            trial.status,
            trial.source,
            estimate,
            trial.predicted,
        )


def edges(groups: Groups) -> tuple[EdgeBench, ...]:
    """Return every edge of a module's computations, fused or not, and why."""
    home: dict[Instruction, str] = {
        i: g.name for f in groups.fusions.values() for g in f.groups for i in g.members
    }
    return tuple(
        EdgeBench(
            e.producer.name,
            e.consumer.name,
            e.fused,
            e.reason,
            home.get(e.producer, ""),
            home.get(e.consumer, ""),
        )
        for f in groups.fusions.values()
        for e in f.edges
    )
