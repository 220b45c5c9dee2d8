"""Bounded runs of `benchmarks/fuzz/main.py`: nothing wrong, nothing foreign, no crash.

``NESTWRIGHT_FUZZ`` says how many cases of each are drawn instead, ``NESTWRIGHT_SEED`` from where.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import programs, sandbox
from fuzz.formats import FORMATS
from fuzz.guarded import Guarded

from nestwright.ir.hlo.text import parse

pytestmark = pytest.mark.usefixtures("every_pass")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz" / "main.py"
CASES = os.environ.get("NESTWRIGHT_FUZZ", "")
SEED = os.environ.get("NESTWRIGHT_SEED", "1")
FEW = {
    "programs": 26,
    "schedules": 50,
    "hlo": 550,
    "malformed": 550,
    "bytes": 280,
    "built": 28,
    "stablehlo": 550,
    "proto": 550,
    "loop": 84,
    "trace": 64,
    "log": 10,
    "nw": 110,
    "report": 130,
    "npz": 170,
}
"""Cases of a run of the suite: a few seconds each."""


def test_every_format_is_tried() -> None:
    assert set(FEW) == {"programs", "schedules", *FORMATS}


@pytest.mark.parametrize("what", FEW)
def test_nothing_is_found(what: str) -> None:
    command = [sys.executable, SCRIPT, what, "--count", CASES or str(FEW[what]), "--seed", SEED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def test_programs_meet_most_operations() -> None:
    met: set[str] = set()
    for number in range(300):
        module = parse(programs.draw(0, number).text)
        met |= {i.opcode for c in module.computations for i in c.instructions}
    assert len(met) >= 100, sorted(met)


@pytest.mark.parametrize(
    ("what", "seed", "number"), [("programs", 4451, 370), ("trace", 90213, 1555)]
)
def test_cases_on_which_a_campaign_itself_failed(what: str, seed: int, number: int) -> None:
    """A program of which no step fitted; a trace that asks for 2**31 iterations of a loop."""
    if what == "programs":
        assert programs.judge(programs.draw(seed, number), number) == "right"
    else:
        assert not FORMATS[what]().case(seed, number).startswith("BAD")


def test_a_program_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "HloModule m\nENTRY e { a = f32[3] parameter(0)  ROOT r = f32[3] add(a, a) }"
    drawn = programs.draw(0, 1)
    program = programs.Program(text, (drawn.arguments[0][:0],), True)
    import numpy as np

    argument = np.arange(3, dtype=np.float32)
    monkeypatch.setattr(programs, "evaluate", lambda *_: argument * 2 + 1)
    told = programs.judge(programs.Program(text, (argument,), program.exact))
    assert told.startswith("BAD wrong: result 0 is")


def test_a_crash_costs_one_case() -> None:
    def case(number: int) -> str:
        faulthandler.disable()  # the crash is wanted; pytest would print where it was
        if number == 3:
            os.kill(os.getpid(), 11)
        if number == 5:
            raise ValueError("five")
        return "right"

    told = sandbox.run(case, range(8), jobs=2, batch=4)
    assert told.counts == {"right": 6, "BAD death by SIGSEGV": 1, "BAD ValueError": 1}
    assert [n for n, _ in told.findings] == [3, 5]


@pytest.mark.parametrize("at_end", [True, False])
def test_a_byte_past_guarded_memory_kills(at_end: bool) -> None:
    import ctypes

    import numpy as np

    def case(number: int) -> str:
        faulthandler.disable()  # as above
        one = Guarded((5,), np.dtype(np.uint8), at_end)
        ctypes.memset(one.array.ctypes.data + number, 1, 1)
        return "right" if one.intact else "left"

    told = sandbox.run(case, range(-1, 6), batch=1)
    last, inside = (5, "left") if at_end else (-1, "left")
    assert told.findings == [(last, "BAD death by SIGSEGV")]
    assert told.counts == {"right": 5, inside: 1, "BAD death by SIGSEGV": 1}
