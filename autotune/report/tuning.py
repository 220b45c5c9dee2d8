"""Facts from the trials of a group: curves by seed, failures, and how honest predictions were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..bench.data import GroupBench, TrialBench
from ..cost.model import rank_correlation
from .charts.curves import Curve

Pair: TypeAlias = tuple[float, float]
Prediction: TypeAlias = Callable[[TrialBench], float | None]

MODELS: Mapping[str, Prediction] = {
    "analytic": lambda t: t.predicted,
    "learned": lambda t: t.learned,
}
"""By model: the seconds that it told of a trial."""

LATE = 3  # the last one of so many parts of the trials shows if more would be worth it
FEW = 4  # pairs from which a rank correlation says something


@dataclass(frozen=True, slots=True)
class Failure:
    """Trials that failed in one way: how many, and where the first such candidate came from."""

    status: str
    count: int
    first: int
    source: str


@dataclass(frozen=True, slots=True)
class Honesty:
    """Predicted and measured seconds of trials, and Spearman's rank correlation for each model.

    ``pairs`` and ``rho`` are by the names of models, in ``MODELS``; one that predicted nothing is
    not in them. ``parts`` are trials in order, by name, with a correlation for each model, then all
    of them, then those that every model predicted. A correlation is None with fewer than ``FEW``
    pairs.
    """

    pairs: Mapping[str, tuple[Pair, ...]]
    rho: Mapping[str, float | None]
    parts: tuple[tuple[str, tuple[float | None, ...]], ...]


def curves_by_trials(group: GroupBench) -> tuple[Curve, ...]:
    """Return the best seconds so far of each seed, over the number of the seed's trials."""
    return tuple(
        _curve(seed, [float(n) for n in range(1, len(trials) + 1)], trials)
        for seed, trials in _seeds(group)
    )


def curves_by_time(group: GroupBench) -> tuple[Curve, ...]:
    """Return the best seconds so far of each seed, over the seconds since its first trial."""
    return tuple(_curve(seed, [t.at for t in trials], trials) for seed, trials in _seeds(group))


def _seeds(group: GroupBench) -> list[tuple[int, list[TrialBench]]]:
    found: dict[int, list[TrialBench]] = {}
    for t in group.trials:
        found.setdefault(t.seed, []).append(t)
    return sorted((seed, sorted(ts, key=lambda t: t.number)) for seed, ts in found.items())


def _curve(seed: int, places: Sequence[float], trials: Sequence[TrialBench]) -> Curve:
    """Keep the places at which a trial was the fastest so far."""
    kept: list[tuple[float, float]] = []
    for place, t in zip(places, trials, strict=True):
        if t.seconds is not None and (not kept or t.seconds < kept[-1][1]):
            kept.append((place, t.seconds))
    end = max(places, default=0.0)
    return Curve(seed, tuple(p for p, _ in kept), tuple(v for _, v in kept), end)


def failures(group: GroupBench) -> tuple[Failure, ...]:
    """Return the kinds of failed trials, the most frequent first."""
    counts = Counter(t.status for t in group.trials if t.seconds is None)
    firsts: dict[str, TrialBench] = {}
    for t in group.trials:
        if t.seconds is None:
            firsts.setdefault(t.status, t)
    return tuple(
        Failure(status, n, firsts[status].number, firsts[status].source)
        for status, n in counts.most_common()
    )


def honesty(group: GroupBench) -> Honesty:
    """Compare what the models predicted with the measured times, over thirds of the trials."""
    ran = [t for t in group.trials if t.seconds is not None]
    pairs = {name: _pairs(ran, of) for name, of in MODELS.items()}
    known = {name: found for name, found in pairs.items() if found}
    size = max(FEW, -(-len(ran) // LATE))
    thirds = [ran[start : start + size] for start in range(0, len(ran), size)]
    named = [(f"{1 + n * size} to {n * size + len(part)}", part) for n, part in enumerate(thirds)]
    named.append((f"all {len(ran)}", ran))
    both = [t for t in ran if all(MODELS[name](t) for name in known)]
    if len(known) > 1:
        named.append((f"the {len(both)} that both predicted", both))
    parts = tuple(
        (text, tuple(_rho(_pairs(part, MODELS[name])) for name in known)) for text, part in named
    )
    return Honesty(known, {name: _rho(found) for name, found in known.items()}, parts)


def _pairs(trials: Sequence[TrialBench], of: Prediction) -> tuple[Pair, ...]:
    return tuple((told, t.seconds) for t in trials if (told := of(t)) and t.seconds is not None)


def _rho(pairs: Sequence[Pair]) -> float | None:
    if len(pairs) < FEW:
        return None
    found = np.array(pairs)
    return rank_correlation(found[:, 0], found[:, 1])


def late_gain(group: GroupBench) -> float | None:
    """Return the share of time that the last third of the trials saved, the mean over the seeds.

    None if no seed has ``2 * LATE`` trials.
    """
    shares = []
    for curve in curves_by_trials(group):
        before = curve.at(curve.end * (LATE - 1) / LATE)
        last = curve.at(curve.end)
        if curve.end >= 2 * LATE and before and last:
            shares.append(1 - last / before)
    return sum(shares) / len(shares) if shares else None
