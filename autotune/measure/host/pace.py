"""The pace of the cores: whether all threads run as fast as they usually do, and a wait until so.

A hypervisor may wake two virtual cores on the hardware threads of one core and move them apart only
after tens of milliseconds. What is timed until then takes up to twice as long, although neither the
system nor a thread's CPU time tells of it. A burst of multiply-adds on all threads does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ....ir.target import Target
from .peak import PeakLoops

LEAST = 0.8  # of the usual rate, from which the cores are at their pace
IN_A_ROW = 3  # bursts that have to be
LEARNED = 0.1  # seconds of bursts from which the usual rate is learned
PATIENCE = 1.0  # seconds of bursts until what is found is taken to be usual
ALLOWED, SHARE = 2.0, 0.1  # seconds that all waits may take, and the share of the time since


class Pace:
    """The rate of bursts now beside the usual one, which is the highest seen.

    ``burst`` returns the rate of one, in any unit. Where the cores do not regain their pace within
    ``PATIENCE``, what they have is usual from then on, until a higher rate is seen again: a machine
    that stays slow is waited for once, and one that is often slow for a tenth of the time.
    """

    def __init__(
        self, burst: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.usual = self.waited = 0.0
        self._burst, self._clock, self._since = burst, clock, clock()

    def regain(self, least: float = 0.0) -> bool:
        """Keep the cores busy until they run at their usual pace; return if they did at once.

        For ``least`` seconds in any case: a core that slept may be slow in what no burst shows.
        """
        if not self.usual:
            self._keep_busy(LEARNED)
            return False
        if least:
            self._keep_busy(least)
        if self._steady():
            return True
        began, best = self._clock(), self._seen()
        left = ALLOWED + SHARE * (began - self._since) - self.waited
        while not self._steady():
            if self._clock() - began >= min(PATIENCE, left):
                self.usual = best
                break
            best = max(best, self._seen())
        self.waited += self._clock() - began
        return False

    def _steady(self) -> bool:
        """Return if some bursts in a row are at the usual pace; ends with the first that is not."""
        return all(self._seen() >= LEAST * self.usual for _ in range(IN_A_ROW))

    def _seen(self) -> float:
        rate = self._burst()
        self.usual = max(self.usual, rate)
        return rate

    def _keep_busy(self, seconds: float) -> None:
        began = self._clock()
        self._seen()
        while self._clock() - began < seconds:
            self._seen()


def pace_of(target: Target, clock: Callable[[], float]) -> Pace:
    """Return the pace of this machine's cores with the target's threads, by a clock for them."""
    work = PeakLoops(target).burst()

    def burst() -> float:
        began = clock()
        work.call(0)
        return work.amount / max(clock() - began, 1e-9)

    return Pace(burst)
