"""Sines, cosines, tangents and their inverses in f32, computed in f64 and rounded once.

A multiple of pi, or of pi/2 for tangents, is subtracted in two parts (Cody and Waite, 1980). Beyond
2**30, and without a fused multiply-add, argument reduction is that of Payne and Hanek (1983): ``x *
2/pi`` is the sum of exact products with 28-bit pieces of ``2/pi``, each taken modulo 4, so that the
largest f32 keeps its fraction. Polynomials interpolate at the Chebyshev nodes of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..arithmetic.arith_value import ArithValue, horner
from ..arithmetic.quadrant import is_odd, signed
from ..arithmetic.rare import unless_rare

_TWO_OVER_PI = tuple(
    map(
        float.fromhex,
        (
            "0x1.45f306c000000p-1",
            "0x1.c9c882a000000p-29",
            "0x1.4fe13a8000000p-59",
            "0x1.f47d4d0000000p-86",
            "0x1.bb81b6c000000p-113",
            "0x1.4acc9e0000000p-143",
            "0x1.0e4107c000000p-170",
            "0x1.ca2c756000000p-197",
        ),
    )
)
_SINE = (
    -0.16666666666663858,
    0.00833333333106116007,
    -0.000198412668994373986,
    2.75559856252008621e-6,
    -2.48051454067474318e-8,
)
_COSINE = (
    0.0416666666666646587,
    -0.0013888888887264426,
    2.48015851984412168e-5,
    -2.75563659022590211e-7,
    2.07002494675627724e-9,
)
_HALF_WAVE = (
    -0.16666666666658467,
    0.00833333333094035,
    -0.00019841268709050423,
    2.7557123173630674e-06,
    -2.5036744969745246e-08,
    1.5502508331330266e-10,
)
_ARCTANGENT = (
    -0.333333333333309241,
    0.19999999997723209,
    -0.142857139301518908,
    0.111110896376475144,
    -0.0909025566513907743,
    0.0768104134402972263,
    -0.0655087877629827134,
    0.0516872560003961242,
    -0.0272311888807796933,
)
_PI = 3.141592653589793, 1.2246467991473532e-16
_RIGHT_ANGLE = 1.5707963267948966, 6.123233995736766e-17
_FAR = 2.0**30  # the multiple has 30 bits up to here
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: a sum ends in an integer's bits


def _quadrant(x: ArithValue) -> tuple[ArithValue, ArithValue]:
    """Return the multiple of pi/2 next to ``x`` (its two low bits count) and the reduced f64
    argument.
    """
    d = x.double()
    total = d.lift(0.0)
    lost = d.lift(0.0)
    for piece in _TWO_OVER_PI:
        product = d * piece
        product = product - (product * 0.25).rint() * 4.0
        new = total + product
        back = new - total
        lost = lost + ((total - (new - back)) + (product - back))
        total = new
    shifted = total + _MAGIC
    fraction = (total - (shifted - _MAGIC)) + lost
    return shifted.bits().low_half(), fraction * (math.pi / 2)


def _sine_and_cosine(r: ArithValue) -> tuple[ArithValue, ArithValue]:
    """Return sine and cosine of ``|r| <= pi / 4``, f64."""
    z = r * r
    sine = r * z.fma(horner(z, *_SINE), 1.0)  # -0 stays -0
    cosine = (z * z).fma(horner(z, *_COSINE), z.fma(-0.5, 1.0))
    return sine, cosine


def _sine_anywhere(x: ArithValue) -> ArithValue:
    quadrant, r = _quadrant(x)
    sine, cosine = _sine_and_cosine(r)
    result = signed(is_odd(quadrant).where(cosine, sine), quadrant).single()
    return (x.abs() < 1e-10).where(x, result)


def _cosine_anywhere(x: ArithValue) -> ArithValue:
    quadrant, r = _quadrant(x)
    sine, cosine = _sine_and_cosine(r)
    return signed(is_odd(quadrant).where(sine, cosine), quadrant + 1).single()


def _tangent_anywhere(x: ArithValue) -> ArithValue:
    quadrant, r = _quadrant(x)
    sine, cosine = _sine_and_cosine(r)
    odd = is_odd(quadrant)
    result = (odd.where(-cosine, sine) / odd.where(sine, cosine)).single()
    return (x.abs() < 1e-10).where(x, result)


def _less_multiples(d: ArithValue, n: ArithValue, period: tuple[float, float]) -> ArithValue:
    """Return ``d - n period`` for a period in two parts: the first product is exact."""
    return n.fma(-period[1], n.fma(-period[0], d))


def _half_wave(r: ArithValue, number: ArithValue) -> ArithValue:
    """Return the sine of ``|r| <= pi / 2``, f64, negated if the number's last bit is set."""
    z = r * r
    value = r * z.fma(horner(z, *_HALF_WAVE), 1.0)  # -0 stays -0
    return (value.bits() ^ (number.bits() << 63)).floats()


