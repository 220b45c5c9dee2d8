"""Error functions, cube roots and inverses of sine, cosine and tangent in f64.

``erf(x)`` is ``x + x * P(x**2)`` below 1; ``erfc(x)`` is ``exp(-x**2) * Q(q) / (1 + 2 x)`` with ``q
= (x - 4) / (x + 4)``. The polynomials interpolate at the Chebyshev nodes of their ranges, computed
with 60 digits.
"""

from __future__ import annotations

import math

from ..arithmetic.arith_value import ArithValue, clamp, horner
from ..arithmetic.cube_root import cube_root_estimate
from ..arithmetic.double_word import DoubleWord, divide, fast_two_sum, two_prod, two_sum
from .elementary import sqrt_double_word, times_exp

_ERF = (
    0.1283791670955126,
    -0.3761263890318375,
    0.11283791670954879,
    -0.026866170645076792,
    0.0052239776248180145,
    -0.000854832698083379,
    0.0001205533111164271,
    -1.4925595266831182e-05,
    1.6461000484121368e-06,
    -1.6350312701054695e-07,
    1.4659775274047436e-08,
    -1.1372848856791674e-09,
    5.957176147748911e-11,
)
_ERFC = (
    1.2329951186255526,
    -0.13962111684056255,
    0.015379652102619098,
    0.06809705425469749,
    -0.10103906603625828,
    0.09373283499818684,
    -0.06633036581349587,
    0.037167515539911176,
    -0.016197734039638548,
    0.005031969959410359,
    -0.000757773439017777,
    -0.0001992566217694988,
    0.00015062245399856283,
    -2.4399309113143734e-05,
    -1.122462445098893e-05,
    5.70937204107749e-06,
    2.9938795233219766e-07,
    -8.235624390130805e-07,
    6.717226326433025e-08,
    1.06452649653259e-07,
    -1.2278425705830675e-08,
    -1.073184671014993e-08,
)
_ERFC_REST = -4.6253189210087175e-17  # of the first
_ARCTANGENT = (
    -0.3333333333333333,
    0.199999999999998,
    -0.14285714285659326,
    0.11111111105106704,
    -0.09090908751076597,
    0.07692296304973549,
    -0.0666642362805528,
    0.058789145442614446,
    -0.052303478721123314,
    0.045511081226396584,
    -0.03455809246572812,
    0.016271944664995413,
)
_RIGHT, _RIGHT_REST = math.pi / 2, 6.123233995736766e-17


def erf(x: ArithValue) -> ArithValue:
    """Return the error function."""
    a = x.abs()
    small = x.fma(horner(x * x, *_ERF), x)
    return (a < 1.0).where(small, (1.0 - _erfc_right(a)).copysign(x))


def erfc(x: ArithValue) -> ArithValue:
    """Return the complementary error function."""
    near = two_sum(-x, 1.0)
    middle = near.high + (near.low - x * horner(x * x, *_ERF))
    far = _erfc_right(x.abs())
    far = (x < 0.0).where(2.0 - far, far)
    return ((x > -1.0) & (x < 0.8)).where(middle, far)


def _erfc_right(a: ArithValue) -> ArithValue:
    """Return erfc of ``a >= 1/2``."""
    a = clamp(a, 0.5, 27.5)
    square = two_prod(a, a)
    q, below = (a - 4.0).over(a + 4.0), two_sum(a * 2.0, 1.0)
    value = fast_two_sum(q.lift(_ERFC[0]), q.fma(horner(q, *_ERFC[1:]), _ERFC_REST))
    ratio = divide(value, below)
    return times_exp(ratio.high, ratio.low, -square.high, -square.low)


def cbrt(x: ArithValue) -> ArithValue:
    """Return the cube root: an estimate from the exponent, three Halley steps, one Newton step."""
    tiny = x.abs() < 2.0**-1000
    d = tiny.where(x * 2.0**120, x).abs()
    guess = cube_root_estimate(d)
    d, guess = d * 0.125, guess * 0.5  # so that no sum overflows
    for _ in range(3):
        cube = guess * guess * guess
        guess = guess * ((cube + d * 2.0) / (cube * 2.0 + d))
    square = two_prod(guess, guess)
    error = square.high.fma(guess, -d) + square.low * guess
    root = (guess - error / (square.high * 3.0)) * 2.0
    root = tiny.where(root * 2.0**-40, root)
    plain = (x.abs() < math.inf) & (x.equals(0.0) ^ True)
    return plain.where(root.copysign(x), x)


