"""Reports as data: JSON and back, and what of it is refused."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from nestwright.autotune.bench.data import BenchReport, CellBench, WayBench, read_report
from nestwright.ir.errors import ReportError

from .reports import CELL, REPORT


def test_report_round_trips(tmp_path: Path) -> None:
    REPORT.write_json(tmp_path / "deep" / "r.json")
    assert read_report(tmp_path / "deep" / "r.json") == REPORT
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["r.json"]


def test_a_report_of_before_these_fields_is_read() -> None:
    added = {"missing", "inputs", "reach", "learned", "roofs"}

    def before(value: Any) -> Any:
        match value:
            case dict():
                return {k: before(v) for k, v in value.items() if k not in added}
            case list():
                return [before(v) for v in value]
        return value

    data = json.loads(REPORT.text())
    assert before(data) != data and BenchReport.from_json(before(data)) == REPORT


def changed(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(REPORT.text())
    place: Any = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return data


CASES = {
    "another version": (("version",), 99, "version 99"),
    "no version": (("version",), None, "no version"),
    "a truth value as version": (("version",), True, "no version"),
    "text for a number": (("created",), "now", "created is no number"),
    "a truth value for a number": (("seed",), False, "seed is no whole number"),
    "a deep fault": (("cells", 0, "ways", 0, "runs", 1), None, "cells[0].ways[0].runs[1]"),
    "not finite": (("created",), math.inf, "created is not finite"),
    "an unknown field": (("cells", 0, "color"), "red", "'color'"),
    "no list": (("cells",), {}, "cells is no list"),
    "no object": (("cells", 0), 3, "cells[0] is no object"),
}


@pytest.mark.parametrize("case", CASES)
def test_damage_is_named(case: str) -> None:
    path, value, told = CASES[case]
    with pytest.raises(ReportError) as caught:
        BenchReport.from_json(changed(path, value))
    assert told in str(caught.value)


def test_missing_fields_are_named() -> None:
    data = copy.deepcopy(REPORT.to_json())
    del data["cells"][0]["key"]["model"]
    with pytest.raises(ReportError, match=r"cells\[0\].key.model is missing"):
        BenchReport.from_json(data)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no version"),
        (b"{}", "no version"),
    ],
)
def test_files_without_a_report_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    place = tmp_path / "old.json"
    place.write_bytes(content)
    with pytest.raises(ReportError) as caught:
        read_report(place)
    assert told in str(caught.value) and str(place) in str(caught.value)


def test_a_missing_file_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        read_report(tmp_path / "none.json")


def test_spread_is_that_of_the_control() -> None:
    """Rounds of (2, 2.02, 2) and (2.01, 2, 2.08) ms: the ninth of ten differs by about 3 %."""
    assert 0.03 < CELL.spread < 0.04
    assert CellBench(CELL.key, CELL.ways[:2]).spread == math.inf


def test_speedup_is_the_median_of_rounds() -> None:
    assert CELL.speedup() == pytest.approx(2.0)
    assert CELL.speedup("torch") is None and CELL.seconds("torch") is None


def test_curve_is_the_best_so_far_of_trials_that_ran() -> None:
    assert CELL.groups[0].curve == ((1, 2e-5), (3, 1e-5))


def test_rate_is_of_all_callers() -> None:
    way = CELL.way("tuned")
    assert isinstance(way, WayBench) and way.throughput[0].rate == 1000.0
