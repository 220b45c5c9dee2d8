"""Candidates that end their measuring child: each is named, and no other one suffers for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure.pool import Pool
from nestwright.autotune.measure.protocol import Candidate, Job, Limits, Outcome

HLO = """HloModule canonical

ENTRY main {
  p0 = f32[300] parameter(0)
  ROOT v0 = f32[300] abs(p0)
}
"""

CHILD = '''
import ctypes, os, time
from dataclasses import replace
import numpy as np
from nestwright.autotune.measure import child, harness, processor
from nestwright.autotune.measure.protocol import Candidate
from nestwright.autotune.log.records import DEFAULT_SKETCH

BYTES = 1200  # of each parameter


def planted(fault, entry):
    def run(*addresses):
        entry(*addresses)
        match fault:
            case "crash":
                ctypes.string_at(8)
            case "exit":
                os._exit(3)
            case "memory":
                np.ones(1 << 40)
            case "reads behind":
                ctypes.string_at(addresses[1] + BYTES, 4)
            case "reads before":
                ctypes.string_at(addresses[0] - 4, 4)
    return run


class Planted(harness.Harness):
    """Plants the fault that a candidate is named after in the default schedule."""

    def _compile(self, loaded, c):
        default = Candidate(DEFAULT_SKETCH, {})
        built = super()._compile(loaded, default)
        kernel = built.run.kernel
        kernel = replace(kernel, entry=planted(c.sketch, kernel.entry))
        made = processor.NativeRun(kernel, kernel, loaded.machine)
        if c.sketch == "hangs in the race":
            made.call = lambda times: time.sleep(1000)
        return replace(built, run=made)


harness.Harness = Planted
child.main()
'''

FAULTS = {
    "crash": ("crash", "SIGSEGV in run on whole numbers"),
    "exit": ("crash", "exit status 3 in run on whole numbers"),
    "memory": ("oom", "out of memory in run"),
    "reads behind": (
        "crash",
        "SIGSEGV in run on whole numbers in buffers that end at a guard page",
    ),
    "reads before": ("crash", "SIGSEGV in run on ordinary values in buffers that begin behind"),
    "hangs in the race": ("timeout", "killed after 4 s of run in a race"),
}


@pytest.fixture
def pool(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    with Pool(workers=1, command=(sys.executable, str(script))) as made:
        yield made


def race(pool: Pool, tmp_path: Path, *names: str) -> tuple[Outcome, ...]:
    reference = str(tmp_path / "reference.npz")
    candidates = tuple(Candidate(n, {}) for n in names)
    limits = Limits(run=4.0)
    job = Job(
        1,
        "race",
        "k",
        "hlo",
        HLO,
        "cpu -threads=1",
        candidates,
        reference,
        fill=1e-3,
        limits=limits,
    )
    ((done, outcomes),) = pool.run([job])
    assert done == job
    return outcomes


def test_each_fault_is_its_candidates_and_the_others_are_raced(pool: Pool, tmp_path: Path) -> None:
    """The first of a race is the default: a fault there takes nobody along either."""
    first, *others = FAULTS
    names = [first, DEFAULT_SKETCH, *others, "right"]
    outcomes = race(pool, tmp_path, *names)
    for name, outcome in zip(names, outcomes, strict=True):
        if name in FAULTS:
            status, note = FAULTS[name]
            assert (outcome.status, outcome.runs) == (status, ())
            assert outcome.note.startswith(note), outcome.note
        else:
            assert outcome.status == "ok", (name, outcome.note)
            assert len(outcome.runs) == len(outcomes[-1].runs) > 5
