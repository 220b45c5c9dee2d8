"""Wall time as the limit, the time left as a range, and advice where the budget was too small."""

from __future__ import annotations

import math

from nestwright.autotune.tuner.budget import SHARE, Budget, advice


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spent(clock: Clock, budget: Budget, *seconds: float) -> None:
    budget.start()
    for s in seconds:
        clock.now += s
        budget.trial_done()


def test_seconds_count_from_the_beginning_and_never_below_zero() -> None:
    clock = Clock()
    budget = Budget(40.0, began=95.0, clock=clock)
    assert (budget.elapsed, budget.left, budget.until) == (5.0, 35.0, 135.0)
    clock.now = 500.0
    assert budget.left == 0.0
    assert budget.range(60, 5, 10) == (0.0, 0.0)
    assert Budget(None, clock=clock).left == math.inf


def test_what_came_before_the_first_trial_is_no_trials_time() -> None:
    clock = Clock()
    budget = Budget(clock=clock)
    clock.now += 30.0
    assert budget.pace is None and budget.range(10, 0, 0) is None
    spent(clock, budget, 1.0, 1.0)
    assert budget.pace == (0.8, 1.25)


def test_the_range_holds_what_fast_and_slow_stretches_were_seen() -> None:
    clock = Clock()
    budget = Budget(clock=clock)
    spent(clock, budget, *[0.1] * 24, *[2.0] * 8)
    low, high = budget.range(10, 0, 0) or (0.0, 0.0)
    assert low < 10 * (2.4 + 16) / 32 < 10 * 2.0 < high
    steady = Budget(clock=clock)
    spent(clock, steady, *[0.5] * 40)
    low, high = steady.range(10, 0, 0) or (0.0, 0.0)
    assert low < 5.0 < high < 2 * low


def test_the_range_stays_within_the_limit() -> None:
    clock = Clock()
    budget = Budget(40.0, clock=clock)
    assert budget.range(64, 0, 15) == (0.0, 40.0), "nothing is known but the limit"
    assert Budget(math.inf).range(64, 0, 15) is None, "infinite seconds are no limit"
    spent(clock, budget, 10.0, 10.0)
    assert budget.range(62, 0, 15) == (20.0, 20.0)


def test_time_is_kept_back_for_the_races_but_not_all_of_it() -> None:
    clock = Clock()
    budget = Budget(40.0, clock=clock)
    spent(clock, budget, *[0.08] * 10)
    assert 0 < budget.reserve(2, 10) < budget.reserve(4, 10) < SHARE * 40
    slow = Budget(40.0, clock=clock)
    spent(clock, slow, 5.0)
    assert slow.reserve(4, 10) == SHARE * 40
    assert Budget(clock=clock).reserve(4, 10) == 0.0


def test_a_budget_that_was_too_small_is_named_with_what_would_do() -> None:
    (text,) = advice("time", 2, 64, (1.0, 4.0), [f"dot_{n}" for n in range(13)], 15)
    assert "13 of 15 tasks were never measured (dot_0, dot_1, dot_2 and 10 more)" in text
    assert "120 trials would do, about 480 seconds" in text
    (text,) = advice("budget", 1, 1, None, ["dot_1"], 2)
    assert "1 of 2 tasks was never measured (dot_1); 16 trials would do" in text
    (text,) = advice("time", 20, 64, (0.1, 0.5), [], 3)
    assert "time was up after 20 of 64 trials" in text and "about 32 seconds" in text
    assert advice("budget", 64, 64, (0.1, 0.5), [], 3) == []
    assert advice("exhausted", 5, 64, (0.1, 0.5), [], 3) == []
