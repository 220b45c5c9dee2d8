"""Why a winner won: decisions put back one at a time, read with the times of one race."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nestwright.autotune.attribute import INVALID, WHOLE, WonSchedule, attribute
from nestwright.autotune.measure.pool import Pool
from nestwright.autotune.measure.protocol import Outcome
from nestwright.autotune.tasks.extract import Task, extract
from nestwright.ir.hlo import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

TARGET = Target.parse("cpu -threads=1")
MODEL = """
HloModule m
ENTRY main {
  a = f32[96,80] parameter(0)
  b = f32[80,112] parameter(1)
  ROOT c = f32[96,112] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


class Recorded:
    """A measurer that gives every candidate of a job the outcome of its number."""

    def __init__(self, *statuses: str) -> None:
        self.statuses = statuses
        self.jobs = []

    def run(self, jobs, until=0.0, watch=None):
        for job in jobs:
            self.jobs.append(job)
            found = (
                Outcome(s, (1.0 + n,) * 3 if s == "ok" else (), note="" if s == "ok" else "why")
                for n, s in enumerate([*self.statuses, *["ok"] * 99][: len(job.candidates)])
            )
            yield job, tuple(found)


@pytest.fixture(scope="module")
def task() -> Task:
    (found,) = extract(optimize(parse(MODEL)), TARGET)
    return found


def won_by(task: Task, count: int) -> WonSchedule:
    """A valid schedule of the default's sketch that differs in ``count`` decisions or more."""
    first = next(iter(task.space.defaults()))
    usual = task.space.choices(first)
    for point in task.space.sample(np.random.default_rng(1), 400):
        chosen = task.space.choices(point)
        if point.sketch == first.sketch and sum(chosen[n] != usual[n] for n in usual) >= count:
            return WonSchedule(task, task.space.sketches[point.sketch].name, chosen, None)
    raise AssertionError("the space has no such point")


def test_each_changed_decision_is_put_back(task: Task) -> None:
    won = won_by(task, 3)
    sketch = next(s for s in task.space.sketches if s.name == won.sketch)
    measurer = Recorded()
    found = attribute([won], TARGET, measurer, Path("."))[task.key]
    assert found.runs == (1.0,) * 3 and found.note == ""
    whole, *variants = found.variants
    assert whole.decision == WHOLE and whole.runs == (2.0,) * 3
    changed = {n for n, v in sketch.default.items() if won.decisions[n] != v}
    assert {n for v in variants for n in v.decision.split(" and ")} == changed
    raced = iter(measurer.jobs[0].candidates[2:])
    for n, v in enumerate([v for v in variants if not v.note], 3):
        names = v.decision.split(" and ")
        expected = {**won.decisions, **{name: sketch.default[name] for name in names}}
        assert dict(next(raced).decisions) == expected
        assert v.runs == (float(n),) * 3
    assert all(v.runs or v.note == INVALID for v in variants)


def test_failed_variant_and_failed_winner_are_told(task: Task) -> None:
    won = won_by(task, 1)
    found = attribute([won], TARGET, Recorded("crash", "wrong"), Path("."))[task.key]
    assert found.note == "crash: why" and found.runs == ()
    assert found.variants[0].note == "wrong: why"


def test_winner_of_an_unknown_sketch_is_compared_with_the_default_alone(task: Task) -> None:
    won = replace(won_by(task, 1), sketch="of another version")
    (whole,) = attribute([won], TARGET, Recorded(), Path("."))[task.key].variants
    assert (whole.decision, whole.winner) == ("sketch", "of another version")


def test_variants_are_measured_in_a_child(task: Task, tmp_path: Path) -> None:
    with Pool(1, workers=1) as pool:
        found = attribute([won_by(task, 2)], TARGET, pool, tmp_path)[task.key]
    assert len(found.runs) > 2 and all(s > 0 for s in found.runs)
    measured = [v for v in found.variants if v.runs]
    assert len(measured) >= 2
    assert all(len(v.runs) == len(found.runs) for v in measured)


def test_without_time_nothing_is_measured(task: Task, tmp_path: Path) -> None:
    with Pool(1, workers=1) as pool:
        assert attribute([won_by(task, 1)], TARGET, pool, tmp_path, until=0.0) == {}