def _angle(y: DoubleWord, x: DoubleWord, left: ArithValue | None = None) -> ArithValue:
    """Return the angle of the point (x, y), mirrored where ``left``; both moderate in size, >= 0.

    It is a multiple of pi/4 plus the arctangent of at most ``sqrt(2) - 1``.
    """
    steep = y.high > x.high
    small = DoubleWord(steep.where(x.high, y.high), steep.where(x.low, y.low))
    large = DoubleWord(steep.where(y.high, x.high), steep.where(y.low, x.low))
    above = small.high > large.high * (math.sqrt(2) - 1)
    less, more = two_sum(small.high, -large.high), two_sum(large.high, small.high)
    ratio = divide(
        DoubleWord(
            above.where(less.high, small.high),
            above.where(less.low + (small.low - large.low), small.low),
        ),
        DoubleWord(
            above.where(more.high, large.high),
            above.where(more.low + (small.low + large.low), large.low),
        ),
    )
    u, z = ratio.high, ratio.high * ratio.high
    tail = (u * z).fma(horner(z, *_ARCTANGENT), ratio.low.fma(-z, ratio.low))
    eighths = above.where(u.lift(1.0), 0.0)
    eighths = steep.where(2.0 - eighths, eighths)
    if left is None:
        back = steep
    else:
        eighths = left.where(4.0 - eighths, eighths)
        back = steep ^ left
    base = fast_two_sum(eighths * (_RIGHT / 2), back.where(-u, u))
    return base.high + (base.low + eighths.fma(_RIGHT_REST / 2, back.where(-tail, tail)))


def _exactly(x: ArithValue) -> DoubleWord:
    return DoubleWord(x, x.lift(0.0))


def atan(x: ArithValue) -> ArithValue:
    """Return the arctangent."""
    a = x.abs()
    return _angle(
        _exactly((a > 2.0**90).where(x.lift(2.0**90), a)), _exactly(x.lift(1.0))
    ).copysign(x)


def _leg(a: ArithValue) -> DoubleWord:
    """Return ``sqrt((1 - a) (1 + a))``; NaN outside of 0 .. 1."""
    less, more = two_sum(-a, 1.0), two_sum(a, 1.0)
    square = two_prod(less.high, more.high)
    rest = less.high.fma(more.low, square.low) + less.low * more.high
    return sqrt_double_word(DoubleWord(square.high, rest))


def asin(x: ArithValue) -> ArithValue:
    """Return the arcsine; NaN outside of -1 .. 1."""
    a = x.abs()
    return _angle(_exactly(a), _leg(a)).copysign(x)


def acos(x: ArithValue) -> ArithValue:
    """Return the arccosine; NaN outside of -1 .. 1."""
    a = x.abs()
    return _angle(_leg(a), _exactly(a), x < 0.0)


def atan2(y: ArithValue, x: ArithValue) -> ArithValue:
    """Return the angle of the point (x, y), in all quadrants and at infinity."""
    p, q = y.abs(), x.abs()
    one = x.lift(1.0)
    large = (p > q).where(p, q)
    scale = (large > 2.0**900).where(x.lift(2.0**-200), 1.0)
    scale = (large < 2.0**-700).where(x.lift(2.0**300), scale)
    infinite, none = large.equals(math.inf), large.equals(0.0)
    far_p = p.equals(math.inf).where(one, 0.0)
    far_q = q.equals(math.inf).where(one, 0.0)
    p = infinite.where(far_p, p * scale)
    q = infinite.where(far_q, none.where(one, q * scale))
    angle = _angle(_exactly(p), _exactly(q), x.bits() < 0)
    return (x.is_nan() | y.is_nan()).where(x + y, angle.copysign(y))
