"""How code is timed: warmed up, in short samples, in turns, against a yardstick for drift.

Code of one thread is timed by that thread's processor time, which does not count what other
processes steal; code of several threads by the wall clock. On a busy machine a short sample often
passes between two interruptions, so many short ones and their lower quartile say more than a few
long ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..log.records import quantile, typical

Call: TypeAlias = Callable[[int], None]
Clock: TypeAlias = Callable[[], float]
Runs: TypeAlias = Sequence[Sequence[float]]

QUICK = 3  # samples before a candidate may be given up
HOPELESS = 1.5  # times the incumbent
SAMPLE = 3e-4  # seconds that one sample should at least take
MOST = 24  # samples of one candidate
ROUNDS = 9  # of a race between kernels
LOOK = 6  # rounds of a comparison before it may end, and between two looks at it
ROUND = 0.01  # seconds that each program gets in a round of a comparison, if a call is so short
SETTLE = 1e-3  # seconds of calls before code is timed: sleeping threads wake, caches fill
WARM = 2e-3  # calls shorter than this are preceded by one that is not timed
DRIFT = 1.1  # slow-downs of the yardstick below this are taken for noise
TRIES = 3  # of a reading that no machine can have
CALIBRATED = 1.05  # how far the measured peak may lie below the real one
BURST = 3.0  # more than this is an interruption, which does not slow the next kernel down


def clock_for(threads: int) -> Clock:
    """The clock that is fair to code of so many threads."""
    return time.thread_time if threads == 1 else time.perf_counter


def sample(call: Call, times: int, clock: Clock) -> float:
    """Seconds per call, over ``times`` calls."""
    began = clock()
    call(times)
    return (clock() - began) / times


def repeats(call: Call, clock: Clock, least: float = SAMPLE) -> int:
    """How many calls make a sample of at least ``least`` seconds, once the code is warm.

    The first calls after a pause say little: the pool's threads sleep, and what another kernel
    left in the caches has to go.
    """
    once = max(sample(call, 1, clock), 1e-9)
    if once >= max(least, WARM):
        return 1
    spent = once
    while spent < SETTLE:
        times = min(1000, int((SETTLE - spent) / once) + 1)
        once = max(sample(call, times, clock), 1e-9)
        spent += times * once
    return max(1, min(10_000, math.ceil(least / once)))


def warm_sample(call: Call, times: int, clock: Clock, once: float) -> float:
    """A sample after something else ran: a short call is made once before it counts."""
    if once < WARM:
        call(1)
    return sample(call, times, clock)


def time_call(call: Call, clock: Clock, incumbent: float, fill: float) -> tuple[float, ...]:
    """Seconds per call, several samples; few where ``incumbent`` (0: none) is out of reach."""
    inner = repeats(call, clock)
    runs = [sample(call, inner, clock)]
    while len(runs) < QUICK and runs[0] < 1.0:
        runs.append(sample(call, inner, clock))
    if incumbent and min(runs) > HOPELESS * incumbent:
        return tuple(runs)
    while sum(runs) * inner < fill and len(runs) < MOST:
        runs.append(sample(call, inner, clock))
    return tuple(runs)


def race(calls: Mapping[int, Call], clock: Clock, fill: float) -> dict[int, list[float]]:
    """Seconds per call of each in ``ROUNDS`` rounds, timed in turns for ``fill`` seconds each."""
    turns = Turns(list(calls.values()), clock, fill / ROUNDS)
    for _ in range(ROUNDS):
        turns.round()
    return dict(zip(calls, turns.runs, strict=True))


def compare(
    calls: Sequence[Call], clock: Clock, seconds: float, settled: Callable[[Runs], bool]
) -> list[list[float]]:
    """Seconds per call of each, in rounds until they are ``settled`` or the time is used up.

    ``LOOK`` rounds are made in any case, and between two looks.
    """
    began = clock()
    turns = Turns(calls, clock, ROUND)
    while True:
        for _ in range(LOOK):
            turns.round()
        if clock() - began >= seconds or settled(turns.runs):
            return turns.runs


class Turns:
    """Calls timed side by side: in every round each gets the same number of samples, in turns.

    The order is turned round after every turn (A B B A). A round adds one run to each call: the
    lower quartile of its samples.
    """

    def __init__(self, calls: Sequence[Call], clock: Clock, fill: float) -> None:
        """``fill``: seconds of samples that a call gets in a round, if it is so short."""
        self.runs: list[list[float]] = [[] for _ in calls]
        self._clock = clock
        inner = [repeats(call, clock) for call in calls]
        once = [sample(call, times, clock) for call, times in zip(calls, inner, strict=True)]
        self._lanes = list(zip(range(len(calls)), calls, inner, once, strict=True))
        longest = max((n * t for n, t in zip(inner, once, strict=True)), default=0.0)
        self._turns = 2 * max(1, math.ceil(fill / (2 * max(longest, 1e-9)))) if calls else 0

    def round(self) -> None:
        """One more run of each."""
        samples: list[list[float]] = [[] for _ in self.runs]
        for _ in range(self._turns):
            for n, call, times, once in self._lanes:
                samples[n].append(warm_sample(call, times, self._clock, once))
            self._lanes.reverse()
        for runs, found in zip(self.runs, samples, strict=True):
            runs.append(typical(tuple(found)))


@dataclass(slots=True)
class Yardstick:
    """The fastest kernel of a task so far, timed again beside every candidate.

    When the machine slows down, under other load or a lower clock, the yardstick tells by how much;
    without it, what is measured in a slow minute could never win. Its time is always one that was
    read off the clock: a corrected one would make every later reading look like a slow-down.
    """

    call: Call | None = None
    seconds: float = math.inf

    def drift(self, clock: Clock) -> float:
        """How much slower the machine is than when the yardstick was taken; 1 if hardly."""
        call = self.call
        if call is None:
            return 1.0
        inner = repeats(call, clock)
        now = quantile(tuple(sample(call, inner, clock) for _ in range(QUICK)), 0.5)
        self.seconds = min(now, self.seconds)
        slower = now / self.seconds
        return min(slower, BURST) if slower > DRIFT else 1.0

    def offer(self, call: Call, runs: Sequence[float]) -> None:
        """Take a kernel as the yardstick if it is the fastest, by its time as measured."""
        seconds = typical(tuple(runs))
        if seconds < self.seconds:
            self.call, self.seconds = call, seconds


def read_off(
    call: Call, clock: Clock, yardstick: Yardstick, incumbent: float, fill: float, floor: float
) -> tuple[tuple[float, ...], float] | None:
    """Runs of a kernel, and the drift meanwhile.

    No machine takes less than ``floor`` seconds: drift is divided out only as far as that, and a
    reading that lies below by itself is taken again, ``TRIES`` times in all. None if that is
    no better.
    """
    least = floor / CALIBRATED
    for _ in range(TRIES):
        before = yardstick.drift(clock)
        runs = time_call(call, clock, incumbent * before, fill)
        if typical(runs) < least:
            continue
        # What slowed only one of the two was an interruption, and may have missed the runs.
        drift = min(before, yardstick.drift(clock)) if before > 1 else 1.0
        return runs, max(1.0, min(drift, typical(runs) / least)) if least else drift
    return None
