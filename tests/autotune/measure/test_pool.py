"""Measuring children that crash, hang, babble or run out of memory: each is survived and named."""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nestwright.autotune.measure import pool as pool_module
from nestwright.autotune.measure.child import limit_memory
from nestwright.autotune.measure.host.lock import MachineLock, lock_path
from nestwright.autotune.measure.pool import Pool, slots
from nestwright.autotune.measure.protocol import (
    Candidate,
    Job,
    Limits,
    Outcome,
    Phase,
    Underway,
    decode_job,
    decode_reply,
    encode_job,
    encode_outcomes,
    encode_phase,
)
from nestwright.ir.errors import MeasureError

CHILD = """
import os, signal, sys, time
from nestwright.autotune.measure.protocol import *

def say(data):
    os.write(1, data)

for line in sys.stdin.buffer:
    job = decode_job(line)
    say(encode_phase(Phase("build", 0)))
    match job.candidates[0].sketch:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            sys.exit(3)
        case "no such candidate":
            say(encode_phase(Phase("run", len(job.candidates))))
            sys.exit(3)
        case "fault":
            say(encode_outcomes(job.number, (Outcome("crash", fault=True, note=str(os.getpid())),)))
            continue
        case "memory":
            sys.exit(OUT_OF_MEMORY)
        case "hang":
            say(encode_phase(Phase("run", 0, "on trial")))
            while True:
                time.sleep(1)
        case "mute":
            os.close(1)
            time.sleep(60)
        case "babble":
            say(b"hello\\n")
            time.sleep(60)
        case "wait":
            say(encode_phase(Phase("wait")))
            time.sleep(0.6)
            say(encode_phase(Phase("run", 0, "on trial")))
    say(encode_outcomes(job.number, (Outcome("ok", (1e-6,), note=str(os.getpid())),)))
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return sys.executable, str(script)


def job(number: int, sketch: str) -> Job:
    limits = Limits(load=30, build=30, wait=30, run=0.4)
    candidate = Candidate(sketch, {"rows": 2})
    return Job(number, "measure", "k", "hlo", "text", "cpu", (candidate,), "ref", limits=limits)


def run(pool: Pool, *sketches: str) -> list[Outcome]:
    jobs = [job(n, s) for n, s in enumerate(sketches)]
    done = {j.number: outcomes[0] for j, outcomes in pool.run(jobs)}
    return [done[n] for n in range(len(sketches))]


def test_a_child_is_kept_until_it_dies_and_then_replaced(command) -> None:
    with Pool(workers=1, command=command) as pool:
        outcomes = run(pool, "ok", "ok", "crash", "ok", "exit", "ok")
        assert [o.status for o in outcomes] == ["ok", "ok", "crash", "ok", "crash", "ok"]
        assert outcomes[2].note == "SIGSEGV in build"
        assert outcomes[4].note == "exit status 3 in build"
        children = [outcomes[n].note for n in (0, 1, 3, 5)]
        assert children[0] == children[1] and len(set(children)) == 3


def test_a_child_that_reports_a_fault_serves_no_other_job(command) -> None:
    with Pool(workers=1, command=command) as pool:
        fault, ok = run(pool, "fault", "ok")
    assert (fault.status, ok.status) == ("crash", "ok") and fault.note != ok.note


def test_a_phase_of_no_candidate_is_the_whole_jobs(command) -> None:
    with Pool(workers=1, command=command) as pool:
        beyond, ok = run(pool, "no such candidate", "ok")
    assert (beyond.status, ok.status) == ("crash", "ok")


def test_hanging_child_is_killed_and_the_rest_goes_on(command) -> None:
    with Pool(workers=2, command=command) as pool:
        outcomes = run(pool, "hang", "ok", "hang", "ok", "ok")
        assert [o.status for o in outcomes] == ["timeout", "ok", "timeout", "ok", "ok"]
        assert outcomes[0].note == "killed after 0.4 s of run on trial"


def test_a_child_that_reads_no_job_is_killed() -> None:
    """A job may be more than a pipe takes: whoever writes it must not wait for the child."""
    begun = encode_phase(Phase("load"))
    idle = sys.executable, "-c", f"import os, time; os.write(1, {begun!r}); time.sleep(60)"
    large = replace(job(0, "none"), text="x" * (1 << 20), limits=Limits(load=0.2))
    with Pool(workers=1, command=idle) as pool:
        ((_, (found,)),) = pool.run([large])
    assert found.status == "timeout" and "load" in found.note


def test_children_that_cannot_start_are_no_candidates_fault(tmp_path: Path) -> None:
    """They end the run before anything is logged: a second start in succession has to succeed."""
    starting = encode_phase(Phase("start"))
    dies = f"import os, sys; os.write(1, {starting!r}); sys.exit('no room for it')"
    with (
        Pool(workers=1, command=(sys.executable, "-c", dies)) as pool,
        pytest.raises(MeasureError, match="cannot start: exit status 1 in start: no room for it"),
    ):
        run(pool, "ok")
    once = f"import os\nif not os.path.exists('tried'): open('tried', 'w'); os._exit(3)\n{CHILD}"
    script = tmp_path / "once.py"
    script.write_text(once.replace("'tried'", repr(str(tmp_path / "tried"))))
    with Pool(workers=1, command=(sys.executable, str(script))) as pool:
        assert [o.status for o in run(pool, "ok", "crash", "ok")] == ["ok", "crash", "ok"]
    slow = sys.executable, "-c", "import time; time.sleep(60)"
    hurried = replace(job(0, "none"), limits=Limits(start=0.05))
    with Pool(workers=1, command=slow) as pool, pytest.raises(MeasureError, match="s of start"):
        list(pool.run([hurried]))


@pytest.mark.parametrize(
    ("asked", "hard", "given"),
    [(8, 5, 5), (3, 5, 3), (0, 5, 5), (8, -1, 8), (0, -1, -1)],
)
def test_memory_is_limited_as_far_as_the_system_lets_it(
    asked: int, hard: int, given: int, monkeypatch
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append(limit))
    limit_memory(asked)
    assert limits == [(given, hard)]


def test_a_child_that_closes_its_output_and_hangs_is_killed(command, monkeypatch) -> None:
    monkeypatch.setattr("nestwright.autotune.measure.worker.ENDING", 0.1)
    with Pool(workers=1, command=command) as pool:
        mute, ok = run(pool, "mute", "ok")
    assert (mute.status, ok.status) == ("timeout", "ok") and "did not end in build" in mute.note


def test_waiting_for_the_lock_does_not_count_against_a_candidate(command) -> None:
    with Pool(workers=1, command=command) as pool:
        assert run(pool, "wait")[0].status == "ok"


def test_lack_of_memory_and_babble_are_named(command) -> None:
    with Pool(workers=1, command=command) as pool:
        memory, killed, babble, ok = run(pool, "memory", "killed", "babble", "ok")
        assert (memory.status, killed.status, babble.status, ok.status) == (
            "oom",
            "oom",
            "crash",
            "ok",
        )
        assert "not a reply of a measuring child" in babble.note


def test_closing_the_pool_leaves_no_child_behind(command) -> None:
    pool = Pool(workers=1, command=command)
    (outcome,) = run(pool, "ok")
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(outcome.note), 0)


def test_one_thread_kernels_get_a_core_each_and_others_none() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert slots(1, 2) == (cores[0], cores[1 % len(cores)])
    assert slots(2, 2) == (None, None)


def test_messages_round_trip() -> None:
    wanted = job(3, "tiled@1")
    assert decode_job(encode_job(wanted)) == wanted
    outcome = Outcome("ok", (1e-6, 2e-6), [["split", 1]], 1e-7, "", 0.1)
    assert decode_reply(encode_outcomes(3, (outcome,))) == (3, (outcome,))
    phase = Phase("run", 1, "on trial")
    assert decode_reply(encode_phase(phase)) == phase


@pytest.mark.parametrize("line", [b"{}", b"[]", b"nonsense", b'{"phase": "party"}', b"7"])
def test_what_is_no_reply_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode_reply(line)


def test_lock_is_where_the_variable_says(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "here.lock"))
    assert lock_path() == tmp_path / "here.lock"


HOLDER = """
import sys, time
from pathlib import Path
from nestwright.autotune.measure.host.lock import MachineLock
lock = MachineLock(Path(sys.argv[1]))
with getattr(lock, sys.argv[2])():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_builders_share_the_lock_and_a_timed_run_excludes_them(tmp_path: Path) -> None:
    path = tmp_path / "m.lock"
    pipe = subprocess.PIPE
    holders = []
    try:
        for how in ("building", "building", "timing"):
            command = [sys.executable, "-c", HOLDER, str(path), how]
            holders.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            assert bool(_said(holders[-1], 20 if how == "building" else 0.3)) is (how != "timing")
        for builder in holders[:2]:
            builder.kill()
        assert _said(holders[2], 20), "the system frees the lock of a builder that died"
    finally:
        for h in holders:
            h.kill()
            h.communicate()
    lock = MachineLock(path)
    with lock.timing():
        pass
    lock.close()


