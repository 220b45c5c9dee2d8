"""Candidates measured on a GPU, over the stand-in for its driver: checked, timed, or given up."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure import device as measured
from nestwright.autotune.measure.check import RUNS
from nestwright.autotune.measure.harness import Harness
from nestwright.autotune.measure.protocol import Candidate, Job
from nestwright.autotune.measure.reference import make_reference
from nestwright.autotune.measure.worker import Worker
from nestwright.autotune.tasks.programs import KERNEL, Program
from nestwright.codegen.driver.kernel import compile_func, compile_object
from nestwright.codegen.runtime.packing import packers
from nestwright.codegen.targets.cuda import ptxas
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate

TEXT = """HloModule task
ENTRY main {
  x = f32[64,100] parameter(0)
  y = f32[64,100] parameter(1)
  ROOT z = f32[64,100] multiply(x, y)
}
"""
DEFAULT = Candidate(DEFAULT_SKETCH, {})


@pytest.fixture
def harness(fake, tmp_path: Path, monkeypatch) -> Harness:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))
    native = compile_func(Program("hlo", TEXT).func, Target.parse("cpu"))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(native.loaded.library.address(KERNEL))
    function.words, function.library = 3, native  # type: ignore[attr-defined]
    fake.kernels[KERNEL] = function
    return Harness(lambda phase: None)


def job(tmp_path: Path, kind: str = "measure", *candidates: Candidate) -> Job:
    chosen = candidates or (DEFAULT,)
    reference = str(tmp_path / "reference.npz")
    return Job(1, kind, "task", "hlo", TEXT, "cuda -arch=sm_90", chosen, reference)


def test_a_candidate_is_checked_and_timed_by_events(harness, fake, tmp_path: Path) -> None:
    (outcome,) = harness.run(job(tmp_path))
    assert outcome.status == "ok" and outcome.runs and outcome.trace
    assert fake.count()["cuGraphLaunch"] or fake.count()["cuLaunchKernel"] > 3
    assert fake.count()["cuMemsetD8Async"] > 9, "what a kernel does not write must show"
    places = {words[2] for _, _, words in fake.launched}
    assert len(places) > 4, "sets of buffers take turns"
    if ptxas.find() is not None:
        [registers] = outcome.facts["registers"]
        assert 8 <= registers <= 255 and outcome.facts["spills"] == [0]


def test_a_wrong_result_is_told_and_not_timed(harness, fake, tmp_path: Path) -> None:
    fake.kernels[KERNEL] = None
    (outcome,) = harness.run(job(tmp_path))
    assert outcome.status == "wrong" and "differs" in outcome.note and not outcome.runs


Words = Callable[[int, int, int], None]


def spoiled(fake, spoil: Words) -> None:
    """The fake's kernel, followed by ``spoil`` on the addresses that it got."""
    real = fake.kernels[KERNEL]

    def run(x: int, y: int, z: int) -> None:
        real(x, y, z)
        spoil(x, y, z)

    run.words = 3  # type: ignore[attr-defined]
    fake.kernels[KERNEL] = run


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda x, y, z: ctypes.memset(y + 4 * 6399, 1, 1), "it overwrites input 1"),
        (lambda x, y, z: ctypes.memset(z + 4 * 6400, 1, 1), "it writes outside parameter 2"),
        (lambda x, y, z: ctypes.memset(x - 1, 1, 1), "it writes outside parameter 0"),
        (lambda x, y, z: ctypes.memset(z + 4 * 6399, 0xFF, 4), "nan instead of"),
    ],
)
def test_damage_is_found(harness, fake, tmp_path: Path, spoil: Words, told: str) -> None:
    spoiled(fake, spoil)
    (outcome,) = harness.run(job(tmp_path))
    assert outcome.status == "wrong" and told in outcome.note


