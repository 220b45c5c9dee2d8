"""Division by a constant as a product and a fused multiply-add, rounded as the division is.

The reciprocal of a divisor is known to twice a float's digits, as ``high + low``, and a quotient is
``fma(x, high, x * low)`` (N. Brisebarre, J.-M. Muller, S. K. Raina, IEEE Transactions on Computers
53, 2004). It is wrong only where ``x / y`` is next to the middle of two floats, of which there are
a few for each divisor: they are computed here, and tried. ``high`` is not beyond the reciprocal, so
that both products of an infinite ``x`` have one sign, and those of zeros, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

NEAREST = 16
"""Distances from the middle of two floats at which the sum may err, in units of the last place that
the numerator of the difference has: ``low`` is wrong by 1.5 of its last places at most, and its
product with ``x`` by half of one."""


@lru_cache(maxsize=4096)
def reciprocal(divisor: float, digits: int) -> tuple[float, float] | None:
    """Return ``(high, low)``, with which every quotient by a divisor is as if divided.

    ``digits`` are those of the float type, 24 or 53. None if there are no such numbers, or the
    reciprocal is a float itself. Quotients so small that ``x * low`` is denormal may be wrong by
    a unit in their last place.
    """
    y = math.frexp(abs(divisor))[0] * 2**digits
    if not y.is_integer():
        return None
    exact = Fraction(1, int(y))
    numerators = tuple(_next_to_middles(int(y), digits))
    for high in (_nearest(exact, digits), _floor(exact, digits)):
        rest = exact - high
        if rest <= 0:
            continue
        low, unit = _nearest(rest, digits), _unit(rest, digits)
        for near in (low, low + unit, low - unit):
            if all(_is_right(x, int(y), high, near, digits) for x in numerators):
                scale = int(y) / divisor
                return float(high) * scale, float(near) * scale
    return None


def _is_right(x: int, y: int, high: Fraction, low: Fraction, digits: int) -> bool:
    found = _nearest(x * high + _nearest(x * low, digits), digits)
    return found == _nearest(Fraction(x, y), digits)


def _next_to_middles(y: int, digits: int) -> Iterator[int]:
    """Yield the significands x for which ``x / y`` is nearest to the middle of two floats.

    With a quotient's scale s such a middle is ``m / s`` for an odd m, and the distance from it is
    ``k / (s y)`` with ``k = s x - m y``, a small number: x is a solution of ``s x = k`` modulo y.
    """
    least, most = 1 << (digits - 1), 1 << digits
    for scale in (most, 2 * most):
        shared = math.gcd(scale, y)
        modulus = y // shared
        inverse = pow(scale // shared, -1, modulus) if modulus > 1 else 0
        for k in range(-NEAREST, NEAREST + 1):
            if k % shared or not k:
                continue
            first = k // shared * inverse % modulus
            for x in range(first + -(-(least - first) // modulus) * modulus, most, modulus):
                if (scale * x - k) // y % 2 and (x >= y) == (scale == most):
                    yield x


def _unit(x: Fraction, digits: int) -> Fraction:
    """Return the last place of a positive number: that of its floats of so many digits."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** e > x:
        e -= 1
    return Fraction(2) ** (e - digits + 1)


def _nearest(x: Fraction, digits: int) -> Fraction:
    unit = _unit(x, digits)
    return round(x / unit) * unit  # to even


def _floor(x: Fraction, digits: int) -> Fraction:
    unit = _unit(x, digits)
    return math.floor(x / unit) * unit
