"""Sweeps of small models: cells in order, checks, problems that do not end them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestwright.autotune.bench import cell, sweep
from nestwright.autotune.bench.data import BenchReport
from nestwright.autotune.bench.sweep import bench
from nestwright.autotune.measure.peak import Peak
from nestwright.ir.hlo.text import parse

SMALL = (
    "HloModule s\nENTRY main {\n  x = f32[40,30] parameter(0)\n  ROOT y = f32[40,30] sqrt(x)\n}\n"
)


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(cell, "SECONDS", 0.1)
    monkeypatch.setattr(sweep, "measure_peak", lambda target: Peak(target.threads, 1e11, 1e10))


def test_sweep_times_checks_and_goes_on_after_a_bad_model(tmp_path: Path) -> None:
    report = bench([parse(SMALL), tmp_path / "none.hlo"], "cpu", threads=1)
    good, bad = report.cells
    tuned = good.way("tuned")
    assert tuned is not None and tuned.error is not None and tuned.error < 1e-6
    assert good.seconds("default") and good.speedup() == 1.0
    assert [g.note for g in good.groups] == [""]
    assert "No such file" in bad.problem
    assert str(tmp_path) not in report.text()
    assert BenchReport.from_json(report.to_json()) == report
