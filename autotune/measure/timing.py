"""Timing of code: warm-up, short samples, turns, and a yardstick for drift.

Single-threaded code is timed by its thread's CPU time, which excludes time taken by other
processes; code of several threads by the wall clock. On a busy machine a short sample often fits
between two interruptions, so many short samples and their lower quartile are more accurate than a
few long ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..log.records import quantile, typical

Call: TypeAlias = Callable[[int], None]
Clock: TypeAlias = Callable[[], float]
Runs: TypeAlias = Sequence[Sequence[float]]
Regain: TypeAlias = Callable[[float], bool]
"""Waits until the cores run at their usual pace, as ``Pace.regain``; False if they had lost it.

Cores that may have slept are kept busy for so many seconds before.
"""

QUICK = 3  # samples before a candidate may be given up
HOPELESS = 1.5  # times the incumbent from which a candidate is given up
SAMPLE = 3e-4  # least seconds of a sample
MOST = 24  # samples of one candidate
SINGLE = 9  # samples instead of ``QUICK``, and in a turn, where each call is timed alone
ROUNDS = 9  # of a race between kernels
CHECK_EVERY = 6  # rounds of a comparison between two checks if it may end
ROUND = 0.01  # seconds of each program in a round of a comparison, if its calls are short
WOKEN = 0.01  # seconds of bursts before a reading: cores that slept stay slow for a while
RACE_WOKEN = 0.05  # before a race
SETTLE = 1e-3  # seconds of warm-up: sleeping threads wake, caches fill
WARM = 2e-3  # calls shorter than this are preceded by one that is not timed
PATIENCE = 0.5  # seconds to prepare and time calls one by one; a busy machine takes long for it
FIRST = 4  # calls that are not timed, where each call is prepared and timed alone
DRIFT = 1.1  # slowdowns of the yardstick below this are noise
TRIES = 3  # attempts at a reading that exceeds the machine's peak, or during which cores slowed
CALIBRATED = 1.05  # the real peak relative to the measured one, at most
BELOW = 1 - 1e-12  # keeps a quotient of floats below the limit that it is bounded by
BURST = 3.0  # a larger slowdown is an interruption, which does not affect the next kernel


def at_pace(least: float) -> bool:
    """Take the cores to run at their usual pace: a ``Regain`` where that cannot be known."""
    return True


def clock_for(threads: int) -> Clock:
    """Return the clock for code with ``threads`` threads."""
    return time.thread_time if threads == 1 else time.perf_counter


def sample(call: Call, times: int, clock: Clock) -> float:
    """Return the seconds per call, over ``times`` calls."""
    began = clock()
    call(times)
    return (clock() - began) / times


def repeats(call: Call, clock: Clock, least: float = SAMPLE) -> int:
    """Return the number of calls in a sample of at least ``least`` seconds, after warm-up.

    The first calls after a pause are not representative: the pool's threads sleep, and the caches
    hold another kernel's data. Where each call is prepared and timed alone (``least`` is 0), the
    first ones fault pages in and raise the clock rate.
    """
    once = max(sample(call, 1, clock), 1e-9)
    if not least and once < WARM:
        sample(call, FIRST, clock)
    if not least or once >= max(least, WARM):
        return 1
    spent = once
    while spent < SETTLE:
        times = min(1000, int((SETTLE - spent) / once) + 1)
        once = max(sample(call, times, clock), 1e-9)
        spent += times * once
    return max(1, min(10_000, math.ceil(least / once)))


def quick(least: float) -> int:
    """Return the least number of samples for samples of ``least`` seconds."""
    return QUICK if least else SINGLE


def time_call(
    call: Call, clock: Clock, incumbent: float, fill: float, least: float = SAMPLE
) -> tuple[float, ...]:
    """Return samples of seconds per call; few if far slower than ``incumbent`` (0: none)."""
    began = time.monotonic()
    inner = repeats(call, clock, least)
    runs = [sample(call, inner, clock)]
    while len(runs) < (quick(least) if runs[0] < WARM else QUICK) and runs[0] < 1.0:
        if len(runs) >= QUICK and time.monotonic() - began > PATIENCE:
            break
        runs.append(sample(call, inner, clock))
    if incumbent and min(runs) > HOPELESS * incumbent:
        return tuple(runs)
    while sum(runs) * inner < fill and len(runs) < MOST:
        if not least and time.monotonic() - began > PATIENCE:
            break
        runs.append(sample(call, inner, clock))
    return tuple(runs)


def compare(
    calls: Sequence[Call],
    clock: Clock,
    seconds: float,
    settled: Callable[[Runs], bool],
    regain: Regain = at_pace,
) -> list[list[float]]:
    """Return the seconds per call of each, in rounds until ``settled`` or the time is used up.

    That is checked every ``CHECK_EVERY`` rounds.
    """
    began = clock()
    turns = Turns(calls, clock, ROUND, regain=regain)
    while True:
        for _ in range(CHECK_EVERY):
            turns.round()
        if clock() - began >= seconds or settled(turns.runs):
            return turns.runs


class Turns:
    """Calls timed in turns: in every round each gets the same number of samples.

    The order is reversed after every turn (A B B A). A round adds one run to each call: the typical
    one of its samples. A round during which the cores lost their pace is repeated.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        clock: Clock,
        fill: float,
        least: float = SAMPLE,
        regain: Regain = at_pace,
    ) -> None:
        """``fill`` is the seconds of samples of each call in a round, unless calls are longer.

        Samples take ``least`` seconds; with 0, each is a single prepared call.
        """
        self.runs: list[list[float]] = [[] for _ in calls]
        self._clock, self._regain = clock, regain
        regain(RACE_WOKEN)
        self._warm = bool(least)
        inner = [repeats(call, clock, least) for call in calls]
        once = [sample(call, times, clock) for call, times in zip(calls, inner, strict=True)]
        self._lanes = list(zip(range(len(calls)), calls, inner, once, strict=True))
        longest = max((n * t for n, t in zip(inner, once, strict=True)), default=0.0)
        turns = math.ceil(fill / (2 * max(longest, 1e-9)))
        turns = turns if least else min(turns, SINGLE // 2)  # preparing takes longer than a call
        self._turns = 2 * max(1, turns) if calls else 0

    def round(self) -> None:
        """Add one run of each."""
        for _ in range(TRIES):
            samples = self._samples()
            if self._regain(0.0):
                break
        for runs, found in zip(self.runs, samples, strict=True):
            runs.append(typical(tuple(found)))

    def _samples(self) -> list[list[float]]:
        samples: list[list[float]] = [[] for _ in self.runs]
        began = time.monotonic()
        for turn in range(self._turns):
            if turn >= 2 and not self._warm and time.monotonic() - began > PATIENCE:
                break
            for n, call, times, once in self._lanes:
                if self._warm and once < WARM:
                    call(1)  # other code ran before
                samples[n].append(sample(call, times, self._clock))
            self._lanes.reverse()
        return samples


@dataclass(slots=True)
class Yardstick:
    """The fastest kernel of a task so far, timed again beside every candidate.

    It measures how much the machine has slowed down, by other load or a lower clock; without it, a
    candidate timed in a slow minute could never win. Its own time is never corrected: a corrected
    time would make every later reading look like a slowdown.
    """

    call: Call | None = None
    seconds: float = math.inf

    def drift(self, clock: Clock, least: float = SAMPLE) -> float:
        """Return the slowdown of the machine since the yardstick was taken; 1 if negligible."""
        call = self.call
        if call is None:
            return 1.0
        inner = repeats(call, clock, least)
        now = quantile(tuple(sample(call, inner, clock) for _ in range(quick(least))), 0.5)
        self.seconds = min(now, self.seconds)
        slower = now / self.seconds
        return min(slower, BURST) if slower > DRIFT else 1.0

    def offer(self, call: Call, runs: Sequence[float]) -> None:
        """Make a kernel the yardstick if it is the fastest by its uncorrected time."""
        seconds = typical(tuple(runs))
        if seconds < self.seconds:
            self.call, self.seconds = call, seconds


def read_off(
    call: Call,
    clock: Clock,
    yardstick: Yardstick,
    incumbent: float,
    fill: float,
    floor: float,
    least: float = SAMPLE,
    regain: Regain = at_pace,
) -> tuple[tuple[float, ...], float] | None:
    """Return runs of a kernel, and the drift during them.

    A time below ``floor`` seconds exceeds the machine's peak: drift is limited so that the
    corrected time does not. A reading that does, or during which the cores lost their pace, is
    repeated, up to ``TRIES`` times in all; None if none is possible.
    """
    limit = floor / CALIBRATED
    found: tuple[tuple[float, ...], float] | None = None
    regain(WOKEN)
    for _ in range(TRIES):
        before = yardstick.drift(clock, least)
        runs = time_call(call, clock, incumbent * before, fill, least)
        kept = regain(0.0)
        if typical(runs) < limit:
            continue
        # A slowdown of only one of the two was an interruption, which may not affect the runs.
        drift = min(before, yardstick.drift(clock, least)) if before > 1 else 1.0
        drift = max(1.0, min(drift, BELOW * typical(runs) / limit)) if limit else drift
        if found is None or typical(runs) < typical(found[0]):
            found = runs, drift
        if kept:
            break
    return found
