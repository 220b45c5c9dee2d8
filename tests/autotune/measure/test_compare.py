"""Which of two programs is faster: the ratio, how sure it is, and when more rounds say nothing."""

from __future__ import annotations

import math
import random

import pytest

from nestwright.autotune.measure.compare import SpeedComparison, interval, settled
from nestwright.autotune.measure.timing import CHECK_EVERY, Turns, compare


def comparison(ratios: list[float]) -> SpeedComparison:
    return SpeedComparison(tuple(ratios), (1.0,) * len(ratios))


@pytest.mark.parametrize(("n", "low", "high"), [(8, 0, 7), (12, 1, 10), (20, 3, 16), (50, 15, 34)])
def test_bounds_are_the_order_statistics_of_the_sign_test(n: int, low: int, high: int) -> None:
    # Dixon and Massey, Introduction to Statistical Analysis, table of confidence for the median
    values = [float(x) for x in range(n)]
    random.Random(0).shuffle(values)
    assert interval(values) == (low, high)


def test_too_few_rounds_bound_nothing() -> None:
    assert interval([1.3] * 7) == (0.0, math.inf)
    assert not comparison([1.3] * 7).faster
    assert comparison([1.3] * 8).faster


def test_many_rounds_are_counted_exactly() -> None:
    low, high = interval([float(x) for x in range(5000)])
    assert (low, high) == (2408, 2591)


def test_faster_means_clearly_and_surely() -> None:
    assert comparison([1.05] * 12).faster
    assert not comparison([1.01] * 12).faster, "within what timing can be wrong about"
    assert not comparison([0.9, 1.4] * 6).faster, "as often slower"
    assert not comparison([0.9] * 3 + [1.1] * 9).faster, "perhaps not faster at all"
    assert comparison([0.2] + [1.1] * 11).faster, "one interruption decides nothing"


def test_rounds_end_when_nothing_can_change() -> None:
    default = [1.0] * 12
    assert settled([default, [0.9] * 12]), "clearly faster"
    assert settled([default, [1.1] * 12]), "clearly not"
    assert settled([default, [0.99] * 12]), "known to be about the same"
    assert not settled([default, [0.99, 1.05] * 6]), "not faster, but perhaps slower"
    wide = [0.9, 1.05] * 6
    assert not settled([default, wide])
    assert not settled([default, [0.9] * 12, wide]), "every other one has to be settled"
    assert not settled([default[:6], [0.9] * 6])


class Machine:
    """A clock that calls move on, a machine that is interrupted now and then."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.random = random.Random(seed)

    def kernel(self, seconds: float):
        def call(times: int) -> None:
            self.now += times * seconds
            if self.random.random() < 0.2:
                self.now += 4e-3  # a time slice of somebody else

        return call

    def clock(self) -> float:
        return self.now


def test_a_comparison_sees_five_percent_through_interruptions() -> None:
    for seed in range(10):
        m = Machine(seed)
        runs = compare([m.kernel(6e-5), m.kernel(5.7e-5)], m.clock, 5.0, settled)
        assert SpeedComparison(tuple(runs[0]), tuple(runs[1])).faster
        runs = compare([m.kernel(6e-5), m.kernel(6e-5)], m.clock, 5.0, settled)
        assert not SpeedComparison(tuple(runs[0]), tuple(runs[1])).faster


def test_a_comparison_ends_with_its_time() -> None:
    m = Machine()
    runs = compare([m.kernel(0.5), m.kernel(0.5)], m.clock, 1.0, lambda runs: False)
    assert [len(r) for r in runs] == [CHECK_EVERY, CHECK_EVERY]


def test_turns_go_a_b_b_a_and_short_calls_are_warmed_up() -> None:
    order: list[tuple[str, int]] = []
    m = Machine()

    def named(name: str, seconds: float):
        def call(times: int) -> None:
            order.append((name, times))
            m.now += times * seconds

        return call

    turns = Turns([named("a", 1e-2), named("b", 1e-2)], m.clock, 2e-2)
    order.clear()
    turns.round()
    assert [name for name, _ in order] == ["a", "b", "b", "a"]
    turns = Turns([named("a", 1.25e-4), named("b", 1.25e-4)], m.clock, 6e-4)
    order.clear()
    turns.round()
    assert order == [
        *(("a", 1), ("a", 3), ("b", 1), ("b", 3)),
        *(("b", 1), ("b", 3), ("a", 1), ("a", 3)),
    ]
    assert [len(r) for r in turns.runs] == [1, 1]
