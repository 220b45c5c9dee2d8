"""Tuning end to end on small models: logged, resumed, interrupted, killed, applied."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright import te
from nestwright.autotune.api import tune
from nestwright.autotune.build import build
from nestwright.autotune.log.best import best_traces
from nestwright.autotune.log.journal import check, read
from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure.pool import Pool
from nestwright.autotune.tasks.extract import LOOP_TRIPS, extract
from nestwright.autotune.tuner.progress import Progress, TuningInterrupted
from nestwright.autotune.tuner.session import Subject, TuningSession
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.errors import ArgumentError, LogError, TargetError
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """HloModule tiny

add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }

ENTRY main {
  x = f32[16,24] parameter(0)
  w = f32[24,32] parameter(1)
  v = f32[32,32] parameter(2)
  d = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,32] tanh(d)
  e = f32[16,32] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  ROOT r = f32[16] reduce(e, zero), dimensions={1}, to_apply=add
}
"""
OTHER = """HloModule other
ENTRY main {
  x = f32[50,70] parameter(0)
  ROOT y = f32[50,70] exponential(x)
}
"""
TARGET = "cpu -threads=1"


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """A log of the tiny model, 14 trials."""
    folder = tmp_path_factory.mktemp("tuned")
    os.environ["NESTWRIGHT_MEASURE_LOCK"] = str(folder / "lock")
    tune(parse(MODEL), TARGET, trials=14, log=folder / "tiny.jsonl", workers=1)
    return folder / "tiny.jsonl"


def points(path: Path) -> list[tuple[str, str, str, str]]:
    return [t.point for t in read(path).trials]


def test_tasks_are_counted_once_with_their_weight() -> None:
    twice = MODEL.replace("[24,32] par", "[32,32] par").replace("[16,24]", "[16,32]")
    text = twice.replace("tanh(d)", "copy(d)")
    tasks = extract(optimize(parse(MODEL)), Target.parse(TARGET))
    assert [t.weight for t in tasks] == [1.0] * len(tasks)
    assert len({t.key for t in tasks}) == len(tasks) >= 2
    assert sum(t.weight for t in extract(optimize(parse(text)), Target.parse(TARGET))) >= 2


NESTED = """HloModule nested
more {{ s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000)
  ROOT r = pred[] compare(i, n), direction=LT }}
