"""Real kernels in the harness: timed when right, rejected by name when not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nestwright.autotune.log.records import DEFAULT_SKETCH, typical
from nestwright.autotune.measure import harness
from nestwright.autotune.measure.harness import Harness
from nestwright.autotune.measure.host.lock import MachineLock
from nestwright.autotune.measure.protocol import Candidate, Job, Phase
from nestwright.autotune.measure.timing import (
    BURST,
    CALIBRATED,
    CHECK_EVERY,
    DRIFT,
    FIRST,
    MOST,
    ROUNDS,
    SAMPLE,
    SINGLE,
    Call,
    Turns,
    Yardstick,
    read_off,
    repeats,
    time_call,
)
from nestwright.autotune.tasks.programs import Program
from nestwright.codegen.driver.build import PreparedModule
from nestwright.ir.accuracy import relative_error
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

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
    start = ["load", "wait", "load", "wait", "build"]
    assert phases == [*start, *["run"] * 3, "wait", "run", "wait", "run"]
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


def race(calls: list[Call], m: Machine, fill: float) -> list[list[float]]:
    turns = Turns(calls, m.clock, fill / ROUNDS)
    for _ in range(ROUNDS):
        turns.round()
    return turns.runs


def test_a_race_gives_everyone_the_same_number_of_turns() -> None:
    m = Machine(1e-4)
    runs = race([m.call, m.call], m, 0.01)
    assert [len(r) for r in runs] == [ROUNDS, ROUNDS]


def test_yardstick_tells_a_slow_machine_from_a_slow_kernel() -> None:
    m, stick = Machine(1e-4), Yardstick()
    assert stick.drift(m.clock) == 1.0, "nothing to compare with yet"
    stick.offer(m.call, [1e-4])
    assert stick.drift(m.clock) == 1.0
    m.slow = 2.5
    assert stick.drift(m.clock) == pytest.approx(2.5)
    m.slow = 60.0
    assert stick.drift(m.clock) == BURST, "an interruption is not a slow machine"
    stick.offer(m.call, [3e-4])
    assert stick.seconds == pytest.approx(1e-4), "a slower kernel is not a yardstick"
    m.slow = 0.5
    assert stick.drift(m.clock) == 1.0
    m.slow = 1.0
    assert stick.drift(m.clock) == pytest.approx(2.0), "the fast minute counts"


class Sleeper(Machine):
    """A kernel of two threads whose second one sleeps: the first calls after a pause are slow."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.woken = -1.0

    def call(self, times: int) -> None:
        if self.now - self.woken > 1e-3:
            self.now += 9e-4
        self.now += times * self.seconds
        self.woken = self.now


def test_threads_that_slept_are_awake_when_code_is_timed() -> None:
    m = Sleeper(7e-6)
    assert time_call(m.call, m.clock, 0.0, 0.05) == pytest.approx([7e-6] * MOST)

    def serial(times: int) -> None:
        m.now += times * 9e-6

    found = race([m.call, serial], m, 0.04)
    assert found[0] == pytest.approx([7e-6] * ROUNDS)
    assert found[1] == pytest.approx([9e-6] * ROUNDS)


def test_one_noisy_drift_does_not_make_a_yardstick_of_its_own() -> None:
    m, stick = Machine(1e-4), Yardstick()
    for slow in (1.0, 2.5, 1.0, 2.5, 1.0, 1.0):
        m.slow = slow
        reading = read_off(m.call, m.clock, stick, 0.0, 1e-3, 0.0)
        assert reading is not None
        runs, drift = reading
        stick.offer(m.call, runs)
        assert runs == pytest.approx([1e-4 * slow] * len(runs))
        assert drift == pytest.approx(slow), "every later trial would drift by ever more"
        assert stick.seconds == pytest.approx(1e-4)


def test_a_slow_drift_is_divided_out_and_never_makes_a_cost_too_small() -> None:
    """The clock rate falls by 1 % with every trial, to half; then it rises in one step."""
    m, stick = Machine(1e-4), Yardstick()
    costs = []
    for trial in range(60):
        m.slow = min(2.0, 1.0 + 0.01 * trial * 2) if trial < 55 else 1.0
        runs, drift = read_off(m.call, m.clock, stick, 0.0, 1e-3, 0.0) or ((), 0.0)
        stick.offer(m.call, runs)
        costs.append(typical(runs) / drift)
    assert min(costs) == pytest.approx(1e-4), "never faster than it is"
    assert max(costs) <= DRIFT * 1e-4 + 1e-9, "and never slower by more than noise"


def test_a_step_in_the_clock_rate_between_two_kernels_is_not_the_second_ones_fault() -> None:
    m, stick = Machine(1e-4), Yardstick()
    for trial, slow in enumerate((1.0, 1.0, 1.6, 1.6, 1.0, 1.6)):
        m.slow = slow
        runs, drift = read_off(m.call, m.clock, stick, 0.0, 1e-3, 0.0) or ((), 0.0)
        stick.offer(m.call, runs)
        assert typical(runs) / drift == pytest.approx(1e-4), trial


