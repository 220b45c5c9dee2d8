"""The promise of tuning: an estimate, from what it gained where logs tell, and the roofline.

The analytic cost model ranks schedules well, but its ratio of two schedules of one group predicts
gains worse than the gains of other groups do (docs/explain.md has the figures). So the promise is
how much faster groups became that were tuned before, no more than the roofline leaves, of a default
time that the model estimates. The estimate is scaled by what logs measured, and its error is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ...ir.errors import NestwrightError
from ...ir.target import Target
from ...schedule.sketches.generate import generate
from ...schedule.space.space import Sketch
from ..cost.features import roof
from ..log.contents import Log
from ..log.records import Best, Workload, quantile
from ..tasks.programs import Program

MOST = 24  # records that the estimate is compared with: each takes some ten milliseconds


@dataclass(frozen=True, slots=True)
class Experience:
    """The record of tuning in logs: ``gains`` are default over tuned, 1 where the default stayed.

    ``scale`` is measured over estimated default seconds in the middle of ``compared`` records, and
    ``error`` the factor within which half of them are of the scaled estimate.
    """

    gains: tuple[float, ...]
    scale: float
    error: float
    compared: int

    def gain(self, q: float) -> float:
        """Return the ``q`` quantile of the gains; 1 without any."""
        return quantile(self.gains, q) if self.gains else 1.0


@dataclass(frozen=True, slots=True)
class Promise:
    """An estimate of what tuning a group gains. Seconds are of one run of the model.

    ``seconds`` are of the default schedule, ``roof`` of the machine's roofline. ``gains`` are the
    lower quartile, the middle and the upper quartile to expect; ``saved`` goes with the middle.
    """

    seconds: float
    roof: float
    gains: tuple[float, float, float]

    @property
    def bound(self) -> float:
        """How many times as fast the roofline allows, at least 1."""
        return max(1.0, self.seconds / self.roof) if self.roof else 1.0

    @property
    def saved(self) -> float:
        """Seconds of one run of the model that the middle of the gains saves."""
        return self.seconds * (1 - 1 / self.gains[1])


def promise(
    estimate: float, flops: float, size: float, runs: float, target: Target, known: Experience
) -> Promise:
    """Return the promise of a group that a run of the model executes ``runs`` times.

    ``estimate`` is the analytic one of its default schedule in seconds, ``flops`` and ``size`` are
    the operations that some schedule needs at least, and its bytes.
    """
    least = roof(flops, size, target)
    seconds = max(least, estimate * known.scale)
    bound = seconds / least
    low, middle, high = (min(bound, known.gain(q)) for q in (0.25, 0.5, 0.75))
    return Promise(runs * seconds, runs * least, (low, middle, high))


def experience(log: Log, target: Target) -> Experience:
    """Return what a log tells of tuning for a target."""
    found = list(_tuned(log, target))
    factors = []
    for best, workload, machine in found[:MOST]:
        estimate = default_estimate(workload, machine)
        if estimate and best.default_seconds:
            factors.append(best.default_seconds / estimate)
    scale = quantile(tuple(factors), 0.5) if factors else 1.0
    off = tuple(math.exp(abs(math.log(f / scale))) for f in factors)
    own = [v for v in log.verdicts if v.device.rpartition("-t")[0] == target.key]
    kept = sum(not pick for v in own for _, pick in v.picks)
    gains = tuple(max(1.0, b.default_seconds / b.seconds) for b, _, _ in found)
    return Experience((*gains, *(1.0,) * kept), scale, quantile(off, 0.5) if off else 1.0, len(off))


def _tuned(log: Log, target: Target) -> Iterator[tuple[Best, Workload, Target]]:
    """Yield the measured winners of a target with their workloads, each with the threads it ran
    on.
    """
    for device in log.devices:
        known, _, threads = device.rpartition("-t")
        if known == target.key and threads.isdecimal():
            machine = replace(target, threads=int(threads))
            for key, best in log.best(device).items():
                if best.default_runs and best.runs and key in log.workloads:
                    yield best, log.workloads[key], machine


@lru_cache(maxsize=512)
def default_estimate(workload: Workload, target: Target) -> float:
    """Return the analytic estimate of a workload's default schedule in seconds; 0 for none."""
    try:
        func = Program(workload.form, workload.text, target.vectors).func
        sketches = generate(func, target)
    except NestwrightError:
        return 0.0
    return default_seconds(sketches)


def default_seconds(sketches: Sequence[Sketch]) -> float:
    """Return the analytic estimate of the first sketch's default in seconds; 0 for none."""
    return known_seconds(sketches[0].cost(sketches[0].default)) if sketches else 0.0


def known_seconds(estimate: float) -> float:
    """Return an estimate; 0 if it is not finite, which means that there is none."""
    return float(estimate) if math.isfinite(estimate) else 0.0
