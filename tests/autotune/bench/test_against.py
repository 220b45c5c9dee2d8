"""Comparison of two reports: what counts as a change, and what else is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.autotune.bench.against import compared
from nestwright.autotune.bench.data import BenchReport, CellBench, WayBench

from .reports import CELL, REPORT


def slower(cell: CellBench, times: float) -> CellBench:
    def scaled(way: WayBench) -> WayBench:
        return replace(way, runs=tuple(t * times for t in way.runs))

    return replace(cell, ways=tuple(map(scaled, cell.ways)))


def report(cell: CellBench) -> BenchReport:
    return replace(REPORT, cells=(cell,))


@pytest.mark.parametrize(
    ("times", "kind"), [(1.0, "same"), (1.05, "same"), (1.2, "regression"), (0.8, "gain")]
)
def test_changes_beyond_both_spreads_are_marked(times: float, kind: str) -> None:
    """Each control's spread is about 3.4 %, so 7 % says nothing."""
    against = compared(report(slower(CELL, times)), report(CELL)).against
    assert against is not None
    assert [(c.way, c.kind) for c in against.changes] == [("default", kind), ("tuned", kind)]
    assert [c.way for c in against.regressions] == ["default", "tuned"] * (kind == "regression")
    assert against.changes[0].ratio == pytest.approx(times)
    assert 0.06 < against.changes[0].spread < 0.08


def test_without_a_control_nothing_is_marked() -> None:
    bare = replace(CELL, ways=CELL.ways[:2])
    against = compared(report(slower(bare, 3.0)), report(bare)).against
    assert against is not None and against.changes == ()
    assert any("no control" in n for n in against.notes)


def test_what_else_differs_is_said() -> None:
    old = replace(
        REPORT,
        machine={**REPORT.machine, "cpu": "older"},
        versions={"nestwright": "0.0.9"},
        logs=(replace(REPORT.logs[0], sha256="1" * 64),),
        seed=4,
        cells=(CELL, replace(CELL, key=replace(CELL.key, threads=7))),
    )
    against = compared(REPORT, old).against
    assert against is not None
    told = "\n".join(against.notes)
    assert "another machine: cpu older before, test now" in told
    assert "other versions: nestwright 0.0.9 before, 0.1.0 now" in told
    assert "the log l.jsonl has other contents" in told
    assert "this report has no cell m&m on cpu, 7 threads" in told
    assert "the old report has no cell broken on cpu, 2 threads" in told
    assert "seed 4 before, 0 now" in told


def test_a_model_that_fails_now_is_said() -> None:
    against = compared(report(replace(CELL, ways=(), problem="no")), report(CELL)).against
    assert against is not None and "does not run now, and did" in against.notes[0]


def test_the_comparison_is_in_the_data() -> None:
    made = compared(report(slower(CELL, 2.0)), report(CELL))
    assert BenchReport.from_json(made.to_json()) == made