def test_a_fault_in_a_race_is_its_candidates(harness, fake, tmp_path: Path) -> None:
    """The second of three breaks the device: what is known of the others is lost, not bad."""
    real, runs = fake.kernels[KERNEL], 0

    def faulty(*words: int) -> None:
        nonlocal runs
        runs += 1
        if runs == 4:
            fake.fault()
        real(*words)

    faulty.words = real.words  # type: ignore[attr-defined]
    fake.kernels[KERNEL] = faulty
    outcomes = harness.run(job(tmp_path, "race", DEFAULT, DEFAULT, DEFAULT))
    assert [o.status for o in outcomes] == ["lost", "crash", "lost"]
    assert [o.fault for o in outcomes] == [False, True, False]


def test_a_race_times_in_turns(harness, fake, tmp_path: Path) -> None:
    outcomes = harness.run(job(tmp_path, "race", DEFAULT, DEFAULT))
    assert [o.status for o in outcomes] == ["ok", "ok"]


def test_after_a_fault_the_child_is_of_no_more_use(harness, fake, tmp_path: Path) -> None:
    real = fake.kernels[KERNEL]

    def faulty(*words: int) -> None:
        fake.fault()

    faulty.words = real.words  # type: ignore[attr-defined]
    fake.kernels[KERNEL] = faulty
    (outcome,) = harness.run(job(tmp_path))
    assert outcome.status == "crash" and outcome.fault and "ILLEGAL_ADDRESS" in outcome.note


def test_what_spills_is_not_timed(harness, fake, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(measured, "SPILLED", -1)
    (outcome,) = harness.run(job(tmp_path))
    assert outcome.status == "build" and "registers ran out" in outcome.note
    assert not fake.launched


def test_what_the_compiler_tells_is_told_without_a_run(harness, fake, tmp_path: Path) -> None:
    if ptxas.find() is None:
        pytest.skip("no ptxas here")
    (outcome,) = harness.run(job(tmp_path, "compile"))
    assert outcome.status == "ok" and not outcome.runs and not fake.launched
    assert set(outcome.facts) == {"registers", "spills", "shared", "threads"}


FROZEN = """HloModule frozen
ENTRY main {
  x = f16[33,101] parameter(0)
  w = f16[101,67] parameter(1), frozen=true
  ROOT z = f16[33,67] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_constant_is_packed_for_a_kernel_that_takes_it_so(harness, fake, tmp_path: Path) -> None:
    target, program = Target.parse("cuda -arch=sm_90"), Program("hlo", FROZEN)
    sketch = next(s for s in generate(program.func, target) if "pack" in s.decisions)
    choices = next(c for c in sketch.points() if c["pack"] and c["split"] == 1)
    schedule = Schedule(program.func)
    sketch.apply(schedule, choices)
    [pack] = compile_object(schedule.func, target).packs
    first = make_reference(program, target, 0)[RUNS[0][0]][0]
    wanted = packers([pack])[1].pack(first.arguments[1])
    found = []

    def look(x: int, w: int, z: int) -> None:
        found.append(ctypes.string_at(w, pack.size))

    look.words = 3  # type: ignore[attr-defined]
    fake.kernels[KERNEL] = look
    asked = job(tmp_path, "measure", Candidate(sketch.name, choices))
    (outcome,) = harness.run(replace(asked, text=FROZEN))
    assert outcome.status == "wrong", "nothing computed the product"
    assert found == [wanted.tobytes()]


CHILD = """
import json, os, sys
for line in sys.stdin:
    number = json.loads(line)["number"]
    outcome = {"status": "crash", "runs": [], "note": str(os.getpid()), "fault": number == 1}
    print(json.dumps({"number": number, "outcomes": [outcome]}), flush=True)
"""


def test_a_fresh_child_does_the_job_after_a_fault(tmp_path: Path) -> None:
    worker = Worker((sys.executable, "-c", CHILD))
    try:
        pids = []
        for number in (1, 2, 3):
            worker.submit(replace(job(tmp_path), number=number))
            while (done := worker.receive()) is None:
                pass
            pids.append(done[1][0].note)
    finally:
        worker.close()
    assert pids[0] != pids[1] == pids[2]
