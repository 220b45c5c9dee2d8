"""Sums of two f64, the lower one below the other's last place: twice the digits where they count.

The exact sum and product of two numbers are after Knuth and Dekker; they need a fused multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from .num import Num


@dataclass(frozen=True, slots=True)
class Pair:
    """``high + low``."""

    high: Num
    low: Num

    def __add__(self, other: Pair) -> Pair:
        total = added(self.high, other.high)
        return joined(total.high, total.low + (self.low + other.low))

    def __mul__(self, other: Pair) -> Pair:
        product = multiplied(self.high, other.high)
        cross = self.high.fma(other.low, self.low * other.high)
        return joined(product.high, product.low + cross)


def joined(high: Num, low: Num) -> Pair:
    """The pair of two numbers, the first not smaller in size."""
    total = high + low
    return Pair(total, low - (total - high))


def added(a: Num, b: Num | float) -> Pair:
    """``a + b`` exactly."""
    b = a.lift(b)
    total = a + b
    part = total - a
    return Pair(total, (a - (total - part)) + (b - part))


def multiplied(a: Num, b: Num | float) -> Pair:
    """``a * b`` exactly."""
    product = a * b
    return Pair(product, a.fma(b, -product))


def constant(like: Num, high: float, low: float) -> Pair:
    """A number known to more digits than one f64 has."""
    return Pair(like.lift(high), like.lift(low))
