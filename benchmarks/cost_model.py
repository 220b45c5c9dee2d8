"""Estimates and learned models compared on tuning logs.

    python benchmarks/cost_model.py tuning_logs/*/*.jsonl

For every workload of the logs that this version still schedules, the trials are ranked by the
sketch's closed form, by the estimate of the scheduled nest, and by xgboost models that were trained
on other workloads (in ``FOLDS`` folds), with the features of closed forms, of nests, and of both.
Printed are means over the workloads: Spearman's rho, the share of pairs in the right order (of
those over 5 % apart), and the best of the first 1 and 5 as shares of the best trial.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nestwright.autotune.cost.features import Encoder
from nestwright.autotune.cost.model import Trees, rank_correlation, ranks
from nestwright.autotune.cost.profile import profile
from nestwright.autotune.log.journal import read
from nestwright.autotune.log.records import DEFAULT_SKETCH, Trial, Workload
from nestwright.autotune.search.space import Space
from nestwright.autotune.tasks.programs import Program
from nestwright.ir.arrays import Array
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate

FOLDS = 5
LEAST = 16  # trials of a workload that count
APART = 0.05


class Measured(NamedTuple):
    """The trials of one workload, a row each."""

    name: str
    seconds: Array
    closed_form: Array
    nest: Array
    closed_features: Array
    nest_features: Array


def measured(trials: Sequence[Trial], workload: Workload, target: Target) -> Measured | None:
    """Return the trials of a workload that can still be scheduled; None if they are too few."""
    func = Program(workload.form, workload.text, target.vectors).func
    space = Space(generate(func, target))
    encoder = Encoder(func, space, target, workload.flops, workload.bytes)
    rows: dict[Any, tuple[Any, ...]] = {}
    for t in trials:
        point = space.find(t.sketch, t.decisions) if t.ran else None
        if point is None or t.sketch == DEFAULT_SKETCH:
            continue
        schedule = Schedule(func)
        try:
            space.sketches[point.sketch].apply(schedule, space.choices(point))
        except ScheduleError:
            continue
        found = profile(schedule.func, target)
        row = encoder.encode([point])[0]
        rows[point] = (t.cost, space.cost(point), found.seconds, row, found.values)
    if len(rows) < LEAST:
        return None
    columns = [np.array(c) for c in zip(*rows.values(), strict=True)]
    return Measured(workload.name, *columns)


def quality(seconds: Array, merit: Array) -> tuple[float, float, float, float]:
    """Return rho, the share of pairs in order, and the best of the first 1 and 5."""
    i, j = np.triu_indices(len(seconds), 1)
    far = np.abs(np.log(seconds[i] / seconds[j])) > APART
    right = np.sign(merit[i] - merit[j]) == np.sign(seconds[j] - seconds[i])
    order = np.argsort(-merit, kind="stable")
    first = [seconds.min() / seconds[order[:n]].min() for n in (1, 5)]
    return rank_correlation(-seconds, merit), float(right[far].mean()), *first


def learned(data: Sequence[Measured], rows: Callable[[Measured], Array]) -> list[Array]:
    """Return the merit of every workload's trials by models that were trained on others."""
    found: dict[int, Array] = {}
    for fold in range(FOLDS):
        known = [m for n, m in enumerate(data) if n % FOLDS != fold]
        labels = np.concatenate([m.seconds.min() / m.seconds for m in known])
        model = Trees(0)
        model.fit(np.concatenate([rows(m) for m in known]), labels, np.maximum(labels, 0.15))
        for n in range(fold, len(data), FOLDS):
            found[n] = model.predict(rows(data[n]))
    return [found[n] for n in range(len(data))]


def table(data: Sequence[Measured]) -> dict[str, list[Array]]:
    """Return the merits of every ranking, by its name."""
    nests = [-m.nest for m in data]
    rankings = {"closed form": [-m.closed_form for m in data], "nest": nests}
    if len(data) > FOLDS:
        both = learned(data, lambda m: np.concatenate([m.closed_features, m.nest_features], 1))
        rankings["model, closed forms"] = learned(data, lambda m: m.closed_features)
        rankings["model, nests"] = learned(data, lambda m: m.nest_features)
        rankings["model, both"] = both
        pairs = zip(both, nests, strict=True)
        rankings["nest and model"] = [ranks(a) + ranks(b) for a, b in pairs]
    return rankings


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--target", default="cpu")
    arguments = parser.parse_args()
    target = Target.parse(arguments.target)
    logs = [read(path) for path in arguments.logs]
    workloads = {key: w for log in logs for key, w in log.workloads.items()}
    trials: dict[str, list[Trial]] = {key: [] for key in workloads}
    for trial in (t for log in logs for t in log.trials):
        trials[trial.workload].append(trial)
    found = (measured(trials[key], w, target) for key, w in workloads.items())
    data = [m for m in found if m is not None]
    print(f"{len(data)} workloads, {sum(len(m.seconds) for m in data)} trials")
    print(f"{'ranked by':22} {'rho':>6} {'pairs':>6} {'top-1':>6} {'top-5':>6}")
    for name, merits in table(data).items() if data else ():
        each = [quality(m.seconds, x) for m, x in zip(data, merits, strict=True)]
        print(f"{name:22} " + " ".join(f"{x:6.3f}" for x in np.mean(each, axis=0)))


if __name__ == "__main__":
    main()
