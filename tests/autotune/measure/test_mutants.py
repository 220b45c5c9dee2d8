"""Planted faults never get past the check; ``judged.py`` by hand plants as many as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("judged.py")
COUNT = os.environ.get("NESTWRIGHT_MUTANTS", "4")


def run(*options: str) -> str:
    command = [sys.executable, str(SCRIPT), "--seed", "7", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_wrong_mutant_is_accepted() -> None:
    assert f"'rejected, wrong': {COUNT}" in run("--count", COUNT).splitlines()[-1]


def test_a_lost_barrier_is_found_by_the_simulator() -> None:
    kind = ("--kinds", "lost barrier", "--target", "cuda-sim -arch=sm_90")
    assert "'rejected, wrong': 3" in run("--count", "3", *kind).splitlines()[-1]
