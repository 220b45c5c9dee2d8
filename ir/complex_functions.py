"""Reference semantics of element-wise operations on complex numbers, in NumPy.

Functions take and return complex128; c64 is computed in complex128 and rounded once. NumPy's
functions are those of the machine's C library, correct to within a few ulp, also at branch cuts and
infinities (ISO/IEC 9899, annex G). This file adds the ones that NumPy lacks, or in which it loses
digits or infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


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
    return _of_parts(size * np.cos(turn), size * np.sin(turn))


def log1p(z: Array) -> Array:
    """Return ``log(1 + z)``; ``log|1 + z|`` is ``log1p(|1 + z|**2 - 1) / 2`` near 0."""
    excess = z.real * (2.0 + z.real) + z.imag * z.imag
    near = np.abs(excess) < 0.5
    size = np.where(near, 0.5 * np.log1p(np.where(near, excess, 0.0)), np.log(np.abs(1.0 + z)))
    return _of_parts(size, np.arctan2(z.imag, 1.0 + z.real))


def logistic(z: Array) -> Array:
    """Return ``1 / (1 + exp(-z))`` from whichever of ``exp(z)`` and ``exp(-z)`` does not overflow.

    Where ``|Re z| < 1``, which is where the poles are, it is ``(1 + tanh(z / 2)) / 2``.
    """
    e = np.exp(np.where(z.real < 0, z, -z))
    plain = divide(np.where(z.real < 0, e, 1.0), 1.0 + e)
    return np.where(np.abs(z.real) < 1, 0.5 + 0.5 * np.tanh(0.5 * z), plain)


def power(z: Array, w: Array) -> Array:
    """Return ``z ** w``; ``z ** 0`` is 1, and ``0 ** w`` is 0 if ``Re w > 0``, else infinite."""
    found = np.where(z == 0, np.where(w.real > 0, 0.0, np.inf), np.power(z, w))
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
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": log1p,
    "logistic": logistic,
    "power": power,
    "atan2": atan2,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


def evaluate(name: str, args: tuple[Array, ...]) -> Array:
    """Apply ``FUNCTIONS[name]`` to c64 or c128 arrays and return their element type."""
    with np.errstate(all="ignore"):
        wide = FUNCTIONS[name](*(a.astype(np.complex128) for a in args))
        return np.asarray(wide).astype(args[-1].dtype)
