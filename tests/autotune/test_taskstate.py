"""The expected gain of a task's next trials."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nestwright.autotune.cost.model import CostModel
from nestwright.autotune.log.records import DEFAULT_SKETCH, Trial
from nestwright.autotune.search.evolution import Evolution
from nestwright.autotune.tasks.extract import extract
from nestwright.autotune.tuner.jobs import FILL, RACE_FILL, JobMaker
from nestwright.autotune.tuner.taskstate import TRUSTED, TaskState
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """HloModule product
ENTRY main {
  x = f32[64,96] parameter(0)
  w = f32[96,80] parameter(1)
  ROOT d = f32[64,80] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
TARGET = Target.parse("cpu -mcpu=znver4 -threads=2")


def at_share_of_roof(share: float, trials: int) -> TaskState:
    """Return a task whose trials all took this multiple of the roofline's seconds."""
    (task,) = extract(optimize(parse(MODEL)), TARGET)
    state = TaskState(task, TARGET, Evolution(task.space, 0), closely=False)
    for n in range(trials):
        sketch, decisions = (DEFAULT_SKETCH, {}) if n == 0 else ("none", {"n": n})
        cost = share * state.encoder.roof
        state.add(Trial(task.key, "d", sketch, decisions, "ok", "prior", (cost,)))
    return state


def test_a_task_that_seems_faster_than_the_roofline_is_tried_nevertheless() -> None:
    assert at_share_of_roof(0.8, 1).gain() > 0, "a clock may be faster, padding skipped"
    assert at_share_of_roof(0.8, TRUSTED - 1).gain() > 0


def test_after_some_trials_the_roofline_is_believed() -> None:
    assert at_share_of_roof(0.8, TRUSTED).gain() == 0
    assert at_share_of_roof(1.5, TRUSTED).gain() > 0


def test_slow_tasks_promise_more() -> None:
    gains = [at_share_of_roof(share, 4).gain() for share in (0.9, 1.0, 1.5, 3.0)]
    assert gains == sorted(gains) and gains[-1] > 5 * gains[1]


def test_only_schedules_near_the_fastest_are_raced() -> None:
    state = at_share_of_roof(1.0, 1)
    for n, share in enumerate((0.5, 0.55, 0.7)):
        runs, trace = (share * state.encoder.roof,), [["unroll", [n], []]]
        found = Trial(state.task.key, "d", "s", {"n": n}, "ok", "prior", runs, trace)
        state.add(found)
    assert [t.decisions["n"] for t in state.finalists(5)] == [0, 1]
    assert [t.decisions["n"] for t in state.finalists(1)] == [0]


def test_a_job_says_how_cold_the_task_s_operands_are_and_how_long_it_is_timed(tmp_path) -> None:
    (task,) = extract(optimize(parse(MODEL)), TARGET)
    task, maker = replace(task, reuse=(1e6, 2e9, 3.0)), JobMaker(TARGET, 7, tmp_path)
    one, race = (maker.job(task, kind, (), 1e-3) for kind in ("measure", "race"))
    assert one.reuse == race.reuse == task.reuse
    assert (one.fill, race.fill) == (FILL, RACE_FILL)
    assert (one.seed, one.incumbent, race.number) == (7, 1e-3, one.number + 1)


def test_a_default_schedule_that_failed_says_why() -> None:
    state = at_share_of_roof(1.0, 0)
    assert state.complaint == ""
    state.add(Trial(state.task.key, "d", DEFAULT_SKETCH, {}, "crash", "default", note="SIGSEGV"))
    assert state.complaint.endswith("its default schedule failed (crash: SIGSEGV)")
    assert at_share_of_roof(1.0, 1).complaint == ""


def test_predictions_are_seconds_by_the_best_so_far() -> None:
    class Told(CostModel):
        def predict(self, rows):
            return np.array([1.0, 0.5, -0.2])[: len(rows)]

    state, model = at_share_of_roof(2.0, 4), Told(0)
    points = state.task.space.cheapest(3)
    assert state.predict(points, model) == [None] * 3, "it has learned nothing yet"
    model.fitted = True
    now = state.seconds
    assert state.predict(points, model) == pytest.approx([now, 2 * now, 100 * now])
    assert state.predict([], model) == [] and state.predict(points, None) == [None] * 3
