"""Reference semantics of element-wise operations on complex numbers, in NumPy.

Functions take and return complex128; c64 is computed in complex128 and rounded once. NumPy's
functions are those of the machine's C library, correct to within a few ulp, also at branch cuts and
infinities (ISO/IEC 9899, annex G). This file adds the ones that NumPy lacks, or in which it loses
digits or infinities, and settles where libraries differ: both parts of a result are NaN where its
direction depends on an angle that is none, or on a part that is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .arrays import Array


def _of_parts(re: Array, im: Array) -> Array:
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex128)
    out.real, out.imag = re, im
    return out


def divide(a: Array, b: Array) -> Array:
    """Return ``a / b``: infinite for an infinity over a finite number, 0 for the reverse.

    A number is infinite if either part is. Division by zero gives ``a`` times an infinity that has
    the sign of the real part of ``b``.
    """
    a_infinite, b_infinite = _infinite(a), _infinite(b)
    plain = np.divide(_direction(a, a_infinite), _direction(b, b_infinite))
    of_infinity = np.where(b_infinite, np.nan, np.inf)
    factor = np.where(a_infinite, of_infinity, np.where(b_infinite, 0.0, 1.0))
    plain = _of_parts(plain.real * factor, plain.imag * factor)
    pole = np.copysign(np.inf, b.real)
    return np.where(b == 0, _of_parts(pole * a.real, pole * a.imag), plain)


def _infinite(z: Array) -> Array:
    return np.asarray(np.isinf(z.real) | np.isinf(z.imag))


def _direction(z: Array, infinite: Array) -> Array:
    """Replace infinite numbers by 1 or -1 for each infinite part and 0 or -0 for a finite one."""
    re, im = (np.copysign(np.isinf(x).astype(float), x) for x in (z.real, z.imag))
    return np.where(infinite, _of_parts(re, im), z)


_LOST = complex(np.nan, np.nan)


def _turning(f: Callable[[Array], Array], z: Array, angle: Array) -> Array:
    return np.where(np.isfinite(angle), f(z), _LOST)


def exp(z: Array) -> Array:
    """Return ``exp(z)``: 0 for ``Re z = -inf`` and any imaginary part."""
    return np.where(z.real == -np.inf, 0.0, _turning(np.exp, z, z.imag))


def expm1(z: Array) -> Array:
    """Return ``exp(z) - 1``, real for a real z."""
    found = np.where(z.real == -np.inf, -1.0, _turning(np.expm1, z, z.imag))
    return np.where(z.imag == 0, _of_parts(np.expm1(z.real), z.imag), found)


def sinh(z: Array) -> Array:
    """Return ``sinh(z)``."""
    return _turning(np.sinh, z, z.imag)


def cosh(z: Array) -> Array:
    """Return ``cosh(z)``."""
    return _turning(np.cosh, z, z.imag)


def tanh(z: Array) -> Array:
    """Return ``tanh(z)``: 1 or -1 for infinite ``Re z`` and any imaginary part."""
    far = np.isinf(z.real) & ~np.isfinite(z.imag)
    return np.where(far, np.copysign(1.0, z.real), _turning(np.tanh, z, z.imag))


def sin(z: Array) -> Array:
    """Return ``sin(z)``."""
    return _turning(np.sin, z, z.real)


def cos(z: Array) -> Array:
    """Return ``cos(z)``."""
    return _turning(np.cos, z, z.real)


def tan(z: Array) -> Array:
    """Return ``-i tanh(i z)``."""
    turned = tanh(_of_parts(-z.imag, z.real))
    return _of_parts(turned.imag, -turned.real)


def _of_known(f: Callable[[Array], Array], ends: bool = True) -> Callable[[Array], Array]:
    """Return an inverse function that is NaN where a part is; if it ``ends`` at infinity, unless
    the other part is infinite.
    """

    def known(z: Array) -> Array:
        lost = np.isnan(z) & ~_infinite(z) if ends else np.isnan(z)
        return np.where(lost, _LOST, f(z))

    return known


def sign(z: Array) -> Array:
    """Return ``z / |z|``, and ``z`` itself where it is 0."""
    size = np.abs(z)
    safe = np.where(size == 0, 1.0, size)
    return np.where(size == 0, z, _of_parts(z.real / safe, z.imag / safe))


def rsqrt(z: Array) -> Array:
    """Return ``1 / sqrt(z)`` on the principal branch."""
    return divide(np.ones_like(z), np.sqrt(z))


def cbrt(z: Array) -> Array:
    """Return the principal cube root, whose argument is a third of that of ``z``."""
    size, turn = np.cbrt(np.abs(z)), np.angle(z) / 3
    im = np.where((z.imag == 0) & (z.real >= 0), z.imag, size * np.sin(turn))
    return _of_parts(size * np.cos(turn), im)


def log1p(z: Array) -> Array:
    """Return ``log(1 + z)``; ``log|1 + z|`` is ``log1p(|1 + z|**2 - 1) / 2`` near 0."""
    excess = z.real * (2.0 + z.real) + z.imag * z.imag
    near = np.abs(excess) < 0.5
    size = np.where(near, 0.5 * np.log1p(np.where(near, excess, 0.0)), np.log(np.abs(1.0 + z)))
    return _of_parts(size, np.arctan2(z.imag, 1.0 + z.real))


def logistic(z: Array) -> Array:
    """Return ``1 / (1 + exp(-z))`` from whichever of ``exp(z)`` and ``exp(-z)`` does not overflow.

    It is real for a real z, and where ``exp(-|Re z|)`` is 0. Where ``|Re z| < 1``, which is where
    the poles are, it is ``(1 + tanh(z / 2)) / 2``.
    """
    e = np.exp(np.where(z.real < 0, z, -z))
    plain = divide(np.where(z.real < 0, e, 1.0), 1.0 + e)
    found = np.where(np.abs(z.real) < 1, 0.5 + 0.5 * np.tanh(0.5 * z), plain)
    found = np.where(np.exp(-np.abs(z.real)) == 0, np.where(z.real > 0, 1.0, 0.0), found)
    return _of_parts(found.real, np.where(z.imag == 0, z.imag, found.imag))


def power(z: Array, w: Array) -> Array:
    """Return ``z ** w``; ``z ** 0`` is 1, ``z ** 1`` is z, and ``0 ** w`` is 0 if ``Re w > 0``.

    Of zeros, infinities and NaN it is ``|z|**c exp(-d t) (cos q + i sin q)``, where
    ``w = c + i d``, ``t`` is the argument of z and ``q = c t + d log|z|``.
    """
    size, t, level = np.abs(z), np.angle(z), w.imag == 0
    length = np.power(size, w.real) * np.where(level, 1.0, np.exp(-w.imag * t))
    angle = w.real * t + np.where(level, 0.0, w.imag * np.log(size))
    found = _of_parts(length * np.cos(angle), length * np.sin(angle))
    found = np.where(np.isfinite(z) & (z != 0) & np.isfinite(w), np.power(z, w), found)
    real = level & (z.imag == 0) & (z.real >= 0)
    found = np.where(real, np.power(size, w.real), found)
    found = np.where(w == 1, z, np.where((z == 0) & (w.real > 0), 0.0, found))
    return np.where(w == 0, 1.0, found)


def atan2(y: Array, x: Array) -> Array:
    """Return ``-i log((x + i y) / sqrt(x**2 + y**2))``, scaled so that squares do not overflow."""
    m = np.maximum(np.abs(x), np.abs(y))
    s = np.exp2(-np.floor(np.log2(np.where((m > 0) & np.isfinite(m), m, 1.0))))
    x, y = x * s, y * s
    turned = np.log(divide(x + _of_parts(-y.imag, y.real), np.sqrt(x * x + y * y)))
    return _of_parts(turned.imag, -turned.real)


FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "divide": divide,
    "sign": sign,
    "sqrt": np.sqrt,
    "rsqrt": rsqrt,
    "cbrt": cbrt,
    "exponential": exp,
    "exponential-minus-one": expm1,
    "log": np.log,
    "log-plus-one": log1p,
    "logistic": logistic,
    "power": power,
    "atan2": atan2,
    "sine": sin,
    "cosine": cos,
    "tan": tan,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asin": _of_known(np.arcsin),
    "acos": _of_known(np.arccos),
    "atan": _of_known(np.arctan, ends=False),
    "asinh": _of_known(np.arcsinh),
    "acosh": _of_known(np.arccosh),
    "atanh": _of_known(np.arctanh, ends=False),
}


def evaluate(name: str, args: tuple[Array, ...]) -> Array:
    """Apply ``FUNCTIONS[name]`` to c64 or c128 arrays and return their element type."""
    with np.errstate(all="ignore"):
        wide = FUNCTIONS[name](*(a.astype(np.complex128) for a in args))
        return np.asarray(wide).astype(args[-1].dtype)
