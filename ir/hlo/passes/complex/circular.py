"""Complex circular and hyperbolic functions and the logistic function, on real parts."""

from __future__ import annotations

import math

from ...patterns.numbers import Num, copysign, where
from .arithmetic import Complex
from .exponential import exp_factors


def _hyperbolic(x: Num) -> tuple[Num, Num, Num]:
    """Return ``(s, c, f)`` such that sinh(x) = s f and cosh(x) = c f, and s and c do not overflow
    as soon as their products with f do.

    With ``e = expm1(|x|)``, sinh|x| is ``(e + e / (e + 1)) / 2`` and cosh is
    ``1 + e**2 / (2 (e + 1))``.
    """
    size = abs(x)
    large = size > x.format.precision * math.log(2.0)  # where exp(-x) is below rounding
    e = where(large, 0.0, size).call("exponential-minus-one")
    share = e / (e + 1.0)
    half, more = exp_factors(size)
    half = half * 0.5
    s = where(large, half, (e + share) * 0.5)
    c = where(large, half, e * share * 0.5 + 1.0)
    return copysign(s, x), c, where(large, more, 1.0)


def _wave(x: Num, y: Num) -> tuple[Num, Num, Num, Num]:
    """Return cosh x cos y, sinh x sin y, sinh x cos y, cosh x sin y; exact zeros for y = 0."""
    s, c, f = _hyperbolic(x)
    cosine, sine = y.call("cosine"), y.call("sine")
    flat = y.equals(0)
    return (
        c * cosine * f,
        where(flat, copysign(x.like(1.0), x) * y, s * sine * f),
        s * cosine * f,
        where(flat, y, c * sine * f),
    )


def cosh(z: Complex) -> Complex:
    """Return ``cosh(x) cos(y) + i sinh(x) sin(y)``."""
    even, odd, _, _ = _wave(z.re, z.im)
    return Complex(even, odd)


def sinh(z: Complex) -> Complex:
    """Return ``sinh(x) cos(y) + i cosh(x) sin(y)``."""
    _, _, re, im = _wave(z.re, z.im)
    return Complex(re, im)


def cos(z: Complex) -> Complex:
    """Return ``cosh(i z)``."""
    even, odd, _, _ = _wave(z.im, z.re)
    return Complex(even, -odd)


def sin(z: Complex) -> Complex:
    """Return ``-i sinh(i z)``."""
    _, _, im, re = _wave(z.im, z.re)
    return Complex(re, im)


def tanh(z: Complex) -> Complex:
    """Return ``(sinh(x) cosh(x) + i sin(y) cos(y)) / (sinh(x)**2 + cos(y)**2)``.

    For large ``|x|`` it is ``sign(x) + 4 i sin(y) cos(y) exp(-2 |x|)``.
    """
    x, y = z.re, z.im
    far = abs(x) > x.format.precision * math.log(2.0) / 2.0 + 1.0
    s, c, _ = _hyperbolic(where(far, 0.0, x))
    cosine, sine = y.call("cosine"), y.call("sine")
    below = where(far, 1.0, s * s + cosine * cosine)
    fade = (-abs(x)).call("exponential") * 2.0
    faded = where(fade.equals(0), copysign(x.like(0.0), y), sine * fade * (cosine * fade))
    re = where(far, copysign(x.like(1.0), x), s * c / below)
    im = where(far, faded, sine * cosine / below)
    lost = sine.is_nan & (abs(x) < math.inf)
    re, im = where(lost, math.nan, re), where(lost, math.nan, im)
    return Complex(re, where(y.equals(0), y, im))


def tan(z: Complex) -> Complex:
    """Return ``-i tanh(i z)``."""
    turned = tanh(Complex(-z.im, z.re))
    return Complex(turned.im, -turned.re)


def logistic(z: Complex) -> Complex:
    """Return ``1 / (1 + exp(-z))``, computed from ``e = exp(-|x|)``, which cannot overflow.

    With ``h = y / 2`` it uses

        1 + e cos(y) = 2 e cos(h)**2 - expm1(-|x|)
        e + cos(y) = expm1(-|x|) + 2 cos(h)**2
    """
    x, h = -abs(z.re), z.im * 0.5
    e, less = x.call("exponential"), x.call("exponential-minus-one")
    cosine, sine = h.call("cosine"), h.call("sine")
    square = cosine * cosine * 2.0
    one, other = e * square - less, less + square
    swing = e * (sine * cosine * 2.0)
    below = one * one + swing * swing
    right = z.re >= 0
    vanished = e.equals(0)
    limit = where(right, x.like(1.0), 0.0)
    re = where(vanished, limit, where(right, one, e * other) / below)
    im = where(vanished, 0.0, swing / below)
    return Complex(re, where(z.im.equals(0), z.im, im))
