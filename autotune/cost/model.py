"""The cost model: xgboost on measured trials, blended with the analytic estimate by accuracy.

The label of a program is its speed relative to the best of its task, in (0, 1]; a failure's is 0.
Fast programs have more weight, since their order matters most. One model serves all tasks of a
target, because rows also describe the task; it is refitted from scratch each round, which takes
a fraction of a second for the few hundred rows that tuning gathers. This is the only module that
imports xgboost; without it, nearest neighbors are used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...ir.arrays import Array

DEPTH = 5
ROUNDS = 70
RATE = 0.12
ENOUGH = 12  # rows from which a fit is useful
KEEP = 4000  # most rows that are fitted: the latest of each task, in proportion
NEIGHBORS = 3
FORGET = 0.6  # weight of the past in a running rank correlation
FEWEST = 4  # programs of a round that ran, from which their ranks are correlated
LEAST_WEIGHT = 0.15  # of a slow program in a fit
LEAST_ESTIMATE, LEAST_MODEL = 0.05, 0.15  # weights in a blend, however badly they ranked


class Regressor(Protocol):
    """Fits rows to labels and predicts labels of rows."""

    def fit(self, rows: Array, labels: Array, weights: Array) -> None:
        """Fit to ``rows`` of shape ``[n, features]``, ``labels`` and ``weights`` of ``[n]``."""

    def predict(self, rows: Array) -> Array:
        """Return the predicted labels, ``[n]``."""


class Trees:
    """Gradient-boosted trees by xgboost: histograms, one thread, a fixed seed."""

    def __init__(self, seed: int) -> None:
        import xgboost  # here, because it is an extra and slow to import

        self._xgboost = xgboost
        self._booster: Any = None
        self._settings = {
            "max_depth": DEPTH,
            "eta": RATE,
            "tree_method": "hist",
            "max_bin": 64,
            "lambda": 1.0,
            "min_child_weight": 0.5,
            "subsample": 0.9,
            "colsample_bytree": 0.8,
            "seed": seed,
            "nthread": 1,  # OpenMP's barriers spin where cores are taken
            "verbosity": 0,
            "objective": "reg:squarederror",
            "base_score": 0.5,
        }

    def fit(self, rows: Array, labels: Array, weights: Array) -> None:
        """Fit new trees from scratch."""
        data = self._xgboost.DMatrix(rows, label=labels, weight=weights, nthread=1)
        self._booster = self._xgboost.train(self._settings, data, num_boost_round=ROUNDS)

    def predict(self, rows: Array) -> Array:
        """Return the predicted labels, ``[n]``."""
        return np.asarray(self._booster.predict(self._xgboost.DMatrix(rows, nthread=1)), np.float64)


class Neighbors:
    """The mean of the nearest rows, weighted by proximity: the fallback without xgboost."""

    def fit(self, rows: Array, labels: Array, weights: Array) -> None:
        """Store the rows, with every column scaled to unit variance."""
        known = np.nan_to_num(rows)
        self._spread = known.std(axis=0) + 1e-6
        self._rows, self._labels = known / self._spread, labels

    def predict(self, rows: Array) -> Array:
        """Return the predicted labels, ``[n]``."""
        wanted = np.nan_to_num(rows) / self._spread
        square = (wanted**2).sum(1)[:, None] + (self._rows**2).sum(1)[None, :]
        apart = np.maximum(square - 2 * wanted @ self._rows.T, 0.0)
        count = min(NEIGHBORS, len(self._labels))
        near = np.argpartition(apart, count - 1, axis=1)[:, :count]
        merit = 1 / (np.take_along_axis(apart, near, axis=1) + 1e-3)
        return np.asarray((merit * self._labels[near]).sum(1) / merit.sum(1))


def make_regressor(seed: int) -> tuple[Regressor, str]:
    """Return the best available regressor, and a note for the user if it is not xgboost.

    Importing that fails in many ways where something is missing that it needs.
    """
    try:
        return Trees(seed), ""
    except ImportError:
        why, advice = "is not installed", "install nestwright[tune-cpu] or nestwright[tune]"
    except Exception as e:  # without its library, or without docstrings, which python -OO drops
        why = f"cannot be imported ({type(e).__name__})"
        advice = "run Python without -OO" if sys.flags.optimize > 1 else f"{e}".partition("\n")[0]
    return Neighbors(), (
        f"xgboost {why}: the cost model is the analytic one with nearest neighbors ({advice})"
    )


@dataclass(slots=True)
class Sample:
    """The measured rows of one task: features, and seconds (infinite for failures)."""

    rows: list[Array] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def add(self, row: Array, cost: float) -> None:
        """Add a measured program."""
        self.rows.append(row)
        self.costs.append(cost)

    def labels(self) -> Array:
        """Return the speeds relative to the fastest; 0 for failures."""
        best = min(self.costs, default=math.inf)
        if not math.isfinite(best):
            return np.zeros(len(self.costs))
        return np.array([best / c for c in self.costs])


class CostModel:
    """Predicts merit (more is faster) of rows of any task, from all samples seen so far."""

    def __init__(self, seed: int) -> None:
        self._regressor, self.note = make_regressor(seed)
        self.fitted = False

    def fit(self, samples: Sequence[Sample]) -> None:
        """Refit on every task's sample; too few rows leave the model unfitted."""
        used = [s for s in samples if len(s.costs) > 1]
        total = sum(len(s.costs) for s in used)
        if total < ENOUGH:
            return
        latest = [slice(-max(1, len(s.costs) * min(KEEP, total) // total), None) for s in used]
        rows = np.concatenate([np.stack(s.rows[n]) for s, n in zip(used, latest, strict=True)])
        labels = np.concatenate([s.labels()[n] for s, n in zip(used, latest, strict=True)])
        self._regressor.fit(rows, labels, np.maximum(labels, LEAST_WEIGHT))
        self.fitted = True

    def predict(self, rows: Array) -> Array:
        """Return the merit of each row; requires a fit."""
        return self._regressor.predict(rows)


def ranks(values: Array) -> Array:
    """Return ranks scaled to [0, 1], the largest value highest; equal values share a mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle = last - (counts + 1) / 2
    return np.asarray(middle[inverse] / max(1, len(values) - 1))


def rank_correlation(a: Array, b: Array) -> float:
    """Return Spearman's rho; 0 if either side is constant."""
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale > 0 else 0.0


@dataclass(slots=True)
class Blend:
    """Weights of the estimate and the model on one task, by their rank correlation so far."""

    estimate: float = 0.5
    model: float = 0.5

    def update(self, costs: Array, estimates: Array, predictions: Array | None) -> None:
        """Update the weights from a measured round: seconds, estimated seconds, predicted merit.

        ``predictions`` were made before the round was measured.
        """
        ran = np.isfinite(costs)
        if np.count_nonzero(ran) < FEWEST:
            return
        speed = -costs[ran]
        rho = rank_correlation(speed, -estimates[ran])
        self.estimate = FORGET * self.estimate + (1 - FORGET) * rho
        if predictions is not None:
            rho = rank_correlation(speed, predictions[ran])
            self.model = FORGET * self.model + (1 - FORGET) * rho

    def merit(self, estimates: Array, predictions: Array | None) -> Array:
        """Return a score per point, more is better. ``estimates`` are seconds."""
        score = max(LEAST_ESTIMATE, self.estimate) * ranks(-estimates)
        if predictions is not None:
            score = score + max(LEAST_MODEL, self.model) * ranks(predictions)
        return np.asarray(score)