def test_a_slowdown_before_the_runs_alone_is_not_divided_out() -> None:
    """It was an interruption: that of the runs is what both of the yardstick's readings show."""
    m, drifts = Machine(1e-4), iter((1.5, 1.0, 1.5, 1.4))

    class Told(Yardstick):
        def drift(self, clock: object, least: float = SAMPLE) -> float:
            return next(drifts)

    read = [read_off(m.call, m.clock, Told(), 0.0, 1e-3, 0.0) for _ in range(2)]
    assert [found and found[1] for found in read] == [1.0, 1.4]


def test_a_core_that_stalls_in_some_samples_does_not_count() -> None:
    m = Machine(1e-4)
    turn = 0

    def call(times: int) -> None:
        nonlocal turn
        turn += 1
        m.now += times * m.seconds + (5e-3 if turn % 3 == 0 else 0.0)

    assert typical(time_call(call, m.clock, 0.0, 0.05)) == pytest.approx(1e-4)
    assert typical(time_call(call, m.clock, 0.0, 0.05, 0.0)) == pytest.approx(1e-4)


def test_calls_that_are_prepared_are_timed_one_by_one() -> None:
    m, counted = Machine(7e-6), []

    def call(times: int) -> None:
        counted.append(times)
        m.call(times)

    runs = time_call(call, m.clock, 0.0, 0.05, 0.0)
    assert runs == pytest.approx([7e-6] * MOST)
    assert counted == [1, FIRST, *[1] * MOST], "some are not timed, and none is repeated"
    assert len(time_call(call, m.clock, 1e-6, 0.05, 0.0)) == SINGLE
    turns = Turns([call, call], m.clock, 1.0, 0.0)
    counted.clear()
    turns.round()
    assert counted == [1] * (2 * 2 * (SINGLE // 2))


def test_no_correction_makes_a_kernel_faster_than_the_machine() -> None:
    m, stick = Machine(1e-4), Yardstick()
    stick.offer(m.call, [1e-4])
    m.slow = 2.5
    runs, drift = read_off(m.call, m.clock, stick, 0.0, 1e-3, 1e-4) or ((), 0.0)
    assert typical(runs) / drift == pytest.approx(1e-4)
    floor = 2e-4  # the machine cannot do it in less
    runs, drift = read_off(m.call, m.clock, stick, 0.0, 1e-3, floor) or ((), 0.0)
    assert typical(runs) / drift == pytest.approx(floor / CALIBRATED)
    for n in range(1, 200):
        floor = 2e-4 * n / 191
        runs, drift = read_off(m.call, m.clock, stick, 0.0, 1e-3, floor) or ((), 0.0)
        assert typical(runs) / drift >= floor / CALIBRATED, "not by a rounding either"


def test_a_reading_that_cannot_be_is_taken_again_and_then_refused() -> None:
    m, stick = Machine(1e-6), Yardstick()
    assert read_off(m.call, m.clock, stick, 0.0, 1e-3, 1e-4) is None
    reads: list[float] = []

    def clock() -> float:
        reads.append(m.now)
        m.seconds = 1e-4 if len(reads) > 14 else 1e-6
        return m.now

    runs, drift = read_off(m.call, clock, stick, 0.0, 1e-3, 1e-4) or ((), 0.0)
    assert (typical(runs), drift) == (pytest.approx(1e-4), 1.0)


def test_a_time_below_the_least_possible_does_not_get_into_the_log(job: Job) -> None:
    (outcome,) = Harness(lambda phase: None).run(replace(job, floor=10.0))
    assert (outcome.status, outcome.runs) == ("invalid", ())
    assert "below 10 s, the least that this machine can take" in outcome.note


def test_programs_are_made_ready_while_nothing_is_timed(job: Job, monkeypatch) -> None:
    held: list[str] = []
    building = MachineLock.building

    @contextmanager
    def watched(self: MachineLock) -> Iterator[None]:
        with building(self):
            held.append("building")
            yield
            held.remove("building")

    seen: list[tuple[str, bool]] = []

    def load_reference(*args):
        seen.append(("interpreter", "building" in held))
        return real(*args)

    real = harness.load_reference
    monkeypatch.setattr(MachineLock, "building", watched)
    monkeypatch.setattr(harness, "load_reference", load_reference)
    assert Harness(lambda phase: None).run(job)[0].status == "ok"
    assert seen == [("interpreter", True)]


def test_whole_models_are_raced_from_their_files(job: Job, tmp_path: Path) -> None:
    target = Target.parse("cpu -threads=1")
    builder = PreparedModule(parse(HLO), target)
    exe = builder.build({})
    for name in ("a.nw", "b.nw"):
        exe.save(tmp_path / name)
    candidates = tuple(
        Candidate(DEFAULT_SKETCH, {}, bundle=str(tmp_path / name)) for name in ("a.nw", "b.nw")
    )
    phases: list[Phase] = []
    asked = replace(job, kind="models", text="", candidates=candidates, fill=0.02)
    a, b = Harness(phases.append).run(asked)
    assert a.status == b.status == "ok"
    assert len(a.runs) == len(b.runs) >= CHECK_EVERY and min(a.runs + b.runs) > 0
    assert [p.name for p in phases] == ["load", "wait", "load", "run", "wait", "run"]
    missing = replace(asked, candidates=(candidates[0], Candidate("x", {}, bundle="no.nw")))
    assert [o.status for o in Harness(phases.append).run(missing)] == ["build", "build"]


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
