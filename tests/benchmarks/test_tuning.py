"""The arithmetic and the workloads of `benchmarks/tuning/main.py`; nothing is timed here."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from reference_logs import shares
from tuning import figures, tables
from tuning.shapes import MODELS, TWELVE, module, sixty

from nestwright.autotune.log.records import Trial

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tuning" / "main.py"


def trial(cost: float, status: str = "ok", drift: float = 1.0) -> Trial:
    return Trial("w", "d", "s", {"x": cost}, status, "prior", (cost,), drift=drift)


def test_there_are_sixty_workloads_and_the_twelve_are_among_them() -> None:
    found = sixty()
    assert len(found) == 60
    assert set(TWELVE) <= found.keys()
    assert len(TWELVE) == 12


@pytest.mark.parametrize("name", [*sixty(), *MODELS])
def test_workloads_parse(name: str) -> None:
    body = {**sixty(), **MODELS}[name]
    assert module(name, body).entry.root.shape


def test_the_first_workloads_are_of_different_kinds() -> None:
    assert len({name.partition("_")[0] for name in list(sixty())[:12]}) >= 9


def test_geomean_and_median() -> None:
    assert figures.geomean([0.5, 2.0]) == pytest.approx(1.0)
    assert figures.median([3.0, 1.0, 2.0]) == 2.0
    assert math.isnan(figures.geomean([]))
    assert math.isnan(figures.median([]))


def test_apart_is_symmetric() -> None:
    assert figures.apart(1.0, 1.1) == figures.apart(1.1, 1.0) == pytest.approx(0.1)


def test_disagreements_are_of_common_schedules() -> None:
    assert figures.disagreements({"a": 1.0, "b": 2.0}, {"b": 2.5, "c": 1.0}) == [0.25]


def test_costs_above_the_peak_are_found_by_the_corrected_time() -> None:
    trials = [trial(1.0), trial(1.0, drift=2.0), trial(0.1, "wrong"), trial(0.99)]
    found = figures.above_peak(trials, {"w": 1.0}, slack=1.05)
    assert [t.drift for t in found] == [2.0]
    assert figures.above_peak([trial(0.5)], {}, 1.0) == []


def test_the_final_speed_is_reached_when_it_nearly_is() -> None:
    curve = [(1.0, 4.0), (2.0, 2.05), (3.0, 2.03), (9.0, 2.0)]
    assert figures.reached(curve, 0.98) == 3.0
    assert figures.reached(curve, 0.5) == 1.0
    assert math.isnan(figures.reached([], 0.98))


def test_summaries() -> None:
    shares = [{"workload": "a", "share": 0.5}, {"workload": "b", "share": 2.0}]
    found = tables.summary_of_shares(shares)
    assert (found["geomean"], found["worst"], found["of"]) == (pytest.approx(1.0), 0.5, "a")
    quick = [{"native": [0.9, None, 1.0], "best_seconds": 1.0}, {"native": [0.8]}]
    assert tables.summary_of_quick(quick) == {
        "tasks": 2,
        "native": {"median": 0.9, "worst": 0.8, "runs": 3},
    }
    agree = [{"apart": [0.0, 0.1], "above_peak": 1}, {"apart": [0.2], "above_peak": 2}]
    told = tables.summary_of_agree(agree)
    assert (told["schedules"], told["above_peak"]) == (3, 3)
    assert told["percentile_95"] == pytest.approx(0.19)
    runs = [{"speedup": 1.2, "slower": False}, {"speedup": 0.9, "slower": True}]
    assert tables.summary_of_never(runs)["slower"] == 1
    assert tables.summary_of_sums([{"share": 0.8}, {"share": 1.1}])["apart"] == pytest.approx(0.25)
    assert tables.summary_of_speed([{"reached": 3.0}, {"reached": 5.0}])["longest"] == 5.0


@pytest.mark.parametrize("table", tables.SUMMARIES)
def test_a_table_of_no_rows_is_written(table: str) -> None:
    assert json.dumps(tables.SUMMARIES[table]([]))


def test_tuned_models_count_as_slower_only_beyond_the_interval() -> None:
    from nestwright.autotune.measure.compare import SpeedComparison

    slow = SpeedComparison((1.0,) * 20, (1.1,) * 20)
    noisy = SpeedComparison((1.0, 1.2) * 10, (1.1, 1.0) * 10)
    assert tables._slower(slow)["slower"] is True
    assert tables._slower(noisy)["slower"] is False
    assert tables._slower(None) == {"speedup": 1.0, "low": 1.0, "high": 1.0, "slower": False}


def test_help_names_the_tables() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, check=True)
    assert all(name in done.stdout.decode() for name in tables.SUMMARIES)


def test_time_is_shared_by_the_numbers_of_tasks() -> None:
    assert shares([1, 3], 100.0, 10.0) == [10 + 20, 10 + 60]
    assert shares([1, 3], 10.0, 10.0) == [10.0, 10.0], "each gets the least"
    assert shares([0], 10.0, 2.0) == [2.0]
