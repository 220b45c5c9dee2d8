"""The judges of the campaigns find what they are for: each is shown a fault and has to say so."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from fuzz import main, programs, sandbox, schedules, sketches

from nestwright.autotune.tasks.extract import extract
from nestwright.codegen.driver import parallel
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.target import Target

DOUBLED = "HloModule m\nENTRY e { a = f32[3] parameter(0)  ROOT r = f32[3] add(a, a) }"
X = np.arange(3, dtype=np.float32)


def overwriting(x: np.ndarray, out: np.ndarray) -> None:
    out[:] = x * 2
    x[0] = 7


def leaving(x: np.ndarray, out: np.ndarray) -> None:
    out[:] = x * 2
    ctypes.memset(out.ctypes.data - 1, 0, 1)


def forgetting(x: np.ndarray, out: np.ndarray) -> None:
    out[:2] = x[:2] * 2


def rounding(x: np.ndarray, out: np.ndarray) -> None:
    out[:] = (x * 2).astype(np.float16) * np.float32(1.001)


@pytest.mark.parametrize(
    ("fault", "exact", "told"),
    [
        (overwriting, True, "argument 0 was overwritten"),
        (leaving, True, "array 1 was left"),
        (forgetting, True, "result 0 is"),
        (rounding, False, "is off by"),
    ],
)
def test_a_faulty_program_is_told(
    fault: Callable[[np.ndarray, np.ndarray], None],
    exact: bool,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(*_: object) -> Callable[..., None]:
        def exe(x: np.ndarray, out: np.ndarray) -> None:
            fault(x, out)

        exe.bundle = SimpleNamespace(target=SimpleNamespace(tf32=False))
        return exe

    program = programs.Program(DOUBLED, (X,), exact)
    assert programs.judge(program) == "right"
    monkeypatch.setattr(programs, "build", build)
    verdict = programs.judge(program)
    assert verdict.startswith("BAD wrong: ") and told in verdict


def test_a_wrong_schedule_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    func = schedules.PROGRAMS[0]()
    inputs = [np.ones(b.shape, np.float32) for b in func.params[:-1]]
    (want,) = run(func, inputs)
    for change, told in ((0, "right"), (1, "BAD wrong: output 0 is")):
        found = func, inputs, [want + np.float32(change)]
        monkeypatch.setattr(schedules, "_loops", lambda _, found=found: found)
        monkeypatch.setattr(schedules, "_group", lambda *_, found=found: found)
        verdicts = [schedules.judge(1, n) for n in range(3)]
        assert any(v.startswith(told) for v in verdicts), verdicts


def test_wrong_results_of_a_sketch_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.parse("cpu -threads=1")
    (task,) = extract(optimize(parse(DOUBLED)), target)
    rng = schedules.random.Random(0)
    assert sketches._task(task, target, rng) == "right"
    monkeypatch.setattr(sketches, "leaves", lambda found: [found + np.float32(0.5)])
    assert sketches._task(task, target, rng).startswith("BAD wrong: ")


def test_cases_that_take_too_much_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 0.05)

    def case(number: int) -> str:
        if number == 1:
            while True:
                pass
        if number == 2:
            bytearray(sandbox.MEMORY)
        return "right"

    told = sandbox.run(case, range(4))
    assert told.counts == {"right": 2, "BAD TimeoutError": 1, "BAD MemoryError": 1}


def test_a_child_without_progress_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    child = sandbox.Child(lambda _: str(signal.pause()), [7])
    began = time.monotonic()
    monkeypatch.setattr(sandbox.time, "monotonic", lambda: began)
    child.hangs()  # from here on, nothing happens
    assert not child.hangs()
    monkeypatch.setattr(sandbox.time, "monotonic", lambda: began + sandbox.WAIT + 1)
    assert child.hangs()
    told = sandbox.Tally()
    assert child.finish(told, killed=True) == ()
    assert told.findings == [(7, "BAD hang")]


@pytest.mark.parametrize(("outcome", "status"), [("right", 0), ("BAD wrong: 3", 1)])
def test_the_exit_status_says_if_anything_was_found(
    outcome: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = sandbox.Tally()
    told.add(0, outcome)
    monkeypatch.setattr(sandbox, "run", lambda *_: told)
    monkeypatch.setattr(sys, "argv", ["main.py", "hlo", "--count", "1"])
    monkeypatch.setenv("NESTWRIGHT_CACHE", "off")
    monkeypatch.setattr(parallel, "JOBS_PER_HELPER", parallel.JOBS_PER_HELPER)
    assert main.main() == status
