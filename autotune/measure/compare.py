"""Comparison of two programs timed in turns: speed-up and confidence interval.

Both are timed in every round, so a disturbance affects both. The speed-up is the median of the
rounds' ratios; its confidence interval is based on order statistics, which assumes nothing about
the distribution of times (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
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
        """The confidence interval of the speed-up; (0, inf) if there are too few rounds."""
        return interval(self.ratios)

    @property
    def faster(self) -> bool:
        """True if the other is clearly faster, and not slower with confidence."""
        return clearly_faster(1.0, self.speedup) and self.interval[0] >= 1.0


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the confidence interval of the median; (0, inf) if there are too few values."""
    n = len(values)
    allowed = int(Fraction((1 - confidence) / 2) * 2**n)
    # Of 2**n equally likely outcomes, those with exactly k values below the median, and those
    # with fewer.
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
    """True if more rounds would not change the comparison of the first program with the others.

    Every interval is narrow, or does not contain the thresholds of clearly faster and slower.
    """
    first, *others = (tuple(r) for r in runs)
    for other in others:
        low, high = SpeedComparison(first, other).interval
        narrow = high - low <= NARROW * low
        if not narrow and any(low < bound <= high for bound in (CLEAR, 1 / CLEAR)):
            return False
    return True
