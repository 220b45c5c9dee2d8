"""Complex arithmetic on real parts: products, quotients, magnitudes, roots.

Products use four multiplications, as XLA's do. Quotients, magnitudes and roots first scale their
operands by powers of two to near 1, so that no intermediate value overflows or underflows. Results
at infinities, NaN and signed zeros are those of the C standard (ISO/IEC 9899, annex G).
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
    """Return ``a + b``."""
    return Complex(a.re + b.re, a.im + b.im)


def subtract(a: Complex, b: Complex) -> Complex:
    """Return ``a - b``."""
    return Complex(a.re - b.re, a.im - b.im)


def negate(z: Complex) -> Complex:
    """Return ``-z``."""
    return Complex(-z.re, -z.im)


def multiply(a: Complex, b: Complex) -> Complex:
    """Return ``a b`` by four products, without regard to infinities."""
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def larger_part(z: Complex) -> Num:
    """Return ``max(|re|, |im|)``; NaN if either part is."""
    return abs(z.re).call("maximum", abs(z.im))


def scaled(z: Complex, *, even: bool = False) -> tuple[Complex, Num, Num]:
    """Return ``z s`` near 1, ``s`` and ``1 / s``; ``s`` is a power of 2, or of 4 if ``even``."""
    s, back = scale(larger_part(z), even=even)
    return Complex(z.re * s, z.im * s), s, back


def norm(z: Complex) -> Num:
    """Return ``|z|**2``, which may overflow or underflow."""
    return z.re * z.re + z.im * z.im


def either_infinite(z: Complex) -> Num:
    """Return a pred array that is true where either part is infinite."""
    return z.re.is_infinite | z.im.is_infinite


def magnitude(z: Complex) -> Num:
    """Return ``|z|``; infinite if either part is, even if the other is NaN."""
    near, _, back = scaled(z)
    return where(either_infinite(z), math.inf, norm(near).call("sqrt") * back)


def sign(z: Complex) -> Complex:
    """Return ``z / |z|``, and ``z`` itself where it is 0."""
    near, _, _ = scaled(z)
    size = norm(near).call("sqrt")
    zero = size.equals(0)
    return Complex(where(zero, z.re, near.re / size), where(zero, z.im, near.im / size))


def divide(a: Complex, b: Complex) -> Complex:
    """Return ``a b' / |b|**2``, with b scaled to near 1 and a away from the ends of the range.

    An infinity divided by a finite number is infinite, and the reverse is 0. A number is infinite
    if either part is; it is then replaced by its direction, with parts of 0, 1 and -1. Division by
    zero gives ``a`` times an infinity that has the sign of the real part of ``b``.
    """
    a_infinite, b_infinite = either_infinite(a), either_infinite(b)
    top, back = _in_range(_direction(a, a_infinite))
    low, shrink, _ = scaled(_direction(b, b_infinite))
    square = norm(low)
    back = where(a_infinite, where(b_infinite, back.like(math.nan), math.inf), back)
    back = where(b_infinite & ~a_infinite, 0.0, back)
    by_zero, pole = square.equals(0), copysign(b.re.like(math.inf), b.re)

    def part(product: Num, numerator: Num) -> Num:
        return where(by_zero, pole * numerator, product / square * shrink * back)

    return Complex(
        part(top.re * low.re + top.im * low.im, a.re),
        part(top.im * low.re - top.re * low.im, a.im),
    )


def _in_range(z: Complex) -> tuple[Complex, Num]:
    """Split ``z`` into a number that may be multiplied by a few units without overflow or
    underflow, and a power of two."""
    form = z.re.format
    m = larger_part(z)
    high, low = 2.0 ** (form.top - 4), 2.0 ** (2 * form.precision - form.top)
    up = 2.0 ** (2 * form.precision)
    factor = where(m > high, m.like(1 / 16), where(m < low, m.like(up), 1.0))
    back = where(m > high, m.like(16.0), where(m < low, m.like(1 / up), 1.0))
    return Complex(z.re * factor, z.im * factor), back


def _direction(z: Complex, infinite: Num) -> Complex:
    """Replace infinite numbers by 1 or -1 for each infinite part and 0 or -0 for a finite one."""

    def part(x: Num) -> Num:
        return where(infinite, copysign(where(x.is_infinite, x.like(1.0), 0.0), x), x)

    return Complex(part(z.re), part(z.im))


def sqrt(z: Complex) -> Complex:
    """Return the square root whose real part is not negative.

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
    """Return ``1 / sqrt(z)`` as ``w' / |z s| * sqrt(s)``, where ``w = sqrt(z s)`` is near 1."""
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
    """Return a pred array that is true where both parts are equal."""
    return a.re.equals(b.re) & a.im.equals(b.im)


def differ(a: Complex, b: Complex) -> Num:
    """Return a pred array that is true where either part differs."""
    return a.re.differs(b.re) | a.im.differs(b.im)
