"""`nestwright calibrate`: what is told, and the exit status."""

from __future__ import annotations

import json

import pytest

from nestwright.autotune.calibrate import store, take
from nestwright.autotune.calibrate.readings import Calibration

GOOD = Calibration(
    {("clock", "", 1): 3e9, ("fma", "", 1): 9e10, ("read", "l2", 1): 5e10, ("fork", "", 2): 2e6}
)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "kept"))


def test_what_was_measured_is_kept_and_shown(nestwright, monkeypatch) -> None:
    monkeypatch.setattr(take, "take", lambda target, told: (GOOD, ""))
    said = nestwright("calibrate")
    assert said.status == 0
    for figure in ("3.00 GHz", "90 GFLOP/s", "50.0 GB/s", "0.50 us", "kept in"):
        assert figure in said.out
    told = json.loads(nestwright("calibrate", "--json").out)
    assert (
        told["kept"] and {"what": "fma", "level": "", "threads": 1, "rate": 9e10} in told["rates"]
    )
    assert "measured, in" in nestwright("doctor").out
    assert "3.00 GHz" in nestwright("targets").out
    assert json.loads(nestwright("targets", "--json").out)["calibration"] == told["rates"]


def test_a_refusal_is_one_line_and_status_1(nestwright, monkeypatch) -> None:
    monkeypatch.setattr(take, "take", lambda target, told: (GOOD, "clock: it is not steady"))
    said = nestwright("calibrate")
    assert said.status == 1
    assert said.out.startswith("not kept: clock: it is not steady; tuning takes the figures of")
    assert said.out.count("\n") == 1
    assert "none yet" in nestwright("doctor").out
    assert json.loads(nestwright("calibrate", "--json").out)["why"] == "clock: it is not steady"


def test_only_this_processor_can_be_calibrated(nestwright) -> None:
    said = nestwright("calibrate", "--target", "cuda -arch=sm_80")
    assert said.status == 2
    assert "cannot calibrate" in said.err
    other = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"
    assert nestwright("calibrate", "--target", other).status == 2
