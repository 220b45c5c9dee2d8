"""Double-word arithmetic: unevaluated sums of two floats with twice the significant digits.

The error-free sum and product are those of Knuth and Dekker; they need a fused multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arith_value import ArithValue


@dataclass(frozen=True, slots=True)
class DoubleWord:
    """The unevaluated sum ``high + low``, where ``low`` is below the last place of ``high``."""

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
    """Return ``high + low`` exactly, for ``abs(high) >= abs(low)``."""
    total = high + low
    return DoubleWord(total, low - (total - high))


def two_sum(a: ArithValue, b: ArithValue | float) -> DoubleWord:
    """Return ``a + b`` exactly."""
    b = a.lift(b)
    total = a + b
    part = total - a
    return DoubleWord(total, (a - (total - part)) + (b - part))


def two_prod(a: ArithValue, b: ArithValue | float) -> DoubleWord:
    """Return ``a * b`` exactly."""
    product = a * b
    return DoubleWord(product, a.fma(b, -product))


def constant(like: ArithValue, high: float, low: float) -> DoubleWord:
    """Return a constant with more digits than one float holds."""
    return DoubleWord(like.lift(high), like.lift(low))


def divide(a: DoubleWord, b: DoubleWord) -> DoubleWord:
    """Return ``a / b`` for operands of moderate size."""
    q = a.high.over(b.high)
    lost = (-q).fma(b.high, a.high) + q.fma(-b.low, a.low)
    return DoubleWord(q, lost.over(b.high))
