"""Facts from trials: curves by seed, honesty of predictions, failures, what is left to gain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.autotune.bench.data import TrialBench
from nestwright.autotune.report.charts.curves import steps, tuning_curve
from nestwright.autotune.report.charts.scatter import honesty as honesty_picture
from nestwright.autotune.report.tuning import (
    curves_by_time,
    curves_by_trials,
    failures,
    honesty,
    late_gain,
)

from ..bench.reports import GROUP


def group(*trials: tuple[int, float | None, float | None]):
    """A group with trials of a seed each: seed, measured and predicted seconds."""
    made = (
        TrialBench(n, seed, 0.5 * n, seconds, "ok" if seconds else "wrong", "evolve", predicted)
        for n, (seed, seconds, predicted) in enumerate(trials, 1)
    )
    return replace(GROUP, trials=tuple(made))


def test_curves_keep_the_best_so_far_of_each_seed() -> None:
    g = group((0, 9.0, None), (1, 8.0, None), (0, None, None), (0, 5.0, None), (0, 6.0, None))
    first, second = curves_by_trials(g)
    assert (first.seed, first.places, first.values, first.end) == (0, (1, 3), (9.0, 5.0), 4)
    assert (second.seed, second.places, second.end) == (1, (1,), 1)
    assert first.at(0.5) is None and first.at(2) == 9.0 and first.at(4) == 5.0
    timed, _ = curves_by_time(g)
    assert timed.places == (0.5, 2.0) and timed.end == 2.5


def test_step_line_holds_until_the_next_value() -> None:
    assert steps([(0, 9), (2, 5), (3, 5)]) == [(0, 9), (2, 9), (2, 5), (3, 5)]


def test_several_seeds_make_a_band_and_one_does_not() -> None:
    one = group((0, 9.0, None), (0, 5.0, None))
    two = group((0, 9.0, None), (0, 5.0, None), (1, 8.0, None), (1, 4.0, None))
    pictures = [tuning_curve(curves_by_trials(g), 10.0, "g", by_time=False) for g in (one, two)]
    assert "polygon" not in pictures[0] and "polygon" in pictures[1]
    assert all("default 10 s" in p for p in pictures)


def test_group_without_success_has_no_curve() -> None:
    g = group((0, None, None), (0, None, None))
    assert tuning_curve(curves_by_trials(g), 1.0, "g", by_time=False) == ""


@pytest.mark.parametrize(("sign", "rho"), [(1, 1.0), (-1, -1.0)])
def test_rank_correlation_of_predictions(sign: int, rho: float) -> None:
    g = group(*((0, 10.0 + n, 50.0 + sign * n) for n in range(12)))
    found = honesty(g)
    assert found.rho == {"analytic": pytest.approx(rho)}
    assert [name for name, _ in found.parts] == ["1 to 4", "5 to 8", "9 to 12", "all 12"]


def test_models_are_compared_on_what_both_predicted() -> None:
    g = group(*((0, 10.0 + n, 50.0 - n) for n in range(12)))
    later = tuple(replace(t, learned=t.seconds) if t.number > 6 else t for t in g.trials)
    found = honesty(replace(g, trials=later))
    assert [len(p) for p in found.pairs.values()] == [12, 6]
    assert found.rho == {"analytic": pytest.approx(-1.0), "learned": pytest.approx(1.0)}
    assert found.parts[0] == ("1 to 4", (pytest.approx(-1.0), None))
    assert found.parts[-1] == ("the 6 that both predicted", (pytest.approx(-1), pytest.approx(1)))
    dots = honesty_picture(found.pairs, "g")
    assert dots.count("trial analytic") == 12 and dots.count("trial learned") == 6


def test_few_predictions_have_no_rank_correlation() -> None:
    few = honesty(group((0, 1.0, 1.0), (0, None, 2.0)))
    assert few.rho == {"analytic": None}


def test_failures_are_counted_with_an_example() -> None:
    (found,) = failures(group((0, 1.0, None), (0, None, None), (0, None, None)))
    assert (found.status, found.count, found.first) == ("wrong", 2, 2)


def test_late_gain_is_what_the_last_third_saved() -> None:
    early = group(*((0, 10.0 if n < 2 else 5.0, None) for n in range(9)))
    late = group(*((0, 10.0 if n < 8 else 5.0, None) for n in range(9)))
    assert late_gain(early) == 0 and late_gain(late) == 0.5
    assert late_gain(group((0, 1.0, None))) is None
