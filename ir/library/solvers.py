"""Cholesky factors and triangular systems: SciPy's BLAS where it is installed, else NumPy.

Narrow floats are computed in f32. No function here reads the triangle that is not asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array
from .call import LibraryCall
from .each import LETTERS, each, scipy
from .lapack_numpy import potrf
from .tape import Tape, at_once

BLOCK = 32  # rows of a triangle that are solved one by one; the rest goes through matrix products


def cholesky(call: LibraryCall, a: Array) -> Array:
    """L of ``a = L L^H``, or U of ``U^H U`` unless ``lower``; the other triangle is zero.

    A matrix that is not positive definite has NaN everywhere.
    """
    return factor(a, bool(call.attributes.get("lower", False)))


def factor(a: Array, lower: bool) -> Array:
    """The Cholesky factor of each matrix ``[..., n, n]``, in the type of ``a``."""
    wide = _computed_in(a.dtype)
    half = np.tril(a.astype(wide)) if lower else np.conj(_turned(np.triu(a.astype(wide))))
    out = _lower_factors(half)
    return (out if lower else np.conj(_turned(out))).astype(a.dtype)


def _lower_factors(half: Array) -> Array:
    """The lower factors; NaN for a matrix that has none."""
    if not half.size:
        return half
    n, out = half.shape[-1], half.reshape(-1, *half.shape[-2:]).copy()
    if scipy("linalg.cython_lapack") is None:
        out, info = potrf(out, True)
    else:
        info = np.zeros(len(out), np.int32)
        # The upper triangle of the transpose, where it lies: LAPACK has columns in order.
        each("lapack", "potrf", out, "U", n, out, n, info)
    good = (info == 0) & np.isfinite(np.diagonal(out, axis1=1, axis2=2)).all(1)
    out[~good] = np.nan
    return out.reshape(half.shape)


def triangular_solve(call: LibraryCall, a: Array, b: Array) -> Array:
    """x of ``op(a) x = b``, or of ``x op(a) = b`` unless ``left_side``.

    A zero on the diagonal gives infinities and NaN.
    """
    get = call.attributes.get
    return solve(
        a,
        b,
        left=bool(get("left_side", False)),
        lower=bool(get("lower", False)),
        unit=bool(get("unit_diagonal", False)),
        turned=str(get("transpose_a", "NO_TRANSPOSE")),
    )


def solve(a: Array, b: Array, *, left: bool, lower: bool, unit: bool, turned: str) -> Array:
    """Solve with the triangle of each ``a[..., n, n]``; ``turned`` is HLO's ``transpose_a``."""
    wide = _computed_in(np.result_type(b.dtype))
    n, (rows, columns) = a.shape[-1], b.shape[-2:]
    x = b.astype(wide)
    if x.size and scipy("linalg.cython_blas") is not None:
        systems = a.astype(wide, copy=False).reshape(-1, n, n), x.reshape(-1, rows, columns)
        (x,) = at_once(_one(add_solution), *systems, left, lower, unit, turned)
    elif x.size:
        x = _by_rows(a.astype(wide, copy=False), x, left, lower, unit, turned)
    return x.astype(b.dtype, copy=False).reshape(b.shape)


def _one(add: Callable[..., Array]) -> Callable[..., tuple[Array]]:
    return lambda *arguments: (add(*arguments),)


def add_solution(
    tape: Tape, a: Array, b: Array, left: bool, lower: bool, unit: bool, turned: str
) -> Array:
    """The solutions of ``solve``, of operands ``[B, n, n]`` and ``[B, m, n]`` of one wide type.

    BLAS has columns in order: it gets the transposes, on the other side.
    """
    n, (count, rows, columns), x = a.shape[-1], b.shape, tape.copy(b)
    letter = {"TRANSPOSE": "T", "ADJOINT": "C"}.get(turned, "N")
    triangle, diagonal = "U" if lower else "L", "U" if unit else "N"
    if left and columns == 1 and not (letter == "C" and np.iscomplexobj(x)):
        other = "T" if letter == "N" else "N"
        tape.blas("trsv", x, triangle, other, diagonal, n, a, n, x, 1)
    elif not left and rows == 1:
        tape.blas("trsv", x, triangle, letter, diagonal, n, a, n, x, 1)
    else:
        letters = "R" if left else "L", triangle, letter, diagonal
        one = np.broadcast_to(x.dtype.type(1), count)
        tape.blas("trsm", x, *letters, columns, rows, one, a, n, x, columns)
    return x


def _by_rows(a: Array, b: Array, left: bool, lower: bool, unit: bool, turned: str) -> Array:
    if turned != "NO_TRANSPOSE":
        a, lower = _turned(a), not lower
        a = np.conj(a) if turned == "ADJOINT" else a
    if not left:  # x a = b  is  a' x' = b'
        return _turned(_substitute(_turned(a), _turned(b), not lower, unit))
    return _substitute(a, b, lower, unit)


def _substitute(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    """Solve ``a x = b``: blocks of rows in order, within one row by row."""
    n = a.shape[-1]
    x = b.copy()
    starts = range(0, n, BLOCK)
    for start in starts if lower else reversed(starts):
        end = min(n, start + BLOCK)
        rows = range(start, end)
        for r in rows if lower else reversed(rows):
            known = slice(start, r) if lower else slice(r + 1, end)
            x[..., r, :] -= np.matmul(a[..., r : r + 1, known], x[..., known, :])[..., 0, :]
            if not unit:
                x[..., r, :] /= a[..., r, r, None]
        rest = slice(end, n) if lower else slice(0, start)
        x[..., rest, :] -= np.matmul(a[..., rest, start:end], x[..., start:end, :])
    return x


def _turned(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


def _computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.char in LETTERS else np.dtype(np.float32)
