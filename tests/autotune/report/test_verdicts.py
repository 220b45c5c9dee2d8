"""Verdicts: clear only beyond the interval and the control, and shares of the roof at most 1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.autotune.bench.data import CONTROL, DEFAULT, TUNED, ScheduleBench, WayBench
from nestwright.autotune.measure.host.peak import LevelRoof, Peak
from nestwright.autotune.report.kernels import kernel_rows
from nestwright.autotune.report.verdicts import doubts, roof_share, verdict

from ..bench.reports import CELL, GROUP

ROUNDS = 20
PEAK = Peak(2, 1e11, 1e10)


def cell(tuned: float, control: float):
    """A cell whose default takes 1 ms in every round."""
    times = {DEFAULT: 1e-3, TUNED: tuned, CONTROL: control}
    ways = (WayBench(name, runs=(s,) * ROUNDS) for name, s in times.items())
    return replace(CELL, ways=tuple(ways), warnings=())


@pytest.mark.parametrize(
    ("tuned", "control", "sign", "word"),
    [
        (5e-4, 5e-4, 1, "2.00× faster than the default"),
        (2e-3, 2e-3, -1, "2.00× slower than the default"),
        (9.9e-4, 9.9e-4, 0, "as fast as the default, as far as this run can tell"),
        (8e-4, 1.2e-3, 0, "as fast as the default, as far as this run can tell"),
    ],
)
def test_difference_counts_beyond_the_control(tuned, control, sign, word) -> None:
    found = verdict(cell(tuned, control), PEAK)
    assert (found.sign, found.word) == (sign, word)


def test_wide_control_is_doubted() -> None:
    (line,) = doubts(cell(8e-4, 1.2e-3))
    assert "differed by 50 %" in line
    assert doubts(cell(8e-4, 8e-4)) == ()


def test_cell_that_did_not_run_has_no_figures() -> None:
    found = verdict(replace(CELL, ways=(), groups=()), None)
    assert (found.word, found.speedup, found.roof, found.seconds) == ("not measured", *[None] * 3)


def test_share_of_the_roof_counts_caches_as_the_roof() -> None:
    fast = ScheduleBench("default", {}, [], (1e-9,))
    slow = ScheduleBench("default", {}, [], (4e-5,))
    groups = (
        replace(GROUP, weight=1.0, flops=1e6, bytes=1e4, tuned=slow),
        replace(GROUP, weight=1.0, flops=0.0, bytes=1e4, tuned=fast),
    )
    share = roof_share(replace(CELL, groups=groups), PEAK)
    assert share == pytest.approx((1e-5 + 1e-9) / (4e-5 + 1e-9))


@pytest.mark.parametrize(
    ("size", "reach", "bound", "share"),
    [
        (1e4, 0.0, "L1", 1e4 / 4e11 / 1e-6),
        (1e5, 0.0, "L2", 1e5 / 2e11 / 1e-6),
        (1e4, 1e5, "L2", 1e4 / 2e11 / 1e-6),
        (1e4, 1e9, "memory", 1.0),
    ],
)
def test_a_kernel_is_held_against_the_level_of_its_working_set(size, reach, bound, share) -> None:
    roofs = (LevelRoof("l1", 1 << 16, 4e11), LevelRoof("l2", 1 << 20, 2e11))
    took = ScheduleBench("default", {}, [], (1e-6,))
    group = replace(GROUP, flops=1.0, bytes=size, reach=reach, tuned=took)
    (row,) = kernel_rows(replace(CELL, groups=(group,)), replace(PEAK, roofs=roofs))
    assert (row.bound, row.roof) == (bound, pytest.approx(share))
    (gather,) = kernel_rows(
        replace(CELL, groups=(replace(group, bytes=1e6),)), replace(PEAK, roofs=roofs)
    )
    assert (gather.bound, gather.roof) == ("", None), "so much was not moved"
    (old,) = kernel_rows(replace(CELL, groups=(group,)), PEAK)
    assert (old.bound, old.roof) == ("memory", 1.0), "older reports have no other level"


def test_a_kernel_above_the_rate_of_multiply_adds_is_held_against_its_bytes() -> None:
    """Tile registers multiply bf16 faster: the time that FMAs would take is no bound."""
    took = ScheduleBench("default", {}, [], (1e-5,))
    group = replace(GROUP, weight=1.0, flops=8e-5 * PEAK.flops, bytes=0.2e-5 * PEAK.bandwidth)
    shown = replace(CELL, groups=(replace(group, tuned=took),))
    (row,) = kernel_rows(shown, PEAK)
    assert (row.bound, row.roof) == ("memory", pytest.approx(0.2))
    assert roof_share(shown, PEAK) == pytest.approx(0.2)
    near = replace(CELL, groups=(replace(group, flops=1.02e-5 * PEAK.flops, tuned=took),))
    (row,) = kernel_rows(near, PEAK)
    assert (row.bound, row.roof) == ("FMA", 1.0), "the peak is measured, too"
