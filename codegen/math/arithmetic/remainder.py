"""Remainders of a float's division, exact as C's ``fmod``, in vectors."""

from __future__ import annotations

import math

from ....ir.dtypes import f32
from .arith_value import ArithValue
from .rare import unless_rare


def exact_remainder(x: ArithValue, y: ArithValue) -> ArithValue:
    """Return ``x - y * trunc(x / y)``, not rounded, with the sign of ``x``; needs an fma.

    A quotient of fewer bits than a significand is, rounded and truncated, what is wanted or 1 more.
    What the fma then leaves is a multiple of the last place of ``y`` and at most ``y`` in size, so
    it is exact, and so is the sum that mends it. Other lanes call ``fmod``.
    """
    a, divisor = x.abs(), y.abs()
    quotient = (a / divisor).floor()
    rest = (-quotient).fma(divisor, a)
    rest = (rest < 0.0).where(rest + divisor, rest).copysign(x)
    large = x.lift(2.0 ** (24 if x.dtype == f32 else 53))
    rare = quotient.is_not_below(large) | divisor.equals(math.inf)
    return unless_rare("remainder", rare, rest, (x, y), lambda x, y: x % y)