def test_what_is_under_way_when_time_is_up_has_no_outcome(command, monkeypatch) -> None:
    clock, skipped = time.monotonic, [0.0]
    monkeypatch.setattr(
        pool_module, "time", SimpleNamespace(monotonic=lambda: clock() + skipped[0])
    )
    with Pool(workers=2, command=command) as pool:
        jobs = [job(0, "ok"), replace(job(1, "hang"), limits=Limits(run=1e5)), job(2, "ok")]
        watched: list[str] = []

        def watch(at: Underway) -> None:
            told = [f"{j.number} {phase}" for j, phase in at.jobs]
            watched.extend(told)
            skipped[0] = 1e5 if told == ["1 run"] else 0.0

        done = {j.number: o[0].status for j, o in pool.run(jobs, clock() + 1e4, watch)}
        assert done == {0: "ok", 2: "ok"}
        assert watched[-1] == "1 run", "whoever waits is told for what"
        assert run(pool, "ok")[0].status == "ok", "the pool goes on"


def test_who_waits_is_told_which_strangers_hold_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "m.lock"
    command = [sys.executable, "-c", HOLDER, str(path), "timing"]
    pipe = subprocess.PIPE
    # A child of a child: a process that this one did not start.
    outer = f"import subprocess, sys; sys.exit(subprocess.call({command!r}))"
    holder = subprocess.Popen([sys.executable, "-c", outer], stdin=pipe, stdout=pipe)
    told: list[tuple[int, ...]] = []

    def waiting(strangers: tuple[int, ...]) -> None:
        told.append(strangers)
        assert holder.stdin is not None
        holder.stdin.close()  # that is what it waits for

    try:
        assert _said(holder, 60)
        lock = MachineLock(path, waiting)
        with lock.building():
            assert told, "it was told before it got the lock"
        assert all(pid not in (os.getpid(), holder.pid) for pids in told for pid in pids)
        if Path("/proc/locks").exists():
            assert len(told[0]) == 1
        with lock.timing():
            assert lock.strangers() == ()
        lock.close()
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def _said(process: subprocess.Popen[bytes], seconds: float) -> list[object]:
    return select.select([process.stdout], [], [], seconds)[0]
