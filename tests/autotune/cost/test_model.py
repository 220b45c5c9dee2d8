"""The cost model learns an order from few rows; failures teach; the blend follows merit."""

from __future__ import annotations

import builtins
import math

import numpy as np
import pytest

from nestwright.autotune.cost import model
from nestwright.autotune.cost.model import (
    Blend,
    CostModel,
    Neighbors,
    Sample,
    make_regressor,
    rank_correlation,
    ranks,
)


def rows(count: int, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    found[::5, 5] = np.nan
    return found


def seconds(x: np.ndarray) -> np.ndarray:
    return 1e-3 * (1 + (x[:, 0] - 0.5) ** 2 + np.maximum(0, x[:, 1]))


def sample(count: int, fail: bool = False) -> Sample:
    found = Sample()
    x = rows(count)
    for row, cost in zip(x, seconds(x), strict=True):
        found.add(row, math.inf if fail and row[2] > 0.5 else float(cost))
    return found


def test_of_too_many_rows_the_latest_of_every_task_are_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[np.ndarray] = []

    class Told(Neighbors):
        def fit(self, rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> None:
            seen.extend((rows, labels))

    monkeypatch.setattr(model, "KEEP", 15)
    monkeypatch.setattr(model, "make_regressor", lambda seed: (Told(), ""))
    tasks = sample(10), sample(20)
    CostModel(0).fit(tasks)
    expected = [np.stack(tasks[0].rows[-5:]), np.stack(tasks[1].rows[-10:])]
    np.testing.assert_array_equal(seen[0], np.concatenate(expected))
    np.testing.assert_array_equal(seen[1][:5], tasks[0].labels()[-5:])


def test_model_orders_unseen_rows() -> None:
    model = CostModel(0)
    assert model.note == ""
    model.fit([sample(120)])
    unseen = rows(200, seed=1)
    assert rank_correlation(model.predict(unseen), -seconds(unseen)) > 0.7


def test_failures_push_their_kind_down() -> None:
    model = CostModel(0)
    model.fit([sample(200, fail=True)])
    unseen = rows(300, seed=1)
    bad = unseen[:, 2] > 0.5
    merit = model.predict(unseen)
    assert merit[bad].max() < np.median(merit[~bad])


def test_too_few_rows_leave_it_unfitted() -> None:
    model = CostModel(0)
    model.fit([sample(5)])
    assert not model.fitted


def test_fit_is_deterministic() -> None:
    models = [CostModel(3), CostModel(3)]
    for m in models:
        m.fit([sample(60)])
    assert np.array_equal(*(m.predict(rows(50, 1)) for m in models))


def test_trees_grow_on_one_thread(monkeypatch) -> None:
    xgboost = pytest.importorskip("xgboost")
    asked: list[object] = []
    train, matrix = xgboost.train, xgboost.DMatrix

    def training(settings, data, **more):
        asked.append(settings["nthread"])
        return train(settings, data, **more)

    def making(*args, **more):
        asked.append(more.get("nthread"))
        return matrix(*args, **more)

    monkeypatch.setattr(xgboost, "train", training)
    monkeypatch.setattr(xgboost, "DMatrix", making)
    model = CostModel(0)
    model.fit([sample(60)])
    model.predict(rows(5, 1))
    assert asked == [1, 1, 1], "threads of OpenMP spin at barriers where cores are taken"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ImportError("xgboost"), "xgboost is not installed"),
        (AttributeError("no docstring"), "xgboost cannot be imported (AttributeError)"),
        (OSError("no libgomp.so.1"), "neighbors (no libgomp.so.1)"),
    ],
)
def test_without_xgboost_neighbors_stand_in_and_it_is_said(
    error: Exception, told: str, monkeypatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args, **more):
        if name == "xgboost":
            raise error
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    regressor, note = make_regressor(0)
    assert isinstance(regressor, Neighbors)
    assert told in note
    model = CostModel(0)
    model.fit([sample(200)])
    unseen = rows(100, seed=1)
    assert rank_correlation(model.predict(unseen), -seconds(unseen)) > 0.4


def test_ranks_share_ties() -> None:
    assert ranks(np.array([3.0, 1.0, 1.0, 7.0])) == pytest.approx([2 / 3, 1 / 6, 1 / 6, 1])


def test_rank_correlation_knows_its_ends() -> None:
    up = np.arange(5.0)
    assert rank_correlation(up, up**3) == pytest.approx(1)
    assert rank_correlation(up, -up) == pytest.approx(-1)
    assert rank_correlation(up, np.ones(5)) == 0


def test_labels_are_relative_to_the_best_and_failures_are_zero() -> None:
    s = Sample()
    for cost in (2e-3, 1e-3, math.inf):
        s.add(np.zeros(2), cost)
    assert s.labels() == pytest.approx([0.5, 1, 0])


def test_blend_trusts_whoever_ranked_the_last_rounds() -> None:
    blend = Blend()
    costs = np.linspace(1e-3, 2e-3, 8)
    for _ in range(6):
        blend.update(costs, estimates=costs[::-1], predictions=-costs)
    assert blend.model > 0.9 > 0 > blend.estimate
    merit = blend.merit(estimates=costs[::-1], predictions=-costs)
    assert np.argmax(merit) == 0, "the model's favorite leads"
    assert np.argmax(blend.merit(costs, None)) == 0, "without a model the estimate decides"
