"""Cholesky factors and triangular systems: SciPy's BLAS where it is installed, else NumPy.

Narrow floats are computed in f32. No function here reads the triangle that is not asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np

from .call import LibraryCall

Array: TypeAlias = np.ndarray[Any, Any]

BLOCK = 32  # rows of a triangle that are solved one by one; the rest goes through matrix products
LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
"""The letter that BLAS and LAPACK have for NumPy's type of character ``dtype.char``."""


@cache
def scipy(name: str) -> Any:
    """A module of SciPy, as ``linalg.blas``; None where SciPy is not installed."""
    try:
        return import_module(f"scipy.{name}")
    except ImportError:
        return None


def routine(module: str, a: Array, name: str) -> Any:
    """A routine of SciPy's ``blas`` or ``lapack`` for the type of an array."""
    return getattr(scipy(f"linalg.{module}"), LETTERS[a.dtype.char] + name)


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
    if half.shape[-1] < BLOCK or scipy("linalg.lapack") is None:
        return _by_numpy(half)
    potrf, out = routine("lapack", half, "potrf"), half.copy()
    for at in np.ndindex(out.shape[:-2]):
        # The upper triangle of the transpose, where it lies: LAPACK has columns in order.
        found, failed = potrf(out[at].T, lower=0, clean=1, overwrite_a=1)
        good = not failed and bool(np.isfinite(np.diagonal(found)).all())
        out[at] = found.T if good else np.nan
    return out


def _by_numpy(half: Array) -> Array:
    """NumPy reads the lower triangle alone. It fails for all where one matrix is no good."""
    try:
        found = np.linalg.cholesky(half)
    except np.linalg.LinAlgError:
        if half.ndim == 2:
            return np.full_like(half, np.nan)
        return np.stack([_by_numpy(m) for m in half])
    bad = np.atleast_1d(~np.isfinite(np.diagonal(found, axis1=-2, axis2=-1)).all(-1))
    found.reshape(-1, *found.shape[-2:])[bad.reshape(-1)] = np.nan
    return found


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
    x = np.array(b, wide, order="C")
    if x.size and _few(a) and scipy("linalg.blas") is not None:
        _by_blas(a.astype(wide, copy=False), x, left, lower, unit, turned)
    elif x.size:
        x = _by_rows(a.astype(wide, copy=False), x, left, lower, unit, turned)
    return x.astype(b.dtype, copy=False)


def _few(a: Array) -> bool:
    """Is a call of BLAS for each matrix cheaper than steps for each row of all of them?

    A row takes about as long as two calls, as long as it is short.
    """
    n: int = a.shape[-1]
    return n >= BLOCK or prod(a.shape[:-2]) <= 2 * n


def _by_blas(a: Array, x: Array, left: bool, lower: bool, unit: bool, turned: str) -> None:
    """Solve in place. BLAS has columns in order: it gets the transposes, on the other side."""
    trans = {"TRANSPOSE": 1, "ADJOINT": 2}.get(turned, 0)
    trsm, trsv = (routine("blas", x, name) for name in ("trsm", "trsv"))
    flags = {"lower": int(not lower), "diag": int(unit)}
    if left and (trans < 2 or not np.iscomplexobj(x)):
        one, alone = int(not trans), x.shape[-1] == 1
    else:
        one, alone = trans, not left and x.shape[-2] == 1
    for at in np.ndindex(x.shape[:-2]):
        if alone:
            row = x[at].reshape(-1)
            row[:] = trsv(a[at].T, row, trans=one, overwrite_x=1, **flags)
        else:
            side = {"side": int(left), "trans_a": trans}
            x[at] = trsm(1.0, a[at].T, x[at].T, overwrite_b=1, **side, **flags).T


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