def _unless_far(
    name: str, x: ArithValue, near: ArithValue, anywhere: Callable[[ArithValue], ArithValue]
) -> ArithValue:
    """Return ``near``, but ``anywhere(x)`` in lanes too far from 0 for it."""
    return unless_rare(name, x.abs() > _FAR, near, (x,), anywhere)


def sin(x: ArithValue) -> ArithValue:
    """Return the sine, f32."""
    if not x.b.has_fma:
        return _sine_anywhere(x)
    d = x.double()
    number = d.fma(1 / math.pi, _MAGIC)
    r = _less_multiples(d, number - _MAGIC, _PI)
    return _unless_far("sine", x, _half_wave(r, number).single(), _sine_anywhere)


def cos(x: ArithValue) -> ArithValue:
    """Return the cosine, f32: ``cos(x)`` is the negated sine of ``x - pi / 2``."""
    if not x.b.has_fma:
        return _cosine_anywhere(x)
    d = x.double()
    number = d.fma(1 / math.pi, -0.5) + (_MAGIC + 1.0)
    r = _less_multiples(d, (number - (_MAGIC + 1.0)) + 0.5, _PI)
    return _unless_far("cosine", x, _half_wave(r, number).single(), _cosine_anywhere)


def tan(x: ArithValue) -> ArithValue:
    """Return the tangent, f32."""
    if not x.b.has_fma:
        return _tangent_anywhere(x)
    d = x.double()
    number = d.fma(2 / math.pi, _MAGIC)
    sine, cosine = _sine_and_cosine(_less_multiples(d, number - _MAGIC, _RIGHT_ANGLE))
    odd = (number.bits() << 63) < 0
    below = odd.where(sine, cosine)
    near = (odd.where(-cosine, sine) * below.reciprocal()).single()
    return _unless_far("tangent", x, near, _tangent_anywhere)


def _atan_double(t: ArithValue) -> ArithValue:
    """Return the arctangent of ``t >= 0`` in f64, to a relative error of 2**-44."""
    steep = t > 1.0
    u = steep.where(t.lift(1.0).over(t, maybe_inf=True), t)
    above = u > math.sqrt(2) - 1
    u = above.where((u - 1.0).over(u + 1.0), u)
    z = u * u
    angle = (u * z).fma(horner(z, *_ARCTANGENT), u)
    angle = above.where(angle + math.pi / 4, angle)
    return steep.where(math.pi / 2 - angle, angle)


def atan(x: ArithValue) -> ArithValue:
    """Return the arctangent, f32."""
    return _atan_double(x.double().abs()).single().copysign(x)


def asin(x: ArithValue) -> ArithValue:
    """Return the arcsine, f32; NaN outside of -1 .. 1."""
    a = x.double().abs()
    return _atan_double(a / ((1.0 - a) * (a + 1.0)).sqrt()).single().copysign(x)


def acos(x: ArithValue) -> ArithValue:
    """Return the arccosine, f32; NaN outside of -1 .. 1."""
    d = x.double()
    return (_atan_double(((1.0 - d) / (d + 1.0)).sqrt()) * 2.0).single()


def atan2(y: ArithValue, x: ArithValue) -> ArithValue:
    """Return the angle of the point (x, y), f32, in all quadrants and at infinity."""
    p, q = y.double().abs(), x.double().abs()
    steep = p > q
    large, small = steep.where(p, q), steep.where(q, p)
    ratio = large.equals(0.0).where(small, small / large)
    ratio = small.equals(math.inf).where(small.lift(1.0), ratio)
    angle = _atan_double(ratio)
    angle = steep.where(math.pi / 2 - angle, angle)
    left = x.bits() < 0
    angle = left.where(math.pi - angle, angle)
    return (x.is_nan() | y.is_nan()).where(x + y, angle.single().copysign(y))