unknown {{ s = (f32[64,64], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  n = s32[] constant(7)
  ROOT r = pred[] compare(i, n), direction=LT }}
square {{ s = (f32[64,64], s32[]) parameter(0)
  x = f32[64,64] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  j = s32[] add(i, i)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (f32[64,64], s32[]) tuple(y, j) }}
step {{ s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  {body}
  ROOT r = (s32[], f32[64,64]) tuple(j, y) }}
ENTRY main {{ x = f32[64,64] parameter(0)
  i = s32[] constant({start})
  s = (s32[], f32[64,64]) tuple(i, x)
  w = (s32[], f32[64,64]) while(s), condition=more, body=step
  ROOT r = f32[64,64] get-tuple-element(w), index=1 }}
"""
DOT = "y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
INNER = """t = (f32[64,64], s32[]) tuple(x, i)
  w = (f32[64,64], s32[]) while(t), condition=unknown, body=square
  y = f32[64,64] get-tuple-element(w), index=0"""


@pytest.mark.parametrize(
    ("start", "body", "weight"), [(0, DOT, 1000), (997, DOT, 3), (0, INNER, 1000 * LOOP_TRIPS)]
)
def test_a_loop_weighs_its_body_by_its_trip_count(start: int, body: str, weight: float) -> None:
    module = optimize(parse(NESTED.format(start=start, body=body)))
    tasks = extract(module, Target.parse(TARGET))
    assert max(t.weight for t in tasks) == weight


def test_log_has_a_default_first_and_everything_replay_needs(tuned: Path) -> None:
    assert check(tuned) == []
    log = read(tuned)
    assert len(log.trials) == 14
    firsts = {}
    for t in log.trials:
        firsts.setdefault(t.workload, t)
    assert all(t.sketch == DEFAULT_SKETCH and t.source == "default" for t in firsts.values())
    assert set(firsts) == set(log.workloads)
    for w in log.workloads.values():
        assert parse(w.text).entry
    assert [m.name for m in log.models] == ["tiny"]
    assert len(set(points(tuned))) == 14


def test_resuming_measures_nothing_twice(tuned: Path, tmp_path: Path) -> None:
    log = tmp_path / "copy.jsonl"
    log.write_bytes(tuned.read_bytes())
    done = tune(parse(MODEL), TARGET, trials=14, log=log)
    assert (done.measured, done.trials, done.stopped) == (0, 14, "budget")
    assert len(read(log).bests) == len(read(tuned).bests), "nothing new to race"
    more = tune(parse(MODEL), TARGET, trials=18, log=log)
    assert (more.measured, more.trials) == (4, 18)
    assert len(set(points(log))) == 18


def test_build_applies_the_log_and_never_measures(tuned: Path, tmp_path: Path, monkeypatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("build started a measuring child")

    monkeypatch.setattr(Pool, "__init__", never)
    module = parse(MODEL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe = build(module, TARGET, log=tuned)
    rng = np.random.default_rng(0)
    shapes = ((16, 24), (24, 32), (32, 32))
    args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    expected = (np.tanh(args[0] @ args[1]) @ args[2]).sum(1)
    assert np.allclose(exe(*args), expected, atol=1e-4)
    again = build(module, TARGET, log=tuned)
    assert np.array_equal(exe(*args), again(*args)), "the same bits"


def test_log_of_another_model_draws_a_warning_that_says_what_it_holds(tuned: Path) -> None:
    with pytest.warns(UserWarning, match=r"no record for other on cpu.*14 trials.*tiny"):
        exe = build(parse(OTHER), TARGET, log=tuned)
    x = np.ones((50, 70), np.float32)
    assert np.allclose(exe(x), np.exp(x))


def test_log_of_another_target_draws_a_warning(tuned: Path) -> None:
    with pytest.warns(UserWarning, match="no record for tiny on cpu-x86_64-nehalem"):
        build(parse(MODEL), "cpu -mcpu=nehalem -mtriple=x86_64-unknown-linux-gnu", log=tuned)


def test_traces_of_the_log_show_in_the_stages(tuned: Path) -> None:
    module = parse(MODEL)
    traces = best_traces(tuned, Target.parse(TARGET))
    assert "dot" in stage_text(module, TARGET, "scheduled", None, traces)
    assert best_traces(tuned, Target.parse("cpu -mcpu=nehalem")) == {}


def test_progress_tells_every_trial_and_the_end(tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = tune(parse(OTHER), TARGET, trials=4, log=tmp_path / "l.jsonl", progress=seen.append)
    assert (seen[0].event, seen[-1].event) == ("start", "done")
    trials = [p.trials for p in seen if p.event in ("trial", "best")]
    assert trials == list(range(1, result.trials + 1))
    assert all(t.best_seconds and t.curve for t in result.tasks)
    assert result.speedup >= 1.0 or result.tasks[0].sketch == DEFAULT_SKETCH


def test_seconds_are_a_limit(tmp_path: Path) -> None:
    result = tune(parse(MODEL), TARGET, trials=10_000, seconds=1e-3, log=tmp_path / "l.jsonl")
    assert result.stopped == "time" and result.measured == 0


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"trials": 0}, "at least one trial"),
        ({"seconds": 0}, "a positive time"),
        ({"seconds": math.nan}, "a positive time"),
        ({"seed": -1}, "non-negative integer"),
        ({"seed": 0.5}, "non-negative integer"),
        ({"trials": "3"}, "trials='3': at least one trial"),
        ({"workers": -1}, "at least one"),
        ({"strategy": None}, "not a name"),
        ({"log": 5}, "log=5: it is not a path"),
    ],
)
def test_what_cannot_be_tuned_with_is_refused_first(
    tmp_path: Path, option: dict[str, Any], why: str
) -> None:
    def unread() -> Subject:
        raise AssertionError("the model is read")

    log = tmp_path / "l.jsonl"
    options = {"log": log} | option
    with pytest.raises(ArgumentError, match=why):
        TuningSession(target=Target.parse(TARGET), **options).run(unread)
    assert not log.exists()


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    numbers = {"trials": np.int64(2), "seed": np.uint8(3), "seconds": np.float32(1e3)}
    log = tmp_path / "l.jsonl"
    found = tune(parse(MODEL), target=TARGET, log=log, simulate_cost=True, **numbers)
    assert found.trials == 2 and {t.seed for t in read(log).trials} == {3}


def test_ctrl_c_keeps_the_trials_and_says_how_to_go_on(tmp_path: Path) -> None:
    log = tmp_path / "l.jsonl"

    def interrupt(p: Progress) -> None:
        if p.trials == 3:
            raise KeyboardInterrupt

    with pytest.raises(TuningInterrupted, match=r"3 trials are kept in .*run the same command"):
        tune(parse(MODEL), TARGET, trials=10, log=log, progress=interrupt)
    assert len(read(log).trials) == 3
    assert tune(parse(MODEL), TARGET, trials=5, log=log).measured == 2


TUNER = """
import sys
from nestwright.autotune.api import tune
tune(sys.argv[1], target="cpu -threads=1", trials=int(sys.argv[3]), log=sys.argv[2],
     progress=lambda p: print(p.trials, flush=True))
"""


def test_kill_9_in_the_middle_loses_and_repeats_nothing(tmp_path: Path) -> None:
    model, log = tmp_path / "tiny.hlo", tmp_path / "l.jsonl"
    model.write_text(MODEL)
    command = [sys.executable, "-c", TUNER, str(model), str(log), "16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = 0
        while told < 6:
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    kept = len(read(log).trials)
    assert kept >= told
    result = tune(model, target=TARGET, trials=16, log=log)
    assert (result.trials, result.measured) == (16, 16 - kept)
    assert len(set(points(log))) == 16
    assert check(log) == []
    assert read(log).notes == [], "what explains the log stands in it once"


CHILD_OF = """
import subprocess, sys
from nestwright.autotune.measure.protocol import Candidate, Job, encode_job
from nestwright.autotune.measure.worker import CHILD, child_environment
pipe, env = subprocess.PIPE, child_environment(1)
child = subprocess.Popen(CHILD, stdin=pipe, stdout=pipe, env=env)
if sys.argv[1] == "serves":
    job = Job(0, "measure", "k", "loop", "no program", "cpu", (Candidate("s", {}),), "", 0)
    child.stdin.write(encode_job(job))
    child.stdin.flush()
    child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("when", ["starts", "serves"])
def test_children_end_with_a_killed_tuner(when: str) -> None:
    pipe, command = subprocess.PIPE, [sys.executable, "-c", CHILD_OF, when]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        end = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:  # where others take the cores it may hardly have started
        assert select.select([end], [], [], 600)[0], "the child lived on"
    except AssertionError:
        signal.pidfd_send_signal(end, signal.SIGKILL)
        raise
    finally:
        os.close(end)


def test_a_function_written_by_hand_is_tuned_too(tmp_path: Path) -> None:
    a = te.placeholder((20, 30), name="A")
    b = te.placeholder((30, 48), name="B")
    k = te.reduce_axis(30, "k")
    c = te.compute((20, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="C")
    func = te.create_func([a, b, c], name="matmul")
    log = tmp_path / "l.jsonl"
    result = tune(func, target=TARGET, trials=6, log=log)
    assert result.model == "matmul" and result.trials == 6
    assert not result.failures, [t.note for t in read(log).trials]
    kernel = build(func, TARGET, log=log)
    x, y = np.random.default_rng(0).standard_normal((2, 30, 48)).astype(np.float32)
    x = np.ascontiguousarray(x[:20, :30])
    assert np.allclose(kernel(x, y), x @ y, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "why"),
    [
        (dict(target="cuda -arch=sm_103a"), TargetError, "cannot run its code"),
        (dict(target="cuda-sim -arch=sm_80"), TargetError, "says nothing about a GPU"),
        (dict(target="llvm -mtriple=aarch64-linux-gnu"), TargetError, "cannot run its code"),
        (dict(trials=0), ArgumentError, "at least one trial"),
        (dict(seconds=-1), ArgumentError, "positive time"),
    ],
)
def test_impossible_wishes_are_refused(call, error, why: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=why):
        tune(parse(OTHER), **{"target": TARGET, "log": tmp_path / "l.jsonl", **call})
    assert not (tmp_path / "l.jsonl").exists(), "nothing was begun"


def test_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "l.jsonl"
    log.write_text(json.dumps({"k": "header", "v": 99}) + "\n")
    for use in (build, tune):
        with pytest.raises(LogError, match="log version 99"):
            use(parse(OTHER), TARGET, log=log)
