"""Sums of two f64, the lower one below the other's last place: twice the digits where they count.

The exact sum and product of two numbers are after Knuth and Dekker; they need a fused multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arith_value import ArithValue


@dataclass(frozen=True, slots=True)
class DoubleWord:
    """``high + low``."""

    high: ArithValue
    low: ArithValue

    def __add__(self, other: DoubleWord) -> DoubleWord:
        total = two_sum(self.high, other.high)
        return fast_two_sum(total.high, total.low + (self.low + other.low))

    def __mul__(self, other: DoubleWord) -> DoubleWord:
        product = two_prod(self.high, other.high)
        cross = self.high.fma(other.low, self.low * other.high)
        return fast_two_sum(product.high, product.low + cross)


def fast_two_sum(high: ArithValue, low: ArithValue) -> DoubleWord:
    """The pair of two numbers, the first not smaller in size."""
    total = high + low
    return DoubleWord(total, low - (total - high))


def two_sum(a: ArithValue, b: ArithValue | float) -> DoubleWord:
    """``a + b`` exactly."""
    b = a.lift(b)
    total = a + b
    part = total - a
    return DoubleWord(total, (a - (total - part)) + (b - part))


def two_prod(a: ArithValue, b: ArithValue | float) -> DoubleWord:
    """``a * b`` exactly."""
    product = a * b
    return DoubleWord(product, a.fma(b, -product))


def constant(like: ArithValue, high: float, low: float) -> DoubleWord:
    """A number known to more digits than one f64 has."""
    return DoubleWord(like.lift(high), like.lift(low))
