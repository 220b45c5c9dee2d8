"""Real kernels in the harness: timed when right, rejected by name when not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nestwright.autotune.measure.harness import Harness
from nestwright.autotune.measure.protocol import Candidate, Job
from nestwright.autotune.measure.timing import (
    BURST,
    MOST,
    ROUNDS,
    SAMPLE,
    Yardstick,
    race,
    repeats,
    time_call,
)
from nestwright.autotune.programs import Program
from nestwright.autotune.records import DEFAULT_SKETCH
from nestwright.ir.accuracy import relative_error

HLO = """HloModule canonical

ENTRY main {
  p0 = f32[24,32] parameter(0)
  p1 = f32[32,40] parameter(1)
  v0 = f32[24,40] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT v1 = f32[24,40] add(v0, v0)
}
"""
SCALAR = """HloModule canonical

ENTRY main {
  p0 = f32[300] parameter(0)
  p1 = s32[] parameter(1)
  v0 = f32[300] abs(p0)
  v1 = s32[] add(p1, p1)
  ROOT v2 = (f32[300], s32[]) tuple(v0, v1)
}
"""
DEFAULT = Candidate(DEFAULT_SKETCH, {})


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    reference = str(tmp_path / "reference.npz")
    return Job(1, "measure", "k", "hlo", HLO, "cpu -threads=1", (DEFAULT,), reference, fill=1e-3)


def test_default_schedule_is_measured_and_its_trace_replays(job: Job) -> None:
    phases: list[str] = []
    harness = Harness(lambda phase: phases.append(phase.name))
    (outcome,) = harness.run(job)
    assert outcome.status == "ok", outcome.note
    assert min(outcome.runs) > 0 and outcome.error < 1e-5
    assert phases == ["load", "wait", "build", *["run"] * 3, "wait", "run", "wait", "run"]
    again = replace(job, candidates=(Candidate("by trace", {}, outcome.trace),))
    assert harness.run(again)[0].trace == outcome.trace


def test_reference_is_computed_once_and_shared(job: Job) -> None:
    Harness(lambda phase: None).run(job)
    stamp = Path(job.reference).stat().st_mtime_ns
    (outcome,) = Harness(lambda phase: None).run(job)
    assert outcome.status == "ok"
    assert Path(job.reference).stat().st_mtime_ns == stamp


def test_wrong_result_is_rejected_before_it_is_timed(job: Job) -> None:
    Harness(lambda phase: None).run(job)
    with np.load(job.reference) as file:
        kept = dict(file)
    kept["ordinary values 0 value"] = np.zeros_like(kept["ordinary values 0 value"])
    np.savez(job.reference, **kept)
    (outcome,) = Harness(lambda phase: None).run(job)
    assert (outcome.status, outcome.runs) == ("wrong", ())
    assert "differs in 100.00% of the elements" in outcome.note
    assert "(ordinary values)" in outcome.note
    assert outcome.trace is not None


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        (Candidate("flying@9", {}), "this version has no sketch flying@9"),
        (Candidate("x", {}, [["split", [], []]]), ""),
        (Candidate("x", {}, [["no such primitive", [], []]]), ""),
    ],
)
def test_schedules_that_do_not_apply_are_invalid(job: Job, candidate, why: str) -> None:
    (outcome,) = Harness(lambda phase: None).run(replace(job, candidates=(candidate,)))
    assert outcome.status == "invalid"
    assert why in outcome.note


def test_text_that_cannot_be_compiled_fails_to_build(job: Job) -> None:
    (outcome,) = Harness(lambda phase: None).run(replace(job, text="HloModule broken"))
    assert outcome.status == "build" and outcome.note


def test_scalars_tuples_and_integers_are_checked_too(job: Job) -> None:
    (outcome,) = Harness(lambda phase: None).run(replace(job, key="s", text=SCALAR))
    assert outcome.status == "ok", outcome.note


def test_race_times_every_candidate_equally_often(job: Job) -> None:
    race = replace(job, kind="race", candidates=(DEFAULT, Candidate("no@1", {}), DEFAULT))
    first, missing, second = Harness(lambda phase: None).run(race)
    assert len(first.runs) == len(second.runs) > 5
    assert missing.status == "invalid"


class Machine:
    """A clock and a kernel that takes a known time, on a machine that may slow down."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds, self.slow = 0.0, seconds, 1.0

    def call(self, times: int) -> None:
        self.now += times * self.seconds * self.slow

    def clock(self) -> float:
        return self.now


def test_hopeless_candidates_get_three_samples_and_good_ones_more() -> None:
    m = Machine(1e-5)
    assert time_call(m.call, m.clock, incumbent=1e-6, fill=1.0) == pytest.approx([1e-5] * 3)
    assert len(time_call(m.call, m.clock, incumbent=0.9e-5, fill=1.0)) == MOST
    assert len(time_call(m.call, m.clock, incumbent=0.0, fill=1e-9)) == 3


def test_samples_are_long_enough_to_be_read_off_the_clock() -> None:
    for seconds in (1e-7, 1e-5, 1e-2):
        m = Machine(seconds)
        assert repeats(m.call, m.clock) * seconds >= SAMPLE


def test_a_race_gives_everyone_the_same_number_of_turns() -> None:
    m = Machine(1e-4)
    runs = race({0: m.call, 3: m.call}, m.clock, 0.01)
    assert {n: len(r) for n, r in runs.items()} == {0: ROUNDS, 3: ROUNDS}


def test_yardstick_tells_a_slow_machine_from_a_slow_kernel() -> None:
    m, stick = Machine(1e-4), Yardstick()
    assert stick.drift(m.clock) == 1.0, "nothing to compare with yet"
    stick.offer(m.call, 1e-4)
    assert stick.drift(m.clock) == 1.0
    m.slow = 2.5
    assert stick.drift(m.clock) == pytest.approx(2.5)
    m.slow = 60.0
    assert stick.drift(m.clock) == BURST, "an interruption is no slow machine"
    stick.offer(m.call, 3e-4)
    assert stick.seconds == pytest.approx(1e-4), "a slower kernel is no yardstick"
    m.slow = 0.5
    assert stick.drift(m.clock) == 1.0
    m.slow = 1.0
    assert stick.drift(m.clock) == pytest.approx(2.0), "the fast minute counts"


def test_nan_and_infinity_have_to_stand_where_they_should() -> None:
    a = np.array([1.0, np.nan, np.inf, 2.0])
    assert relative_error(a, a) == 0
    for bad in ([1, 0, np.inf, 2], [1, np.nan, -np.inf, 2], [np.nan, np.nan, np.inf, 2]):
        assert relative_error(np.array(bad), a) == np.inf


def test_arguments_are_the_same_for_the_same_seed() -> None:
    program = Program("hlo", HLO)
    for a, b in zip(program.arguments(3), program.arguments(3), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(program.arguments(3)[0], program.arguments(4)[0])
