"""Optuna: samplers by name, logs as studies, options of a build chosen by ask and tell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from click.testing import CliRunner

import nestwright as nw
from nestwright.autotune import study as studies
from nestwright.autotune.log.journal import LogWriter, read, stamped
from nestwright.autotune.log.records import DeviceRecord, Trial, Workload
from nestwright.autotune.measure.compare import SpeedComparison
from nestwright.autotune.search import optuna_strategy
from nestwright.autotune.search.optuna_strategy import sampler
from nestwright.autotune.search.optuna_study import choose, export, importances
from nestwright.cli.commands.log import log as log_command
from nestwright.ir.errors import ArgumentError, UnsupportedError
from nestwright.ir.target import Target

HLO = """HloModule m
ENTRY main {
  x = f32[8,8] parameter(0)
  ROOT y = f32[8,8] tanh(x)
}
"""


@pytest.mark.parametrize("name", ["tpe", "random", "qmc", "nsgaii"])
def test_samplers_have_names(name: str) -> None:
    assert sampler(name, 3) is not None
    assert sampler(name, 1 << 47) is not None, "a tuner's seeds have 48 bits"


def test_a_sampler_that_cannot_run_says_what_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(optuna_strategy, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="the package cmaes, which is not installed"):
        sampler("cmaes", 0)
    with pytest.raises(UnsupportedError, match="the package torch"):
        sampler("gp", 0)


@pytest.mark.parametrize("kind", ["tpe", "random", "nsgaii"])
def test_options_are_measured_once_each_and_the_best_is_found(kind: str) -> None:
    asked: list[tuple[int, str]] = []

    def measure(chosen) -> float:
        asked.append((chosen["a"], chosen["b"]))
        return math.inf if chosen["b"] == "bad" else float(chosen["a"])

    made = choose({"a": [3, 1, 2], "b": ["x", "bad"]}, measure, 100, kind, 0)
    assert len(asked) == len(set(asked)) <= 6
    assert made.best_value == min(a for a, b in asked if b != "bad")
    assert len(choose({"a": [1, 2, 3]}, lambda c: 1.0, 2, kind, 0).trials) >= 2


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        writer.append(Workload("w", "n", "hlo", HLO, 1.0, 1.0), DeviceRecord("d-t1", "cpu", {}))
        for n in range(24):
            choices = {"rows": 1 << n % 4, "unroll": n % 3}
            cost = 1e-3 / (1 << n % 4) + 1e-6 * (n % 3)
            trial = Trial("w", "d-t1", "s@1", choices, "ok", "model", (cost,), [], n)
            writer.append(stamped(trial))
        writer.append(stamped(Trial("w", "d-t1", "s@1", {"rows": 9}, "build", "model")))
    return path


def test_a_log_becomes_a_study_that_tells_what_matters(log: Path, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    (shares,) = export(read(log), storage).values()
    assert max(shares, key=lambda n: shares[n]) == "s@1.rows"
    (again,) = export(read(log), storage).values()
    assert again == shares, "no trial is added twice"
    done = CliRunner().invoke(log_command, ["export", str(log), "--optuna", storage])
    assert done.exit_code == 0, done.output
    assert "s@1.rows" in done.output and done.output.endswith(f"1 workload in {storage}\n")


def test_a_storage_that_cannot_be_used_is_named(log: Path) -> None:
    with pytest.raises(ArgumentError, match="storage nowhere://x"):
        export(read(log), "nowhere://x")


def test_few_trials_tell_nothing() -> None:
    assert importances(choose({"a": [1, 2]}, lambda c: 1.0, 2, "random", 0)) == {}


def test_a_study_races_builds_against_the_defaults(monkeypatch) -> None:
    places: list[tuple[bytes, bytes]] = []
    speed = {1: 1.0, 2: 1.5}

    def time_models(pair, target, pool, seed, seconds):
        exe = nw.load(pair[1])
        t = 1.0 / speed[exe.bundle.target.threads]
        places.append(tuple(p.read_bytes()[:4] for p in pair))
        return SpeedComparison((1.0,) * 9, (t,) * 9)

    monkeypatch.setattr(studies, "time_models", time_models)
    found = nw.study(nw.parse(HLO), {"threads": [1, 2]}, "cpu -threads=1", sampler="random")
    assert (found.options, found.speedup) == ({"threads": 2}, pytest.approx(1.5))
    assert len(found.tried) == len(places) == 2 and found.failed == ()
    speed[2] = 0.5
    found = nw.study(nw.parse(HLO), {"threads": [1, 2]}, "cpu -threads=1", sampler="random")
    assert (found.options, found.speedup) == ({}, 1.0), "the defaults are kept"


def test_options_that_cannot_be_built_are_told(monkeypatch) -> None:
    monkeypatch.setattr(studies, "time_models", lambda *a: "crash: SIGSEGV")
    options = {"weights": ["int7"], "threads": [1]}
    found = nw.study(nw.parse(HLO), options, "cpu -threads=1", sampler="random")
    assert found.options == {} and len(found.failed) == 1
    found = nw.study(nw.parse(HLO), {"threads": [1]}, "cpu -threads=1", sampler="random")
    assert found.failed == (({"threads": 1}, "crash: SIGSEGV"),)


@pytest.mark.parametrize(
    ("options", "trials"),
    [({"magic": [1]}, 4), ({"threads": []}, 4), ({"log": "x"}, 4), ({"threads": [1]}, 0)],
)
def test_bad_options_are_refused(options, trials: int) -> None:
    with pytest.raises(ArgumentError):
        nw.study(nw.parse(HLO), options, "cpu -threads=1", trials)


def test_threads_and_strict_rounding_are_what_is_studied_by_default() -> None:
    usual = studies._usual(nw.parse(HLO), Target.parse("cpu -mcpu=haswell -threads=6"))
    assert usual == {"threads": [1, 2, 4, 6]}
    narrow = nw.parse(HLO.replace("f32", "bf16"))
    usual = studies._usual(narrow, Target.parse("cpu -threads=1"))
    assert usual == {"threads": [1], "excess_precision": [True, False]}
