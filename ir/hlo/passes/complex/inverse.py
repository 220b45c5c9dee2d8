"""Inverse circular and hyperbolic functions of complex arrays, on real parts.

Arcsine and arccosine follow Hull, Fairgrieve and Tang, "Implementing the complex arcsine and
arccosine functions using exception handling" (ACM TOMS 23, 1997), with a factor y taken out of
terms whose square would underflow. The arctangent follows Kahan, "Branch cuts for complex
elementary functions" (1987). The others are these with arguments multiplied by i.
"""

from __future__ import annotations

import math

from ...patterns.numbers import Num, copysign, where
from .arithmetic import Complex, either_infinite, larger_part, magnitude, norm, scaled
from .exponential import LN2, log_far

HALF_PI = math.pi / 2
CROSSOVER_A, CROSSOVER_B = 1.5, 0.6417  # where Hull et al. switch formulas


def _arcs(z: Complex) -> tuple[Num, Num, Num]:
    """Return the real parts of asin and acos of ``|x| + i |y|``, and the magnitude of the
    imaginary part, which both share."""
    x, y = abs(z.re), abs(z.im)
    huge = larger_part(z) > 2.0**z.re.format.precision
    x, y = where(huge, 2.0, x), where(huge, 2.0, y)
    r = magnitude(Complex(x + 1.0, y))
    s = magnitude(Complex(x - 1.0, y))
    a = (r + s) * 0.5
    b = x / a
    inside = x <= 1.0
    right, left = r + x + 1.0, where(inside, s + (1.0 - x), s + (x - 1.0))
    # sqrt(a**2 - x**2), y taken out where x > 1
    near = ((a + x) * 0.5 * (y * (y / right) + left)).call("sqrt")
    beyond = y * ((a + x) * 0.5 * (1.0 / right + 1.0 / left)).call("sqrt")
    side = where(inside, near, beyond)
    plain = b <= CROSSOVER_B
    asin = where(plain, b.call("asin"), x.call("atan2", side))
    acos = where(plain, b.call("acos"), side.call("atan2", x))
    far = Complex(abs(z.re), abs(z.im))
    asin = where(huge, far.re.call("atan2", far.im), asin)
    acos = where(huge, far.im.call("atan2", far.re), acos)
    return asin, acos, where(huge, log_far(far) + LN2, _height(x, y, a, right, left))


def _height(x: Num, y: Num, a: Num, right: Num, left: Num) -> Num:
    """Return ``log(a + sqrt(a**2 - 1))``, computed from ``a - 1`` where that is small."""
    inside = x < 1.0
    # for x < 1: a - 1 = y**2 g and sqrt(a**2 - 1) = y sqrt(g (a + 1))
    g = (1.0 / right + 1.0 / where(inside, left, 1.0)) * 0.5
    strip = y * (y * g + (g * (a + 1.0)).call("sqrt"))
    less = (y * (y / right) + left) * 0.5
    outside = less + (less * (a + 1.0)).call("sqrt")
    small = where(inside, strip, outside).call("log-plus-one")
    large = (a + ((a - 1.0) * (a + 1.0)).call("sqrt")).call("log")
    return where(a <= CROSSOVER_A, small, large)


def asin(z: Complex) -> Complex:
    """Return the principal arcsine; its parts have the signs of the parts of ``z``."""
    re, _, im = _arcs(z)
    return Complex(copysign(re, z.re), copysign(im, z.im))


def acos(z: Complex) -> Complex:
    """Return the principal arccosine, whose real part is from 0 to pi."""
    _, re, im = _arcs(z)
    left = copysign(z.re.like(1.0), z.re) < 0
    return Complex(where(left, math.pi - re, re), copysign(im, -z.im))


def asinh(z: Complex) -> Complex:
    """Return ``-i asin(i z)``."""
    turned = asin(Complex(-z.im, z.re))
    return Complex(turned.im, -turned.re)


def acosh(z: Complex) -> Complex:
    """Return ``i acos(z)`` or ``-i acos(z)``, whichever has a nonnegative real part."""
    turned = acos(z)
    return Complex(abs(turned.im), copysign(turned.re, z.im))


def atanh(z: Complex) -> Complex:
    """Return the principal inverse hyperbolic tangent.

    For x >= 0 the real part is ``log1p(4 x / ((1 - x)**2 + y**2)) / 4`` and the imaginary part
    ``atan2(2 y, (1 - x) (1 + x) - y**2) / 2``.
    """
    form = z.re.format
    x, y = abs(z.re), abs(z.im)
    huge = larger_part(z) > 2.0**form.precision
    near, s, _ = scaled(Complex(x, y))
    distant = near.re / norm(near) * s
    x, y = where(huge, 2.0, x), where(huge, 2.0, y)
    gap = Complex(1.0 - x, y)
    distance = magnitude(gap)
    pole = distance < 2.0 ** -(form.precision * 2)
    beside = LN2 * 0.5 - distance.call("log") * 0.5
    ratio = x * 4.0 / where(pole, 1.0, distance * distance)
    re = where(pole, beside, ratio.call("log-plus-one") * 0.25)
    re = where(huge, where(either_infinite(z), 0.0, distant), re)
    im = (y * 2.0).call("atan2", gap.re * (1.0 + x) - y * y) * 0.5
    im = where(huge, HALF_PI, im)
    im = where(z.im.is_nan, z.im, im)
    return Complex(copysign(re, z.re), copysign(im, z.im))


def atan(z: Complex) -> Complex:
    """Return ``-i atanh(i z)``."""
    turned = atanh(Complex(-z.im, z.re))
    return Complex(turned.im, -turned.re)
