"""How far the estimates of `nestwright explain` are from what logs measured.

    python benchmarks/promises.py [LOG...]      # default: the logs in tuning_logs/

For each winner of a race it compares the measured default time with the analytic estimate, and the
measured gain with two predictions: the model's ratio of the default to the best point of the space,
and the middle of the gains of all other winners. Prints quartiles of the factors between them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nestwright.autotune.explain.promise import default_estimate
from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.journal import read
from nestwright.autotune.log.records import Best, Workload
from nestwright.autotune.search.space import Space
from nestwright.autotune.tasks.programs import Program
from nestwright.ir.errors import NestwrightError
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import generate

SHIPPED = Path(__file__).parents[1] / "tuning_logs"


def winners(log: Log) -> Iterator[tuple[Best, Workload, Target]]:
    """Yield the winners of races with their workloads and targets."""
    for device, record in log.devices.items():
        for key, best in log.best(device).items():
            if best.default_runs and key in log.workloads:
                yield best, log.workloads[key], Target.parse(record.spec)


def model_ratio(workload: Workload, target: Target) -> float:
    """Return the default's estimate over the best point's; nan where a space is too large."""
    try:
        space = Space(generate(Program(workload.form, workload.text, target.vectors).func, target))
    except NestwrightError:
        return math.nan
    costs = [space.cost(p) for p in space.cheapest(1)]
    default = next(iter(space.defaults()), None)
    return space.cost(default) / min(costs) if costs and default else math.nan


def factors(name: str, predicted: Sequence[float], measured: Sequence[float]) -> str:
    """Return a row: by which factor half, three quarters and nine tenths are off."""
    p, m = np.array(predicted), np.array(measured)
    known = np.isfinite(p) & (p > 0)
    off = np.exp(np.quantile(np.abs(np.log(p[known] / m[known])), (0.5, 0.75, 0.9)))
    return f"{name:44} {known.sum():4} {off[0]:8.2f} {off[1]:8.2f} {off[2]:8.2f}"


def main(paths: Sequence[str]) -> None:
    """Print the table."""
    found = list(winners(read(*(paths or [SHIPPED]))))
    gains = [b.default_seconds / b.seconds for b, _, _ in found]
    times = [b.default_seconds for b, _, _ in found]
    estimates = [default_estimate(w, t) for _, w, t in found]
    ratio = float(np.median([m / e for m, e in zip(times, estimates, strict=True) if e]))
    others = [float(np.median(gains[:n] + gains[n + 1 :])) for n in range(len(gains))]
    print(f"{'prediction':44} {'n':>4} {'half':>8} {'3 of 4':>8} {'9 of 10':>8}")
    print(factors("default seconds, analytic", estimates, times))
    print(factors(f"the same, scaled by {ratio:.2f}", [e * ratio for e in estimates], times))
    print(factors("gain, the model's ratio", [model_ratio(w, t) for _, w, t in found], gains))
    print(factors("gain, the middle of the others", others, gains))


if __name__ == "__main__":
    main(sys.argv[1:])
