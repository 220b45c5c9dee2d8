"""Complex arithmetic on real parts: products, quotients, magnitudes, roots.

Products are the plain four, as XLA's are. Quotients, magnitudes and roots first bring their
operands near 1 by powers of two, so that nothing on the way overflows or vanishes; results at
infinities, NaN and signed zeros are those of the C standard (ISO/IEC 9899, annex G).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...patterns.numbers import Num, copysign, scale, where


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex array: its real and its imaginary part."""

    re: Num
    im: Num


def add(a: Complex, b: Complex) -> Complex:
    return Complex(a.re + b.re, a.im + b.im)


def subtract(a: Complex, b: Complex) -> Complex:
    return Complex(a.re - b.re, a.im - b.im)


def negate(z: Complex) -> Complex:
    return Complex(-z.re, -z.im)


def multiply(a: Complex, b: Complex) -> Complex:
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def larger(z: Complex) -> Num:
    """The magnitude of the larger part; NaN if one is."""
    return abs(z.re).call("maximum", abs(z.im))


def scaled(z: Complex, *, even: bool = False) -> tuple[Complex, Num, Num]:
    """``z s`` near 1, ``s`` and ``1 / s``."""
    s, back = scale(larger(z), even=even)
    return Complex(z.re * s, z.im * s), s, back


def norm(z: Complex) -> Num:
    """``|z|**2``, which overflows and vanishes."""
    return z.re * z.re + z.im * z.im


def either_infinite(z: Complex) -> Num:
    return z.re.is_infinite | z.im.is_infinite


def magnitude(z: Complex) -> Num:
    """``|z|``; infinite if a part is, whatever the other."""
    near, _, back = scaled(z)
    return where(either_infinite(z), math.inf, norm(near).call("sqrt") * back)


def sign(z: Complex) -> Complex:
    """``z / |z|``; 0 is its own sign."""
    near, _, _ = scaled(z)
    size = norm(near).call("sqrt")
    zero = size.equals(0)
    return Complex(where(zero, z.re, near.re / size), where(zero, z.im, near.im / size))


def divide(a: Complex, b: Complex) -> Complex:
    """``a b' / |b|**2``, b brought near 1, a only away from the ends of the range.

    An infinity divided by what is finite is infinite, what is finite divided by one is 0, whatever
    the other part; an infinite operand counts by the direction that it points to.
    """
    endless, short = either_infinite(a), either_infinite(b)
    top, back = _inside(_direction(a, endless))
    low, shrink, _ = scaled(_direction(b, short))
    square = norm(low)
    back = where(endless, where(short, back.like(math.nan), math.inf), back)
    back = where(short & ~endless, 0.0, back)
    by_zero, pole = square.equals(0), copysign(b.re.like(math.inf), b.re)

    def part(product: Num, own: Num) -> Num:
        return where(by_zero, pole * own, product / square * shrink * back)

    return Complex(
        part(top.re * low.re + top.im * low.im, a.re),
        part(top.im * low.re - top.re * low.im, a.im),
    )


def _inside(z: Complex) -> tuple[Complex, Num]:
    """``z`` as a product of what can be multiplied by some units, and of a power of two."""
    form = z.re.format
    m = larger(z)
    high, low = 2.0 ** (form.top - 4), 2.0 ** (2 * form.precision - form.top)
    up = 2.0 ** (2 * form.precision)
    factor = where(m > high, m.like(1 / 16), where(m < low, m.like(up), 1.0))
    back = where(m > high, m.like(16.0), where(m < low, m.like(1 / up), 1.0))
    return Complex(z.re * factor, z.im * factor), back


def _direction(z: Complex, infinite: Num) -> Complex:
    """``z``; where it is infinite 1 or -1 for each infinite part, and 0 for the others."""

    def part(x: Num) -> Num:
        return where(infinite, copysign(where(x.is_infinite, x.like(1.0), 0.0), x), x)

    return Complex(part(z.re), part(z.im))


def sqrt(z: Complex) -> Complex:
    """The root with a real part that is not negative.

    With ``t = sqrt((|x| + |z|) / 2)`` it is ``(t, y / 2t)``, or ``(|y| / 2t, t)`` where x < 0.
    """
    near, _, back = scaled(z, even=True)
    long = norm(near).call("sqrt")
    t = ((abs(near.re) + long) * 0.5).call("sqrt") * back.call("sqrt")
    u = where(t.equals(0), 0.0, abs(z.im) / t * 0.5)
    right = z.re >= 0
    re, im = where(right, t, u), where(right, u, t)
    infinite = z.re.is_infinite
    re = where(infinite, where(right, math.inf, z.im - z.im), re)
    im = where(infinite, where(right, z.im - z.im, math.inf), im)
    above = z.im.is_infinite
    re, im = where(above, math.inf, re), where(above, math.inf, im)
    return Complex(re, copysign(im, z.im))


def rsqrt(z: Complex) -> Complex:
    """``1 / sqrt(z)``: with ``w`` the root of ``z s`` near 1, ``w' / |z s| * sqrt(s)``."""
    near, s, _ = scaled(z, even=True)
    long = norm(near).call("sqrt")
    t = ((abs(near.re) + long) * 0.5).call("sqrt")
    u = abs(near.im) / (t * 2.0)
    grow = s.call("sqrt")
    right = z.re >= 0
    re = where(right, t, u) / long * grow
    im = where(right, u, t) / long * grow
    zero, far = long.equals(0), either_infinite(z)
    re = where(zero, math.inf, where(far, 0.0, re))
    im = where(zero, math.nan, where(far, 0.0, im))
    return Complex(re, copysign(im, -z.im))


def equal(a: Complex, b: Complex) -> Num:
    return a.re.equals(b.re) & a.im.equals(b.im)


def differ(a: Complex, b: Complex) -> Num:
    return a.re.differs(b.re) | a.im.differs(b.im)
