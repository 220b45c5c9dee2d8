"""Exponentials, logarithms, powers and hyperbolic functions in f64, for machines without libm.

The polynomials are the series themselves, long enough for the range that the arguments are brought
to. Errors are at most 2 units in the last place or little more.
"""

from __future__ import annotations

import math

from .vector_math_log import at_the_ends, power, power_at_the_ends
from .vector_math_num import Num, between, horner
from .vector_math_pair import Pair, added, constant, joined, multiplied

_LOG2E = 1.44269504088896340736
_LN2, _LN2_REST = 0.693147180559945286, 2.31904681384629956e-17
_LN2_HIGH = math.ldexp(math.floor(math.ldexp(_LN2, 32)), -32)  # times an exponent: exact
_LN2_LOW = (_LN2 - _LN2_HIGH) + _LN2_REST
_THIRDS = 0.66666666666666663, 3.70074341541718792e-17  # 2/3
_EXP = tuple(1 / math.factorial(k) for k in range(2, 14))
_LOG = tuple(2 / (2 * k + 3) for k in range(12))
_MAGIC, _MAGIC_BITS = 6755399441055744.0, 0x4338000000000000  # 1.5 * 2**52
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
_LEAST_NORMAL = 2.0**-1022
_TINY_SHIFT = 54


def _reduced(x: Num) -> tuple[Num, Num, Num]:
    """``n``, as f64 and as an integer, and ``r`` of ``x = n ln 2 + r``."""
    shifted = x.fma(_LOG2E, _MAGIC)
    n = shifted - _MAGIC
    r = n.fma(-_LN2_REST, n.fma(-_LN2, x))
    return n, shifted.bits() - _MAGIC_BITS, r


def _minus_one(r: Num) -> Num:
    return (r * r).fma(horner(r, *_EXP), r)


def _power_of_two(n: Num) -> Num:
    """``2**n`` for integers -1022 <= n <= 1023."""
    return ((n + 1023) << 52).floats()


def _scaled(x: Num, n: Num) -> Num:
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def exp(x: Num) -> Num:
    """e**x."""
    _, n, r = _reduced(between(x, -746.0, 710.0))
    return _scaled(_minus_one(r) + 1.0, n)


def _exp_of_pair(x: Pair) -> Num:
    """e**x, whose size may have no bounds."""
    inside = x.high.abs() < 750.0
    low = inside.where(x.low, 0.0)
    _, n, r = _reduced(between(x.high, -746.0, 711.0))
    return _scaled(_minus_one(r + low) + 1.0, n)


def expm1(x: Num) -> Num:
    """e**x - 1: twice ``2**(n-1) * (e**r - 1) + (2**(n-1) - 1/2)``, without overflow."""
    _, n, r = _reduced(between(x, -40.0, 710.0))
    half = _power_of_two(n - 1)
    result = half.fma(_minus_one(r), half - 0.5) * 2.0
    return x.equals(0.0).where(x, result)


def logistic(x: Num) -> Num:
    """1 / (1 + e**-x), by way of e**-|x|."""
    small = exp(-x.abs())
    top = (x < 0.0).where(small, x.lift(1.0))
    return top.over(small + 1.0)


def tanh(x: Num) -> Num:
    """Hyperbolic tangent: ``u / (u + 2)`` with ``u = expm1(2 |x|)``."""
    u = expm1(between(x.abs(), 0.0, 22.0) * 2.0)
    return u.over(u + 2.0).copysign(x)


def _half_power(a: Num) -> Num:
    """e**a / 2 for large numbers, without overflow before its time."""
    root = exp(a * 0.5)
    return root * 0.5 * root


def sinh(x: Num) -> Num:
    """Hyperbolic sine."""
    a = x.abs()
    u = expm1(between(a, 0.0, 40.0))
    result = (a > 40.0).where(_half_power(a), (u + u.over(u + 1.0)) * 0.5)
    return result.copysign(x)


def cosh(x: Num) -> Num:
    """Hyperbolic cosine."""
    a = x.abs()
    grown = exp(between(a, 0.0, 40.0))
    return (a > 40.0).where(_half_power(a), grown * 0.5 + 0.5 / grown)


def _split(x: Num) -> tuple[Num, Num]:
    """The exponent, as f64, and the rest between the roots of 1/2 and 2, of ``x > 0``."""
    tiny = x < _LEAST_NORMAL
    bits = tiny.where(x * 2.0**_TINY_SHIFT, x).bits()
    exponent = (bits - _ROOT_HALF_BITS) >> 52
    rest = (bits - (exponent << 52)).floats()
    return exponent.as_float() - tiny.where(x.lift(float(_TINY_SHIFT)), 0.0), rest


def log(x: Num) -> Num:
    """Natural logarithm: ``log(1 + f) = f - (h - s (h + R(s)))`` with ``h = f**2 / 2``."""
    e, m = _split(x)
    f = m - 1.0
    s = f.over(f + 2.0)
    z = s * s
    half = f * f * 0.5
    tail = s.fma(half + z * horner(z, *_LOG), e * _LN2_LOW)
    return at_the_ends(x, e * _LN2_HIGH - ((half - tail) - f))


def _log_pair(x: Num) -> Pair:
    """Natural logarithm of ``x > 0`` to 64 bits: ``2 s + s z (2/3 + 2/5 z + ...)``, ``z = s s``."""
    e, m = _split(x)
    f, below = m - 1.0, added(m, 1.0)
    quotient = f.over(below.high)
    rest = (-quotient).fma(below.high, f) - quotient * below.low
    s = Pair(quotient, rest.over(below.high))
    z = s * s
    u = constant(x, *_THIRDS) + Pair(z.high * horner(z.high, *_LOG[1:]), x.lift(0.0))
    series = s * (constant(x, 2.0, 0.0) + z * u)
    whole = multiplied(e, _LN2)
    return joined(whole.high, e.fma(_LN2_REST, whole.low)) + series


def pow(x: Num, y: Num) -> Num:
    """x**y with the special cases of IEEE 754's pow."""
    return power(x, y, _power_of_size)


def _power_of_size(a: Num, y: Num) -> Num:
    logarithm = _log_pair(a)
    product = multiplied(logarithm.high, y)
    low = logarithm.low.fma(y, product.low)
    return power_at_the_ends(a, y, _exp_of_pair(Pair(product.high, low)))


def log1p(x: Num) -> Num:
    """log(1 + x): what the sum lost is put back."""
    total = added(x, 1.0)
    result = log(total.high) + total.low / total.high
    result = (x < math.inf).where(result, x)
    result = x.equals(-1.0).where(x.lift(-math.inf), result)
    return x.equals(0.0).where(x, result)


def asinh(x: Num) -> Num:
    """Inverse hyperbolic sine."""
    a = x.abs()
    square = a * a
    near = log1p(a + square / ((square + 1.0).sqrt() + 1.0))
    return (a > 2.0**28).where(log(a) + _LN2, near).copysign(x)


def acosh(x: Num) -> Num:
    """Inverse hyperbolic cosine; NaN below 1."""
    t = x - 1.0
    near = log1p(t + (t * t + t * 2.0).sqrt())
    result = (x > 2.0**28).where(log(x) + _LN2, near)
    return (x < 1.0).where(x.lift(math.nan), result)


def atanh(x: Num) -> Num:
    """Inverse hyperbolic tangent; NaN outside of -1 .. 1."""
    a = x.abs()
    result = log1p(a * 2.0 / (1.0 - a)) * 0.5
    result = (a > 1.0).where(a.lift(math.nan), result)
    return a.equals(1.0).where(a.lift(math.inf), result).copysign(x)
