"""Logarithms, powers and hyperbolic functions in f64, and exponentials of several parts.

They need a fused multiply-add. Polynomials are truncated series, long enough for the reduced range
of their arguments, or interpolate at its Chebyshev nodes. Errors are at most about 2 ulp.
"""

from __future__ import annotations

import math

from ..arithmetic.arith_value import ArithValue, clamp, horner
from ..arithmetic.double_log import DoubleLog
from ..arithmetic.double_word import DoubleWord, fast_two_sum, two_prod, two_sum
from ..f32 import exp as exp_f32
from ..f32.exp import DOUBLE
from ..f32.log import log_special_cases, power, power_special_cases

_LN2 = 0.693147180559945286
_SINH = tuple(1 / math.factorial(2 * k + 3) for k in range(8))
_LOG = (
    0.6666666666666666,
    0.40000000000000885,
    0.28571428570799784,
    0.22222222392581045,
    0.18181795547521137,
    0.15386244737621665,
    0.13268638369266825,
    0.13088034850927555,
)
_DOUBLE_LOG = DoubleLog(
    place=52,
    root_half_bits=0x3FE6A09E667F3BCD,
    least_normal=2.0**-1022,
    shift=54,
    ln2=(_LN2, 2.31904681384629956e-17),
    thirds=(0.66666666666666663, 3.70074341541718792e-17),
    series=tuple(2 / (2 * k + 5) for k in range(11)),
)


def times_exp(
    factor: ArithValue, rest: ArithValue, high: ArithValue, low: ArithValue
) -> ArithValue:
    """Return ``(factor + rest) * e**(high + low)``; ``rest`` and ``low`` are below last places."""
    value, n, number = DOUBLE.product(factor, rest, high, (high.abs() < 750.0).where(low, 0.0))
    return exp_f32.scale(value, n, number)


def _powers(x: ArithValue) -> tuple[ArithValue, ArithValue, ArithValue]:
    """Return the high and low parts of e**|x| / 2, and e**-|x| / 2, all scaled by 2**-64."""
    _, n, r = DOUBLE.reduce(clamp(x.abs(), 0.0, 711.0))
    beyond = r * r * DOUBLE.beyond(r)
    high = r + beyond + 1.0
    low = (r - (high - 1.0)) + beyond
    s = DOUBLE.power_of_two(n - 65)
    capped = (n > 100).where(n.lift(100), n)
    shrunk = high.lift(1.0).over(high) * DOUBLE.power_of_two(-65 - capped)
    return s * high, s * low, shrunk


def sinh(x: ArithValue) -> ArithValue:
    """Return the hyperbolic sine."""
    a, z = x.abs(), x * x
    grown, rest, shrunk = _powers(x)
    far = (grown + (rest - shrunk)) * 2.0**64
    return (a < 0.55).where((a * z).fma(horner(z, *_SINH), a), far).copysign(x)


def cosh(x: ArithValue) -> ArithValue:
    """Return the hyperbolic cosine."""
    grown, rest, shrunk = _powers(x)
    return (grown + (rest + shrunk)) * 2.0**64


def log(x: ArithValue, rest: ArithValue | None = None) -> ArithValue:
    """Return the natural logarithm: ``log(1 + f) = f - (h - s (h + R(s)))`` with ``h = f**2 / 2``.

    A small ``rest`` is added to the result.
    """
    e, m = _DOUBLE_LOG.split(x)
    f = m - 1.0
    s = f.over(f + 2.0)
    z = s * s
    half = f * f * 0.5
    low = e * DOUBLE.ln2_low
    tail = s.fma(half + z * horner(z, *_LOG), low if rest is None else low + rest)
    return log_special_cases(x, e * DOUBLE.ln2_high - ((half - tail) - f))


def pow(x: ArithValue, y: ArithValue) -> ArithValue:
    """Return x**y with the special cases of IEEE 754's pow."""
    return power(x, y, _power_magnitude)


def _power_magnitude(a: ArithValue, y: ArithValue) -> ArithValue:
    exponent = _DOUBLE_LOG.power_exponent(a, y)
    grown = times_exp(a.lift(1.0), a.lift(0.0), exponent.high, exponent.low)
    return power_special_cases(a, y, grown)


def log1p(x: ArithValue) -> ArithValue:
    """Return log(1 + x), corrected for the rounding of the sum."""
    return _log1p(DoubleWord(x, x.lift(0.0)))


def _log1p(x: DoubleWord) -> ArithValue:
    total = two_sum(x.high, 1.0)
    result = log(total.high, (total.low + x.low).over(total.high, maybe_inf=True))
    result = (x.high < math.inf).where(result, x.high)
    result = x.high.equals(-1.0).where(x.high.lift(-math.inf), result)
    return x.high.equals(0.0).where(x.high, result)


def sqrt_double_word(s: DoubleWord) -> DoubleWord:
    """Return the square root of a non-negative double word not as small as a denormal's square."""
    root = s.high.sqrt()
    low = ((-root).fma(root, s.high) + s.low).over(root + root)
    return DoubleWord(root, s.high.equals(0.0).where(root.lift(0.0), low))


def asinh(x: ArithValue) -> ArithValue:
    """Return the inverse hyperbolic sine."""
    a = x.abs()
    square = a * a
    near = _log1p(fast_two_sum(a, square / ((square + 1.0).sqrt() + 1.0)))
    return (a > 2.0**28).where(log(a) + _LN2, near).copysign(x)


def acosh(x: ArithValue) -> ArithValue:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    t, above = x - 1.0, two_sum(x, 1.0)
    square = two_prod(t, above.high)
    leg = sqrt_double_word(DoubleWord(square.high, t.fma(above.low, square.low)))
    whole = fast_two_sum(leg.high, t)
    near = _log1p(DoubleWord(whole.high, whole.low + leg.low))
    result = (x > 2.0**28).where(log(x) + _LN2, near)
    return (x < 1.0).where(x.lift(math.nan), result)


def atanh(x: ArithValue) -> ArithValue:
    """Return the inverse hyperbolic tangent; NaN outside of -1 .. 1."""
    a = x.abs()
    left = two_sum(-a, 1.0)
    ratio = a * 2.0 / left.high
    lost = (-ratio).fma(left.high, a * 2.0) - ratio * left.low
    result = _log1p(DoubleWord(ratio, lost / left.high)) * 0.5
    result = (a > 1.0).where(a.lift(math.nan), result)
    return a.equals(1.0).where(a.lift(math.inf), result).copysign(x)
