"""The pace of the cores: played machines that slow down, and readings taken meanwhile."""

from __future__ import annotations

import math
import time

import pytest

from nestwright.autotune.log.records import typical
from nestwright.autotune.measure.host.pace import (
    ALLOWED,
    IN_A_ROW,
    LEARNED,
    PATIENCE,
    SHARE,
    Pace,
    pace_of,
)
from nestwright.autotune.measure.processor import METER
from nestwright.autotune.measure.timing import ROUNDS, TRIES, Turns, Yardstick, read_off
from nestwright.ir.target import HERE, Target

BURST = 5e-5  # seconds


class Cores:
    """Two cores; until ``apart`` they are threads of one, and everything takes twice as long."""

    def __init__(self, apart: float = 0.0) -> None:
        self.now, self.apart, self.speed = 0.0, apart, 1.0
        self.pace = Pace(self.burst, self.clock)

    def clock(self) -> float:
        return self.now

    def slow(self) -> float:
        return 2.0 if self.now < self.apart else 1.0

    def burst(self) -> float:
        self.now += BURST * self.slow() / self.speed
        return self.speed / self.slow()

    def call(self, times: int) -> None:
        self.now += 1e-4 * times * self.slow() / self.speed


def test_the_usual_rate_is_learned_past_a_slow_start() -> None:
    m = Cores(apart=LEARNED / 2)
    assert not m.pace.regain(), "nothing was known before"
    assert (m.pace.usual, m.now) == (1.0, pytest.approx(LEARNED, abs=2 * BURST))


def test_cores_at_their_pace_are_not_waited_for() -> None:
    m = Cores()
    m.pace.regain()
    before = m.now
    assert m.pace.regain()
    assert m.now - before == pytest.approx(IN_A_ROW * BURST)


def test_cores_that_slept_are_kept_busy_first() -> None:
    m = Cores()
    m.pace.regain()
    before = m.now
    assert m.pace.regain(0.01)
    assert m.now - before == pytest.approx(0.01 + IN_A_ROW * BURST, abs=2 * BURST)


def test_cores_that_share_one_are_waited_for() -> None:
    m = Cores()
    m.pace.regain()
    m.apart = m.now + 0.05
    assert not m.pace.regain()
    assert m.apart <= m.now <= m.apart + 2 * IN_A_ROW * BURST
    assert m.pace.regain()


def test_a_machine_that_stays_slow_is_waited_for_once() -> None:
    m = Cores()
    m.pace.regain()
    m.speed = 0.5
    before = m.now
    assert not m.pace.regain()
    assert m.now - before == pytest.approx(PATIENCE, rel=0.01)
    assert m.pace.regain(), "what it has is usual now"
    m.speed = 1.0
    assert m.pace.regain() and m.pace.usual == 1.0
    m.speed = 0.5
    assert not m.pace.regain(), "until more was seen"


def test_a_machine_that_is_often_slow_is_not_waited_for_all_the_time() -> None:
    m = Cores()
    m.pace.regain()
    for _ in range(1000):
        m.apart = m.now + 2.0
        m.pace.regain()
        m.now = m.apart
        m.pace.regain()  # the usual rate is seen again
    assert m.pace.waited < ALLOWED + (SHARE + 0.01) * m.now


def test_a_reading_begins_when_the_cores_are_apart() -> None:
    m, stick = Cores(), Yardstick()
    m.pace.regain()
    m.apart = m.now + 0.05
    runs, drift = read_off(m.call, m.clock, stick, 0.0, 1e-2, 0.0, regain=m.pace.regain) or ((), 0)
    assert (runs, drift) == (pytest.approx([1e-4] * len(runs)), 1.0)


def test_a_reading_during_which_the_cores_slowed_is_taken_again() -> None:
    m, stick = Cores(), Yardstick()
    m.pace.regain()
    began = m.now

    def call(times: int) -> None:
        if not m.apart and m.now > began + 2e-3:
            m.apart = m.now + 0.05
        m.call(times)

    runs, _ = read_off(call, m.clock, stick, 0.0, 2e-2, 0.0, regain=m.pace.regain) or ((), 0)
    assert runs == pytest.approx([1e-4] * len(runs))


def test_the_least_reading_counts_where_the_pace_is_never_kept() -> None:
    m, stick, tries = Cores(), Yardstick(), []

    def regain(least: float) -> bool:
        tries.append(m.now)
        m.speed = 1.0 if len(tries) == 2 else 0.5
        return False

    runs, _ = read_off(m.call, m.clock, stick, 0.0, 1e-2, 0.0, regain=regain) or ((), 0)
    assert len(tries) == 1 + TRIES and typical(runs) == pytest.approx(1e-4)


def test_a_round_during_which_the_cores_slowed_is_repeated() -> None:
    m = Cores()
    turns = Turns([m.call, m.call], m.clock, 1e-2, regain=m.pace.regain)
    for n in range(ROUNDS):
        m.apart = m.now + 0.1 if n % 2 else 0.0  # longer than a round
        turns.round()
    assert turns.runs == [pytest.approx([1e-4] * ROUNDS)] * 2


def test_this_machine_has_a_pace_for_each_number_of_threads() -> None:
    one, two = (Target.parse(f"{HERE} -threads={n}") for n in (1, 2))
    METER.regain(two)(0.0)
    assert METER.regain(two) == METER.regain(two), "what was learned is kept"
    assert METER.regain(one) != METER.regain(two)
    pace = pace_of(two, time.perf_counter)
    pace.regain()
    assert 0 < pace.usual < math.inf
