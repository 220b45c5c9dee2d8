"""The climb and its children: whatever a rung does, its line says so and the next one is tried."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gpu.ladder import child as child_module
from gpu.ladder.child import KEPT, Child
from gpu.ladder.outcome import ABSENT, FAILED, OK, SKIPPED, Outcome
from gpu.ladder.report import Report
from gpu.ladder.rung import Rung

SCRIPT = Path(__file__).parent / "rungs_that_misbehave.py"
BENCHMARKS = Path(__file__).parents[6] / "benchmarks"
LONG = 1e4  # seconds: a limit that is never reached
BRIEF = 0.2  # seconds: a limit for what never answers


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS))


def begun(name: str) -> Child:
    return Child(Rung(name, lambda site: "", ""), [sys.executable, str(SCRIPT)])


def result(name: str) -> Outcome:
    return begun(name).result(LONG, LONG)


def test_a_rung_that_is_right_says_what_it_found() -> None:
    found = result("good")
    assert (found.state, found.fact, found.cause) == (OK, "all is well", "")
    assert found.numbers == {"answer": 42}
    assert found.line(3).split() == [
        "3",
        "good",
        "ok",
        f"{found.seconds:.2f}",
        "s",
        "all",
        "is",
        "well",
    ]


@pytest.mark.parametrize(
    ("name", "state", "cause", "log"),
    [
        ("wrong", FAILED, "3 of 4 wrong", "and this is the rest"),
        ("raises", FAILED, "ValueError: what is this?", "more of it"),
        ("skipped", SKIPPED, "there is no such library", ""),
        ("crashes", FAILED, "its process ended by SIGSEGV before it answered", ""),
        ("leaves", FAILED, "its process ended with status 0 before it answered", ""),
        ("exits", FAILED, "its process ended with status 3 before it answered", ""),
        (
            "crashes_after",
            FAILED,
            "it was right (right so far), and then its process ended by SIGSEGV",
            "",
        ),
    ],
)
def test_a_rung_that_is_not_says_how(name: str, state: str, cause: str, log: str) -> None:
    found = result(name)
    assert (found.state, found.cause) == (state, cause)
    assert log in found.log


def test_garbage_goes_to_the_log_and_much_of_it_is_cut() -> None:
    found = result("prints")
    assert (found.state, found.fact) == (OK, "still right")
    assert found.log.endswith("the last words\n") and " bytes ...\n" in found.log
    assert len(found.log) < 2 * KEPT + 100


def test_garbage_on_the_pipe_is_not_taken_for_an_answer() -> None:
    found = result("lies")
    assert (found.state, found.fact) == (OK, "still right")


def test_a_rung_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("MARK", str(mark))
    child = begun("hangs")
    assert child._events.get(timeout=LONG) == {"event": "ready"}
    child.go()
    while not mark.exists() or " " not in mark.read_text():
        time.sleep(0.01)
    found = child.result(BRIEF, BRIEF)
    assert found.state == FAILED and found.cause.startswith("not ready within 0.2 s")
    for number in map(int, mark.read_text().split()):
        until_gone(number)


def until_gone(number: int) -> None:
    """Wait for a process that was killed to be gone, or to be nobody's."""
    while True:
        try:
            stat = Path(f"/proc/{number}/stat").read_text()
        except OSError:
            return
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return
        time.sleep(0.01)


def test_no_answer_in_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    found = begun("hangs").result(LONG, BRIEF)
    assert found.state == FAILED and found.cause.startswith("no answer within 0.2 s")
    found = begun("late").result(BRIEF, LONG)
    assert found.state == FAILED and found.cause.startswith("not ready within 0.2 s")


def test_the_place_of_a_hang_is_what_the_watchdog_wrote_last() -> None:
    child = begun("good")
    child.result(LONG, LONG)
    told = (
        "noise\nTimeout (0:00:18)!\nThread 0x1 (most recent call first):\n"
        '  File "/a/pool.py", line 3 in idle\n\nThread 0x2 (most recent call first):\n'
        '  File "/a/device.py", line 7 in wait\n  File "/a/program.py", line 9 in run\n'
        '  File "/a/more.py", line 1 in <module>\n'
    )
    place = child._place(told)
    assert place == "in wait (/a/device.py:7), called by run (/a/program.py:9)"
    assert child._place("CUDA error\n\n") == "CUDA error"


def test_a_process_that_does_not_end_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "ENDING", BRIEF)
    found = result("stays")
    assert found.state == FAILED
    assert found.cause == (
        "it was right (right so far), and then its process did not end within 0.2 s"
    )


def test_a_child_whose_parent_is_gone_ends() -> None:
    child = begun("good")
    assert child._events.get(timeout=LONG) == {"event": "ready"}
    assert child.process.stdin is not None
    child.process.stdin.close()
    assert child.process.wait(LONG) == 1
    child.kill()


def climbed(folder: Path, *names: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [sys.executable, str(SCRIPT), "--climb", str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    return done, json.loads((folder / "ladder.json").read_text())


def test_the_next_rung_is_tried_and_all_is_written_down(tmp_path: Path) -> None:
    done, data = climbed(tmp_path, "good", "crashes", "skipped", "raises", "lies")
    assert done.returncode == data["status"] == 1, done.stderr
    states = [OK, FAILED, SKIPPED, FAILED, OK]
    assert [r["state"] for r in data["rungs"]] == states and data["arch"] == "sm_90"
    *lines, last = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        [str(n), r["name"], r["state"]] for n, r in enumerate(data["rungs"], 1)
    ]
    assert last.startswith("2 ok, 2 FAILED, 1 skipped in ")
    log = (tmp_path / "ladder.log").read_text()
    assert "ValueError: what is this?\nmore of it" in log
    assert [line[3:] for line in log.splitlines() if line.startswith("== ")] == lines


def test_all_right_but_for_what_was_skipped_is_status_0(tmp_path: Path) -> None:
    done, data = climbed(tmp_path, "good", "skipped")
    assert done.returncode == data["status"] == 0 and not done.stderr


def test_sigterm_ends_the_children_and_is_written_down(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = [sys.executable, str(SCRIPT), "--climb", str(tmp_path), "good", "hangs", "good"]
    env = {**os.environ, "MARK": str(mark)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env) as p:
        while not mark.exists() or " " not in mark.read_text():
            assert p.poll() is None
            time.sleep(0.01)
        p.send_signal(signal.SIGTERM)
        _, told = p.communicate()
    assert p.returncode == 1 and b"ended by SIGTERM" in told
    for number in map(int, mark.read_text().split()):
        until_gone(number)
    data = json.loads((tmp_path / "ladder.json").read_text())
    assert data["interrupted"] == "SIGTERM" and [r["name"] for r in data["rungs"]] == ["good"]


def test_no_gpu_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(tmp_path, {})
    report.begin()
    assert json.loads((tmp_path / "ladder.json").read_text())["status"] is None
    report.add(1, Outcome("driver", ABSENT, cause="TargetError: no driver"))
    assert report.end() == 2
    told = capsys.readouterr().err
    assert told == "gpu/ladder: there is no GPU to climb on: TargetError: no driver\n"
