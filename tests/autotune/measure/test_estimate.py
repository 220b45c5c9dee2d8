"""Tuning without the machine: ranked by the analytic model, marked as unmeasured, superseded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nestwright.autotune.api import tune
from nestwright.autotune.build import build
from nestwright.autotune.log.best import best_traces
from nestwright.autotune.log.journal import check, read
from nestwright.autotune.log.records import Trial, device_id, estimates_id
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """HloModule chain
ENTRY main {
  x = f32[64,96] parameter(0)
  w = f32[96,128] parameter(1)
  d = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,128] tanh(d)
}
"""
SPECS = ("cpu -threads=1", "cuda -arch=sm_80", "cuda -arch=sm_90")


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


@pytest.mark.parametrize("spec", SPECS)
def test_estimates_rank_schedules_and_say_what_they_are(spec: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    result = tune(parse(MODEL), spec, trials=10, log=path, simulate_cost=True)
    log = read(path)
    ran = [t for t in log.trials if t.ran]
    assert result.trials == len(log.trials) == 10 and ran
    assert {t.status for t in ran} == {"estimated"} and not log.bests
    assert {t.device for t in log.trials} == {estimates_id(Target.parse(spec))}
    assert len({t.point for t in log.trials}) == 10 and not check(path)
    [best] = log.winners(Target.parse(spec)).values()
    assert best.seconds <= min(t.cost for t in ran) * 1.03
    [task] = result.tasks
    assert task.best_seconds == pytest.approx(min(t.cost for t in ran))


def test_estimates_go_on_where_they_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tune(parse(MODEL), SPECS[1], trials=4, log=path, simulate_cost=True)
    again = tune(parse(MODEL), SPECS[1], trials=7, log=path, simulate_cost=True)
    assert again.measured == 3 and again.trials == 7


def test_what_was_measured_goes_before_what_was_estimated(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    target = Target.parse(SPECS[0])
    tune(parse(MODEL), target, trials=6, log=path, simulate_cost=True)
    assert len(best_traces(path, target)) == 1
    tune(parse(MODEL), target, trials=3, log=path)
    log = read(path)
    measured = [t for t in log.trials if t.status == "ok"]
    assert len(measured) == 3, "estimates count for nothing in a budget of measurements"
    assert {b.device for b in log.winners(target).values()} == {device_id(target)}


def test_build_takes_the_best_estimate(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tune(parse(MODEL), SPECS[0], trials=6, log=path, simulate_cost=True)
    exe = build(parse(MODEL), SPECS[0], log=path)
    x, w = (np.random.default_rng(0).standard_normal(s, np.float32) for s in ((64, 96), (96, 128)))
    exact = np.tanh(x.astype(np.float64) @ w)
    np.testing.assert_allclose(exe(x, w), exact, atol=1e-5)  # sums of 96 products


def test_a_trial_without_a_time_is_no_estimate(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tune(parse(MODEL), SPECS[0], trials=2, log=path, simulate_cost=True)
    lines = path.read_text().splitlines()
    bad = next(json.loads(x) for x in lines if '"k":"trial"' in x)
    bad["t"]["runs"] = []
    path.write_text("\n".join([*lines, json.dumps(bad)]) + "\n")
    log = read(path)
    assert len(log.problems) == 1 and all(isinstance(t, Trial) for t in log.trials)
