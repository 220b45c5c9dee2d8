"""Tuning on machines with less: one core for the process, and processors without AVX-512."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.autotune.api import tune
from nestwright.autotune.log.journal import read
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """HloModule product
ENTRY main {
  x = f32[32,48] parameter(0)
  w = f32[48,40] parameter(1)
  ROOT d = f32[32,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
CALIBRATED = {"NESTWRIGHT_CALIBRATION": "off"}

ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from nestwright.autotune.api import tune
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

assert Target.parse("cpu").threads == 1
found = tune(parse(sys.argv[1]), sys.argv[2], trials=3, log=sys.argv[3])
assert found.trials == 3, found
assert not found.failures, found.failures
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process keeps all its cores")
@pytest.mark.parametrize("spec", ["cpu", "cpu -threads=2"])
def test_one_core_is_enough_even_for_two_threads(spec: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", ONE_CORE, MODEL, spec, str(log)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **CALIBRATED},
    )
    assert done.returncode == 0, done.stderr
    trials = read(log).trials
    assert len(trials) == 3 and all(t.ran for t in trials)
    threads = spec.rpartition("=")[2] if "=" in spec else "1"
    assert {t.device.rpartition("-t")[2] for t in trials} == {threads}


def test_a_processor_without_avx512_is_tuned_with_its_own_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target.parse("cpu -mcpu=haswell -threads=1")
    if not target.is_host:
        pytest.skip("this processor does not run its code")
    monkeypatch.setenv("NESTWRIGHT_CALIBRATION", "off")
    found = tune(parse(MODEL), target, trials=3, log=tmp_path / "log.jsonl")
    assert found.trials >= 1 and not found.failures
    (device,) = read(found.log).devices.values()
    assert device.facts["vector_bits"] == target.vector_bits < 512
