"""Logarithms and powers in f32; and log in f64 for other files.

``log(x) = e * ln 2 + log(m)`` with ``x = 2**e * m`` and ``sqrt(1/2) <= m < sqrt(2)``. In f32, with
``f = m - 1``, ``log(m) = f - f**2 / 2 + f**3 * P(f)``; in f64 ``log(m) = 2 atanh(s)`` with ``s = f
/ (2 + f)``. The polynomials interpolate at the Chebyshev nodes of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..arithmetic.arith_value import ArithValue, clamp, horner
from .exp import exp_double

_SINGLE = (
    0.333333311800300481,
    -0.24999996957950882,
    0.200007157488921017,
    -0.166678023195012541,
    0.142490576456974804,
    -0.124256873314511061,
    0.116854199234867393,
    -0.114797338466376356,
    0.0697161147145117783,
)
_DOUBLE = (
    0.333333333333310416,
    0.200000000056032532,
    0.142857120691620803,
    0.111114311400543578,
    0.0907009690143299554,
    0.0831090857642946409,
)
_ROOT_HALF_BITS = 0x3F3504F3  # sqrt(1/2) in f32
_ROOT_HALF_DOUBLE_BITS = 0x3FE6A09E667F3BCD
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
_LEAST_NORMAL = 1.17549435082228751e-38


def log(x: ArithValue, rest: ArithValue | None = None) -> ArithValue:
    """Return the natural logarithm, f32, plus a small ``rest``."""
    tiny = x < _LEAST_NORMAL
    bits = tiny.where(x * 8388608.0, x).bits()
    exponent = (bits - _ROOT_HALF_BITS) >> 23
    f = (bits - (exponent << 23)).floats() - 1.0
    e = exponent.as_float() - tiny.where(x.lift(23.0), 0.0)
    square = f * f
    low = e * _LN2_LOW if rest is None else e.fma(_LN2_LOW, rest)
    tail = (f * square).fma(horner(f, *_SINGLE), low)
    result = e.fma(_LN2_HIGH, f + square.fma(-0.5, tail))
    return log_special_cases(x, result)


def log_special_cases(x: ArithValue, result: ArithValue) -> ArithValue:
    """Replace a logarithm's result where ``x`` is 0, negative, infinite or NaN."""
    result = (x < math.inf).where(result, x)  # infinity and NaN give themselves
    result = x.equals(0.0).where(x.lift(-math.inf), result)
    return (x < 0.0).where(x.lift(math.nan), result)


def log_double(x: ArithValue) -> ArithValue:
    """Return the natural logarithm of positive normal f64, to a relative error of 2**-45."""
    bits = x.bits()
    exponent = (bits - _ROOT_HALF_DOUBLE_BITS) >> 52
    f = (bits - (exponent << 52)).floats() - 1.0
    s = f.over(f + 2.0)
    z = s * s
    m = (s * 2.0).fma(z * horner(z, *_DOUBLE), s * 2.0)
    return exponent.as_float().fma(math.log(2), m)


def log1p(x: ArithValue) -> ArithValue:
    """Return log(1 + x), f32."""
    d = x.double()
    by_log = log_double(d + 1.0).single()
    series = (d * horner(d, 1.0, -1 / 2, 1 / 3, -1 / 4)).single()
    result = log_special_cases(x + 1.0, by_log)
    return (x.abs() < 1e-3).where(x.equals(0.0).where(x, series), result)


def power_single(x: ArithValue, y: ArithValue) -> ArithValue:
    """Return x**y, f32."""
    return power(x, y, power_magnitude)


def power(
    x: ArithValue, y: ArithValue, magnitude: Callable[[ArithValue, ArithValue], ArithValue]
) -> ArithValue:
    """Return x**y with the special cases of IEEE 754's pow, ``magnitude(|x|, y)`` being
    its size.
    """
    a = x.abs()
    regular = magnitude(a, y)
    whole = y.rint().equals(y)
    half = y * 0.5
    odd = whole & (half.rint().equals(half) ^ True)
    negative = x.bits() < 0
    result = (negative & odd).where(-regular, regular)
    undefined = (x < 0.0) & (a < math.inf) & (whole ^ True)
    result = undefined.where(x.lift(math.nan), result)
    one = x.equals(1.0) | y.equals(0.0) | (a.equals(1.0) & y.abs().equals(math.inf))
    return one.where(x.lift(1.0), result)


def power_magnitude(a: ArithValue, y: ArithValue) -> ArithValue:
    """Return a**y for f32 ``a >= 0``, by way of f64."""
    exponent = y.double() * log_double(a.double())
    return power_special_cases(a, y, exp_double(clamp(exponent, -300.0, 300.0)).single())


def power_special_cases(a: ArithValue, y: ArithValue, result: ArithValue) -> ArithValue:
    """Replace a power's result where the base is 0 or infinite, or an operand is NaN."""
    grows = y > 0.0
    zero, infinite = a.lift(0.0), a.lift(math.inf)
    result = a.equals(0.0).where(grows.where(zero, infinite), result)
    result = a.equals(math.inf).where(grows.where(infinite, zero), result)
    return (a.is_nan() | y.is_nan()).where(a + y, result)
