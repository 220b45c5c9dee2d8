"""Complex exponentials, logarithms and powers on real parts.

A factor ``exp(x)`` that would overflow although its product with a sine or cosine does not is
applied as two factors. Logarithms near the unit circle, where ``|z|**2 - 1`` cancels, are computed
from a sum of exact products.
"""

from __future__ import annotations

import math

from ...patterns.numbers import Num, copysign, head, scale, two_sum, where
from .arithmetic import (
    Complex,
    add,
    divide,
    either_infinite,
    larger_part,
    magnitude,
    multiply,
    sqrt,
)

LN2 = math.log(2.0)


def exp_factors(x: Num) -> tuple[Num, Num]:
    """Return ``exp(x)`` as two factors; the first overflows only for a larger x."""
    step = float(2 ** (x.format.top.bit_length() - 1))  # 64 or 512: subtracted without rounding
    far = x > step * 1.25
    factor = math.exp(step)
    return where(far, x - step, x).call("exponential"), where(far, x.like(factor), 1.0)


def exp(z: Complex) -> Complex:
    """Return ``exp(x) (cos(y) + i sin(y))``; 0 for x = -inf and any y, and real for a real z."""
    e, more = exp_factors(z.re)
    vanished = z.re.equals(-math.inf)
    re = where(vanished, 0.0, e * z.im.call("cosine") * more)
    im = where(vanished, 0.0, e * z.im.call("sine") * more)
    flat = z.im.equals(0)
    return Complex(where(flat, e * more, re), where(flat, z.im, im))


def expm1(z: Complex) -> Complex:
    """Return ``expm1(x) cos(y) - 2 sin(y / 2)**2  +  i exp(x) sin(y)``."""
    whole = exp(z)
    half = (z.im * 0.5).call("sine")
    near = z.re.call("exponential-minus-one") * z.im.call("cosine") - half * half * 2.0
    re = where(z.im.equals(0), z.re.call("exponential-minus-one"), near)
    large = z.re.format.precision * LN2
    re = where(abs(z.re) > large, whole.re - 1.0, re)
    return Complex(re, whole.im)


def argument(z: Complex) -> Num:
    """Return the argument of ``z``, in radians from -pi to pi."""
    return z.im.call("atan2", z.re)


def log_far(z: Complex) -> Num:
    """Return ``log|z|`` as ``log(m) + log1p((n / m)**2) / 2``, with m the larger part and n the
    smaller; not accurate where ``|z|`` is near 1."""
    m, n = larger_part(z), abs(z.re).call("minimum", abs(z.im))
    ratio = where(m.equals(0), 0.0, n / m)
    found = m.call("log") + (ratio * ratio).call("log-plus-one") * 0.5
    return where(either_infinite(z), math.inf, found)


def log_magnitude(z: Complex) -> Num:
    """Return ``log|z|``; near the unit circle ``log1p(|z|**2 - 1) / 2`` without cancellation."""
    m, n = larger_part(z), abs(z.re).call("minimum", abs(z.im))
    near = (m > 0.6) & (m < 1.5)
    return where(near, _excess((m, n), -1.0).call("log-plus-one") * 0.5, log_far(z))


def _excess(parts: tuple[Num, Num], more: Num | float) -> Num:
    """Return ``more`` plus the squares of two parts, with nearly twice the precision.

    Each square is ``h**2 + 2 h l + l**2``, with h the upper half of the digits and l the rest.
    These products are exact, so contracting them and the sums into fma changes nothing.
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
    """Return the principal logarithm, ``log|z| + i argument(z)``."""
    return Complex(log_magnitude(z), argument(z))


def log1p(z: Complex) -> Complex:
    """Return ``log(1 + z)``; its real part is ``log1p(2 x + x**2 + y**2) / 2`` where ``|z|`` is
    moderate and ``1 + z`` not near 0, ``log_far(1 + z)`` elsewhere."""
    after = Complex(z.re + 1.0, z.im)
    excess = _excess((z.re, z.im), z.re * 2.0)
    close = (larger_part(z) < 4.0) & (excess > -0.5)
    re = where(close, excess.call("log-plus-one") * 0.5, log_far(after))
    return Complex(re, argument(after))


def power(z: Complex, w: Complex) -> Complex:
    """Return ``z ** w = |z|**c exp(-d t) (cos q + i sin q)``, where ``w = c + i d``, ``t`` is the
    argument of z and ``q = c t + d log|z|``.

    ``z ** 0`` is 1, ``z ** 1`` is z, and ``0 ** w`` is 0 for c > 0. The power is real for a real w
    and a real z that is not negative.
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
    along = where(real, length, result.re)
    none = w.re.equals(0) & level
    gone = size.equals(0) & (w.re > 0)
    same = w.re.equals(1) & level
    re = where(none, 1.0, where(gone, 0.0, along))
    return Complex(where(same, z.re, re), where(same, z.im, where(none | gone, 0.0, im)))


def cbrt(z: Complex) -> Complex:
    """Return the principal cube root, whose argument is a third of that of ``z``."""
    size, t = magnitude(z).call("cbrt"), argument(z) / 3.0
    im = copysign(abs(size * t.call("sine")), z.im)
    return Complex(size * t.call("cosine"), where(z.im.equals(0) & (z.re >= 0), z.im, im))


def atan2(y: Complex, x: Complex) -> Complex:
    """Return ``-i log((x + i y) / sqrt(x**2 + y**2))``, scaled so that squares do not overflow."""
    s, _ = scale(larger_part(x).call("maximum", larger_part(y)))
    x, y = Complex(x.re * s, x.im * s), Complex(y.re * s, y.im * s)
    turned = add(x, Complex(-y.im, y.re))
    length = sqrt(add(multiply(x, x), multiply(y, y)))
    found = log(divide(turned, length))
    return Complex(found.im, -found.re)
