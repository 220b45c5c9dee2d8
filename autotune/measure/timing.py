"""How kernels are timed: samples, early stops, a yardstick against drift, interleaved races.

Code of one thread is timed by that thread's processor time, which does not count what other
processes steal; code of several threads by the wall clock. The lowest quartile of the samples is
what a candidate is judged by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Call: TypeAlias = Callable[[int], None]
Clock: TypeAlias = Callable[[], float]

QUICK = 3  # samples before a candidate may be given up
HOPELESS = 1.5  # times the incumbent
SAMPLE = 1e-4  # seconds that one sample should at least take
MOST = 24  # samples of one candidate
ROUNDS = 9  # of a race
DRIFT = 1.1  # slow-downs of the yardstick below this are taken for noise
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
    """How many calls make a sample of at least ``least`` seconds; warms up on the way."""
    once = max(sample(call, 1, clock), 1e-9)
    if once >= least:
        return 1
    once = max(sample(call, min(1000, int(least / once) + 1), clock), 1e-9)
    return max(1, min(10_000, int(least / once) + 1))


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
    """Seconds per call of each, timed in turns, the order turned round every time."""
    inner = {n: repeats(call, clock, max(SAMPLE, fill / ROUNDS)) for n, call in calls.items()}
    runs: dict[int, list[float]] = {n: [] for n in calls}
    order = list(calls)
    for _ in range(ROUNDS):
        for n in order:
            runs[n].append(sample(calls[n], inner[n], clock))
        order.reverse()
    return runs


@dataclass(slots=True)
class Yardstick:
    """The fastest kernel of a task so far, timed again beside every candidate.

    When the machine slows down, under other load or a lower clock, the yardstick tells by how much;
    without it, what is measured in a slow minute could never win.
    """

    call: Call | None = None
    seconds: float = math.inf

    def drift(self, clock: Clock) -> float:
        """How much slower the machine is than when the yardstick was taken; 1 if hardly."""
        call = self.call
        if call is None:
            return 1.0
        inner = repeats(call, clock)
        now = min(sample(call, inner, clock) for _ in range(QUICK))
        self.seconds = min(now, self.seconds)
        slower = now / self.seconds
        return min(slower, BURST) if slower > DRIFT else 1.0

    def offer(self, call: Call, seconds: float) -> None:
        """Take a kernel as the yardstick if it is the fastest."""
        if seconds < self.seconds:
            self.call, self.seconds = call, seconds
