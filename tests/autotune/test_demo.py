"""The demo on a machine that is not its own: two processes beside it take the cores."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
BUSY = "while True:\n    sum(range(10_000))"


@pytest.fixture
def busy() -> Iterator[None]:
    """Two processes that compute all along."""
    with ExitStack() as stack:
        for _ in range(2):
            process = subprocess.Popen([sys.executable, "-c", BUSY])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def test_tuned_is_not_slower_than_default_on_a_busy_machine(busy: None, tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--trials", "20", "--report", str(tmp_path)]
    env = os.environ | {"NESTWRIGHT_MEASURE_LOCK": str(tmp_path / "measure.lock")}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    told = re.search(r"tuned: +([\d.]+)x of the default's speed$", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and told, done.stdout + done.stderr
    assert float(told[1]) >= 0.98
    assert "whole model: " in done.stderr, "it was raced"
    assert (tmp_path / "convnet.html").exists()
