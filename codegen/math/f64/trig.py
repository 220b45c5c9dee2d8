"""Sines, cosines and tangents in f64.

A multiple of pi/2 is subtracted in three parts: the difference from the first product is exact, and
what the second one's rounding loses is kept (Cody and Waite, 1980). Lanes beyond 2**30 are reduced
by ``math.quadrant``. The polynomials are truncated series.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..arithmetic.arith_value import ArithValue, horner
from ..arithmetic.double_word import DoubleWord, divide, fast_two_sum, two_prod, two_sum
from ..arithmetic.quadrant import is_odd, quadrant, signed
from ..arithmetic.rare import unless_rare

_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(1, 10))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(2, 10))
_RIGHT = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33
_FAR = 2.0**30
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: a sum ends in an integer's bits


def _near(x: ArithValue) -> tuple[ArithValue, DoubleWord]:
    """Return the quadrant and the reduced argument for ``0 <= x <= _FAR``.

    The last two products are next to the reduced argument where that is smallest.
    """
    shifted = x.fma(2 / math.pi, _MAGIC)
    n = shifted - _MAGIC
    product = two_prod(n, _RIGHT[1])
    rest = two_sum(n.fma(-_RIGHT[0], x), -product.high)
    return shifted.bits(), DoubleWord(rest.high, rest.low - n.fma(_RIGHT[2], product.low))


def _by_quadrant(
    name: str, x: ArithValue, value: Callable[[ArithValue, ArithValue, DoubleWord], ArithValue]
) -> ArithValue:
    """Return ``value(x, number, r)``, ``number`` being the quadrant and ``r`` what is left."""

    def anywhere(x: ArithValue) -> ArithValue:
        return value(x, *quadrant(x.abs()))

    a = x.abs()
    return unless_rare(name, a > _FAR, value(x, *_near(a)), (x,), anywhere)


def sin(x: ArithValue) -> ArithValue:
    """Return the sine."""
    return _by_quadrant("sine", x, _sine)


def cos(x: ArithValue) -> ArithValue:
    """Return the cosine."""
    return _by_quadrant("cosine", x, _cosine)


def tan(x: ArithValue) -> ArithValue:
    """Return the tangent."""
    return _by_quadrant("tangent", x, _tangent)


def _sine_and_cosine(r: DoubleWord) -> tuple[DoubleWord, DoubleWord]:
    """Return sine and cosine of ``|r| <= pi / 4``."""
    high, rest = r.high, r.low
    z = high * high
    sine = fast_two_sum(high, (high * z).fma(horner(z, *_SINE), rest * z.fma(-0.5, 1.0)))
    half = z * 0.5
    near = 1.0 - half
    tail = (z * z).fma(horner(z, *_COSINE), -(high * rest))
    return sine, fast_two_sum(near, ((1.0 - near) - half) + tail)


def _negate_if_negative(value: ArithValue, x: ArithValue) -> ArithValue:
    """Negate the value where ``x`` is negative, -0 included."""
    return (x.bits() < 0).where(-value, value)


def _sine(x: ArithValue, number: ArithValue, r: DoubleWord) -> ArithValue:
    sine, cosine = _sine_and_cosine(r)
    value = signed(is_odd(number).where(cosine.high, sine.high), number)
    return _negate_if_negative(value, x)


def _cosine(_: ArithValue, number: ArithValue, r: DoubleWord) -> ArithValue:
    sine, cosine = _sine_and_cosine(r)
    return signed(is_odd(number).where(sine.high, cosine.high), number + 1)


def _tangent(x: ArithValue, number: ArithValue, r: DoubleWord) -> ArithValue:
    sine, cosine = _sine_and_cosine(r)
    odd = is_odd(number)
    above = DoubleWord(odd.where(-cosine.high, sine.high), odd.where(-cosine.low, sine.low))
    below = DoubleWord(odd.where(sine.high, cosine.high), odd.where(sine.low, cosine.low))
    ratio = divide(above, below)
    return _negate_if_negative(ratio.high + ratio.low, x)
