"""Which of two programs is faster, from times taken in turns: a ratio and how sure it is.

Both are timed in every round, so what disturbs a round disturbs both. The median of the rounds'
ratios is the answer; the interval round it is that of order statistics, which assumes nothing about
how times are distributed (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..log.records import CLEAR, clearly_faster, quantile, ratios

CONFIDENCE = 0.99
NARROW = 0.01  # relative width of an interval that needs no more rounds


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """Seconds per call of a default and of another program, round by round."""

    default_runs: tuple[float, ...]
    runs: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Default over the other, in each round: above 1 the other is faster."""
        return ratios(self.default_runs, self.runs)

    @property
    def speedup(self) -> float:
        """The median of the ratios."""
        return quantile(self.ratios, 0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the speed-up lies with ``CONFIDENCE``; (0, inf) where the rounds are too few."""
        return interval(self.ratios)

    @property
    def faster(self) -> bool:
        """Whether the other is clearly faster, and surely not slower."""
        return clearly_faster(1.0, self.speedup) and self.interval[0] >= 1.0


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of the median of what the values are drawn from; (0, inf) if they are too few."""
    n = len(values)
    allowed = int(Fraction((1 - confidence) / 2) * 2**n)
    # Of 2**n equally likely orders, those in which exactly k values lie below the median, and
    # those in which fewer do.
    exactly, fewer, k = 1, 0, 0
    while fewer + exactly <= allowed:
        fewer += exactly
        exactly = exactly * (n - k) // (k + 1)
        k += 1
    if k == 0:
        return 0.0, math.inf
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def settled(runs: Sequence[Sequence[float]]) -> bool:
    """Whether more rounds would not change the answer: the first program against all others.

    That is so when every interval is narrow, or on one side both of clearly faster and of clearly
    slower.
    """
    first, *others = (tuple(r) for r in runs)
    for other in others:
        low, high = SpeedComparison(first, other).interval
        narrow = high - low <= NARROW * low
        if not narrow and any(low < bound <= high for bound in (CLEAR, 1 / CLEAR)):
            return False
    return True
