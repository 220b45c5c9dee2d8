"""Calibration: what a quiet machine says is kept and used; planted faults are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nestwright.autotune.calibrate import store
from nestwright.autotune.calibrate import take as taking
from nestwright.autotune.calibrate.readings import Calibration, called, contradiction
from nestwright.autotune.calibrate.take import calibrated, take
from nestwright.ir.target import Target

from .machines import PlayedMachine, rates

ZEN4 = "cpu -mcpu=znver4 -threads=2"


@pytest.fixture
def target() -> Target:
    return Target.parse(ZEN4)


@pytest.fixture(autouse=True)
def _lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "calibrations"))
    # No thread of a pool: the played machine's loops run nothing.
    monkeypatch.setattr(
        taking, "repeat_forks", lambda work, threads, n, clocks: taking.repeat(work, n, clocks)
    )


def taken(machine: PlayedMachine, target: Target) -> tuple[Calibration, str]:
    return take(target, machine, machine.clocks)


def test_a_quiet_machine_says_what_it_does(target: Target) -> None:
    machine = PlayedMachine(together={"memory": 20e9})
    found, why = taken(machine, target)
    assert why == ""
    core = found.core(target)
    assert core.clock == pytest.approx(3e9)
    assert [c.rate for c in (core.l1, core.l2, core.l3)] == pytest.approx([100, 100 / 3, 10])
    assert (core.read, core.read_all) == pytest.approx((14e9, 20e9))
    assert core.fork == pytest.approx(3000)
    # 170 GFLOP/s at 3 GHz are nearly two FMAs of 16 lanes a cycle: four of Zen 4's half-width ones.
    assert core.fmas == 3.5
    # What was not measured is the family's.
    assert (core.l1.ways, core.fma_latency, core.issue) == (8, 4, 6)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (PlayedMachine(stolen=0.4), "other programs had 40% of a core"),
        (PlayedMachine(slowdowns=(1.0, 1.5, 1.5)), "1.5 times faster than the typical one"),
        (PlayedMachine(together={"l2": 70e9}), "reading l2 with one thread is 1.4 times faster"),
        (PlayedMachine(together={"memory": 11e9}), "reading memory with one thread is 1.3 times"),
        (PlayedMachine(rates(l3=400e9)), "reading l3 with one thread is 4.0 times faster than l2"),
        (PlayedMachine(rates(l2=310e9, l3=365e9)), "reading l3 with one thread is 1.2 times"),
        (PlayedMachine(rates(memory=99e9)), "reading memory with one thread is 3.3 times faster"),
        (PlayedMachine(rates(fma=300e9)), "multiply-adds with one thread: 300 GFLOP/s are more"),
        (PlayedMachine(rates(clock=30e9)), "a clock of 30.00 GHz"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_planted_fault_is_told_in_one_line(
    machine: PlayedMachine, why: str, target: Target
) -> None:
    told = taken(machine, target)[1]
    assert why in told and "\n" not in told


def test_a_level_almost_as_fast_as_the_one_before_is_no_fault(target: Target) -> None:
    assert taken(PlayedMachine(rates(l2=310e9, l3=320e9)), target)[1] == ""


def test_an_unsteady_reading_is_repeated(target: Target) -> None:
    # Of the first five repetitions three are slow, of the next five none.
    calm = (1.0,) * 1000
    machine = PlayedMachine(slowdowns=(1.0, 1.0, 2.0, 2.0, 1.0, 2.0, 2.0, *calm))
    assert taken(machine, target)[1] == ""
    assert machine.called.count("clock") == 2


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_rate_is_refused(rate: float, target: Target) -> None:
    found = Calibration({("read", "l2", 1): rate})
    assert "is no rate" in contradiction(found, target)


def test_working_sets_fit_their_level(target: Target) -> None:
    core = target.core
    sizes = core.working_sets(target.threads, 64 << 30)
    assert sizes["l1"] < core.l1.size < sizes["l2"] < core.l2.size < sizes["l3"]
    assert 2 * sizes["l3"] <= core.l3.size < 2 * sizes["memory"] < (1 << 30)
    assert core.working_sets(target.threads, 256 << 20)["memory"] == 16 << 20
    flat = Target.parse("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72").core
    assert "l3" not in flat.working_sets(4, 64 << 30), "it has no third level"


def test_a_kept_calibration_comes_back(target: Target) -> None:
    found, _ = taken(PlayedMachine(), target)
    place = store.save(found, target)
    assert place is not None and place.stat().st_mode & 0o777 == 0o600
    assert store.load(target) == found
    assert json.loads(place.read_text())["key"] == store.key(target)
    assert store.load(Target.parse("cpu -mcpu=znver4 -threads=1")) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"threads": 2', '"threads": "2"'),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"rate": ', '"rate": 9e99'),
        lambda text: text.replace('"rates": [', '"rates": [7, '),
        lambda text: "[" * 100_000,
        lambda text: "",
    ],
)
def test_a_damaged_file_is_not_used(damage, target: Target) -> None:
    place = store.save(taken(PlayedMachine(), target)[0], target)
    assert place is not None
    place.write_text(damage(place.read_text()))
    assert store.load(target) is None


def test_a_file_that_others_may_write_to_is_not_used(target: Target) -> None:
    place = store.save(taken(PlayedMachine(), target)[0], target)
    assert place is not None
    place.chmod(0o666)
    assert store.load(target) is None


def test_off_means_nothing_is_measured_or_kept(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, store.OFF)
    assert store.save(taken(PlayedMachine(), target)[0], target) is None
    assert store.load(target) is None
    here = Target.parse("cpu")
    assert calibrated(here) == (here, "")


def test_tuning_measures_once_and_reads_it_then(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Target.parse("cpu -threads=1")
    asked: list[Target] = []
    good = Calibration({("clock", "", 1): 2.5e9})

    def now(target: Target) -> tuple[Calibration, str]:
        asked.append(target)
        return good, ""

    monkeypatch.setattr(taking, "_now", now)
    assert calibrated(here, seconds=5.0) == (here, "")  # not worth it
    first, note = calibrated(here)
    assert (first.core.clock, note, first.spec) == (2.5e9, "", here.spec)
    assert calibrated(here, seconds=5.0)[0] == first
    assert asked == [here]


def test_a_refusal_leaves_the_family_row_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Target.parse("cpu -threads=1")
    monkeypatch.setattr(taking, "_now", lambda target: (Calibration({}), "a load of 9.0"))
    target, note = calibrated(here)
    assert target == here and store.load(here) is None
    assert note.startswith("this machine is not calibrated (a load of 9.0)")
    assert here.core.family in note and "\n" not in note


def test_a_gpu_is_not_calibrated() -> None:
    gpu = Target.parse("cuda -arch=sm_80")
    assert calibrated(gpu) == (gpu, "")


def test_names_are_words() -> None:
    assert called(("read", "memory", 2)) == "reading memory with 2 threads"
