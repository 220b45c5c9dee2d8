"""Complex exponentials, logarithms and powers on real parts.

A factor ``exp(x)`` that would overflow where its product with a sine or cosine does not is taken in
two pieces. Logarithms near the unit circle, where ``|z|**2 - 1`` cancels, are computed from a sum
of exact products.
"""

from __future__ import annotations

import math

from ...patterns.numbers import Num, copysign, head, scale, two_sum, where
from .arithmetic import Complex, add, divide, either_infinite, larger, magnitude, multiply, sqrt

LN2 = math.log(2.0)


def grown(x: Num) -> tuple[Num, Num]:
    """``exp(x)`` as a product of two factors, the first of which stays in range a while longer."""
    step = float(2 ** (x.format.top.bit_length() - 1))  # 64, 512: subtracted without rounding
    far = x > step * 1.25
    factor = math.exp(step)
    return where(far, x - step, x).call("exponential"), where(far, x.like(factor), 1.0)


def exp(z: Complex) -> Complex:
    """``exp(x) (cos(y) + i sin(y))``; ``exp(-inf)`` is 0 whatever y, and a real z stays real."""
    e, more = grown(z.re)
    vanished = z.re.equals(-math.inf)
    re = where(vanished, 0.0, e * z.im.call("cosine") * more)
    im = where(vanished, 0.0, e * z.im.call("sine") * more)
    flat = z.im.equals(0)
    return Complex(where(flat, e * more, re), where(flat, z.im, im))


def expm1(z: Complex) -> Complex:
    """``expm1(x) cos(y) - 2 sin(y / 2)**2  +  i exp(x) sin(y)``"""
    whole = exp(z)
    half = (z.im * 0.5).call("sine")
    near = z.re.call("exponential-minus-one") * z.im.call("cosine") - half * half * 2.0
    re = where(z.im.equals(0), z.re.call("exponential-minus-one"), near)
    large = z.re.format.precision * LN2
    re = where(abs(z.re) > large, whole.re - 1.0, re)
    return Complex(re, whole.im)


def argument(z: Complex) -> Num:
    return z.im.call("atan2", z.re)


def log_far(z: Complex) -> Num:
    """``log|z|`` where it is not near 0: ``log(m) + log1p((n / m)**2) / 2``, m the larger part."""
    m, n = larger(z), abs(z.re).call("minimum", abs(z.im))
    ratio = where(m.equals(0), 0.0, n / m)
    found = m.call("log") + (ratio * ratio).call("log-plus-one") * 0.5
    return where(either_infinite(z), math.inf, found)


def log_magnitude(z: Complex) -> Num:
    """``log|z|``; near the circle by ``log1p(|z|**2 - 1) / 2``, the difference to all digits."""
    m, n = larger(z), abs(z.re).call("minimum", abs(z.im))
    near = (m > 0.6) & (m < 1.5)
    return where(near, _excess((m, n), -1.0).call("log-plus-one") * 0.5, log_far(z))


def _excess(parts: tuple[Num, Num], more: Num | float) -> Num:
    """The sum of ``more`` and of the squares of two parts, to nearly twice the digits.

    Each square is ``h**2 + 2 h l + l**2`` of a half of the digits and the rest, products that are
    exact; so a product and a sum that become one fma change nothing.
    """
    heads = [head(x) for x in parts]
    rests = [x - h for x, h in zip(parts, heads, strict=True)]
    terms = [h * h for h in heads] + [h * 2.0 * r for h, r in zip(heads, rests, strict=True)]
    total, lost = two_sum(terms[0].like(more), terms[0])
    for term in terms[1:]:
        total, error = two_sum(total, term)
        lost = lost + error
    return total + (lost + (rests[0] * rests[0] + rests[1] * rests[1]))


def log(z: Complex) -> Complex:
    return Complex(log_magnitude(z), argument(z))


def log1p(z: Complex) -> Complex:
    """``log|1 + z|`` is ``log1p(2 x + x**2 + y**2) / 2``, where ``1 + z`` is not far nor near 0."""
    after = Complex(z.re + 1.0, z.im)
    excess = _excess((z.re, z.im), z.re * 2.0)
    close = (larger(z) < 4.0) & (excess > -0.5)
    re = where(close, excess.call("log-plus-one") * 0.5, log_far(after))
    return Complex(re, argument(after))


def power(z: Complex, w: Complex) -> Complex:
    """``|z|**c exp(-d t) (cos q + i sin q)``, ``q = c t + d log|z|``: w = c + i d, t the argument.

    ``z**0`` is 1, and ``0**w`` is 0 for c > 0.
    """
    size, t = magnitude(z), argument(z)
    level = w.im.equals(0)
    angle = w.re * t + where(level, 0.0, w.im * log_magnitude(z))
    root = size.call("power", where(level, w.re, w.re * 0.5))
    half = root * (w.im * t * -0.5).call("exponential")
    length = where(level, root, half * half)
    result = Complex(length * angle.call("cosine"), length * angle.call("sine"))
    real = level & z.im.equals(0) & (z.re >= 0)
    im = where(real, 0.0, result.im)
    none = w.re.equals(0) & level
    gone = size.equals(0) & (w.re > 0)
    re = where(none, 1.0, where(gone, 0.0, result.re))
    return Complex(re, where(none | gone, 0.0, im))


def cbrt(z: Complex) -> Complex:
    """The root with the smallest argument."""
    size, t = magnitude(z).call("cbrt"), argument(z) / 3.0
    im = copysign(abs(size * t.call("sine")), z.im)
    return Complex(size * t.call("cosine"), where(z.im.equals(0) & (z.re >= 0), z.im, im))


def atan2(y: Complex, x: Complex) -> Complex:
    """``-i log((x + i y) / sqrt(x**2 + y**2))``"""
    s, _ = scale(larger(x).call("maximum", larger(y)))
    x, y = Complex(x.re * s, x.im * s), Complex(y.re * s, y.im * s)
    turned = add(x, Complex(-y.im, y.re))
    length = sqrt(add(multiply(x, x), multiply(y, y)))
    found = log(divide(turned, length))
    return Complex(found.im, -found.re)
