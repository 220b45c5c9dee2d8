"""Scales and ticks: places are right, ticks are round, labels have units and do not overlap."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestwright.autotune.report.charts.axes import (
    COUNT,
    FLOPS,
    LETTER,
    SECONDS,
    Canvas,
    ChartAxis,
    Scale,
    draw_axes,
    figure,
    linear,
    logarithmic,
    spread,
)

positive = st.floats(1e-9, 1e12)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1234.5, "1,234"),
        (0.00123, "0.00123"),
        (99.96, "100"),
        (12.34, "12.3"),
        (-2.5, "-2.5"),
        (math.inf, "–"),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.5 s"), (1e-3, "1 ms"), (2.34e-5, "23.4 µs"), (5e-10, "0.5 ns"), (9.99e-4, "999 µs")],
)
def test_times_have_units(value: float, text: str) -> None:
    assert SECONDS.text(value) == text


def test_linear_scale_maps_its_ends() -> None:
    scale = linear([3.0, 9.0], 100.0, 0.0, zero=True)
    assert (scale.low, scale.high) == (0.0, 10.0)
    assert scale(0) == 100 and scale(5) == 50 and scale(10) == 0
    assert scale(11) == 0, "values outside are at the end"
    assert scale.ticks(5) == (0, 2, 4, 6, 8, 10)


def test_logarithmic_scale_maps_equal_ratios_to_equal_distances() -> None:
    scale = Scale(1.0, 1000.0, 0.0, 300.0, log=True)
    assert scale(10) == pytest.approx(100) and scale(100) == pytest.approx(200)
    assert scale.ticks(4) == (1, 10, 100, 1000)
    assert Scale(1.0, 10.0, 0, 1, log=True).ticks(6) == (1, 2, 5, 10)


@pytest.mark.parametrize("values", [[], [0.0], [5.0], [5.0, 5.0], [math.nan], [math.inf, 1.0]])
def test_scales_of_degenerate_values_are_usable(values: list[float]) -> None:
    for make in (linear, logarithmic):
        scale = make(values, 0.0, 100.0)
        assert scale.low < scale.high
        assert all(0 <= scale(v) <= 100 for v in (scale.low, scale.high, 7.0))


@given(st.lists(positive, min_size=1, max_size=8), st.booleans())
def test_ticks_are_few_ascending_and_in_the_scale(values: list[float], log: bool) -> None:
    scale = logarithmic(values, 0, 300) if log else linear(values, 0, 300)
    ticks = scale.ticks(6)
    assert len(ticks) <= 9
    assert all(a < b for a, b in itertools.pairwise(ticks))
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= t <= scale.high + slack for t in ticks)
    assert all(scale.low <= v <= scale.high for v in values)


@given(st.lists(positive, min_size=1, max_size=6))
def test_labels_side_by_side_do_not_overlap(values: list[float]) -> None:
    axis = ChartAxis(linear(values, 40.0, 340.0), COUNT, "trials")
    kept = spread(axis.labels, axis.scale)
    ends = [(axis.scale(v), len(t) * LETTER / 2) for v, t in kept]
    assert all(a + w < b - u for (a, w), (b, u) in itertools.pairwise(ends))


def test_axes_name_their_units_and_stay_inside() -> None:
    frame = Canvas()
    x = ChartAxis(linear([1.0, 400.0], *frame.across, zero=True), COUNT, "trials")
    y = ChartAxis(logarithmic([2e-5, 9e-3], *frame.upward), SECONDS, "best time so far")
    text = draw_axes(frame, x, y)
    assert ">best time so far (ms)<" in text and ">trials<" in text
    for name, value in re.findall(r' ([xy][12]?)="([-\d.]+)"', text):
        assert 0 <= float(value) <= (frame.width if name[0] == "x" else frame.height)


def test_one_unit_for_all_labels() -> None:
    axis = ChartAxis(logarithmic([2e8, 4e11], 0, 100), FLOPS, "rate")
    assert axis.caption == "rate (GFLOP/s)"
    assert [t for _, t in axis.labels] == ["1", "10", "100"]
