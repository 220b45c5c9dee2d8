"""The routines of LAPACK that SciPy brings, recorded for batches: matrices ``[B, m, n]``.

LAPACK has matrices column by column, so that a matrix is passed as a copy with its columns in rows.
What is undefined where a routine fails is whatever it left.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array
from .each import Workspace
from .tape import Tape

Results: TypeAlias = tuple[Array, ...]

_INT = np.dtype(np.int32)


def _turned(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


def _is_complex(a: Array) -> bool:
    return np.iscomplexobj(a)


def _real(a: Array) -> np.dtype[Any]:
    return a.real.dtype


def potrf(tape: Tape, a: Array, lower: bool) -> Results:
    """The factor in its triangle, the other one as it was, and ``info``."""
    n, out = a.shape[2], tape.copy(a)
    # A lower triangle by rows is an upper one by columns.
    info = tape.lapack("potrf", a, "U" if lower else "L", n, out, n)
    return out, info


def getrf(tape: Tape, a: Array) -> Results:
    """L and U in one matrix, pivots from 1, and the first zero of the diagonal, 0 if none."""
    _, m, n = a.shape
    lu, pivots = tape.columns(a), tape.zeros(a, min(m, n), dtype=_INT)
    info = tape.lapack("getrf", a, m, n, lu, m, pivots)
    return _turned(lu), pivots, info


def gesv(tape: Tape, a: Array, b: Array) -> Results:
    """``getrf``'s matrix and pivots, what solves ``a x = b``, and ``info``."""
    n, lu, x = a.shape[2], tape.columns(a), tape.columns(b)
    pivots = tape.zeros(a, n, dtype=_INT)
    info = tape.lapack("gesv", a, n, b.shape[2], lu, n, pivots, x, n)
    return _turned(lu), pivots, _turned(x), info


def geqrf(tape: Tape, a: Array) -> Results:
    """R above the diagonal, the reflectors below it, and their factors."""
    _, m, n = a.shape
    h, tau = tape.columns(a), tape.zeros(a, min(m, n))
    tape.lapack("geqrf", a, m, n, h, m, tau, Workspace(a.dtype))
    return _turned(h), tau


def geqp3(tape: Tape, a: Array) -> Results:
    """``geqrf``'s results of columns in another order, which is the second result, from 1."""
    _, m, n = a.shape
    h, tau, order = tape.columns(a), tape.zeros(a, min(m, n)), tape.zeros(a, n, dtype=_INT)
    more = (Workspace(_real(a), 2 * n),) if _is_complex(a) else ()
    tape.lapack("geqp3", a, m, n, h, m, order, tau, Workspace(a.dtype), *more)
    return _turned(h), order, tau


def orgqr(tape: Tape, a: Array, tau: Array) -> Results:
    """The first columns of the Q whose reflectors ``a`` holds."""
    _, m, n = a.shape
    q = tape.columns(a)
    name = "ungqr" if _is_complex(a) else "orgqr"
    tape.lapack(name, a, m, n, tau.shape[1], q, m, tau, Workspace(a.dtype))
    return (_turned(q),)


def ormqr(tape: Tape, a: Array, tau: Array, c: Array, left: bool, turned: bool) -> Results:
    """``Q c``, ``c Q``, or, ``turned``, the same with ``Q^H``; the reflectors are ``orgqr``'s."""
    _, rows, columns = c.shape
    name = "unmqr" if _is_complex(a) else "ormqr"
    letter = "N" if not turned else "C" if _is_complex(a) else "T"
    h, out = tape.columns(a), tape.columns(c)
    sides = ("L" if left else "R", letter, rows, columns, tau.shape[1])
    factors = tau
    tape.lapack(name, c, *sides, h, a.shape[1], factors, out, rows, Workspace(a.dtype))
    return (_turned(out),)


def syevd(tape: Tape, a: Array, lower: bool, vectors: bool) -> Results:
    """Eigenvectors, eigenvalues and ``info`` of Hermitian matrices, of which a triangle is read."""
    n, real = a.shape[2], _real(a)
    v, w = tape.columns(a), tape.zeros(a, n, dtype=real)
    kinds = [a.dtype, real, _INT] if _is_complex(a) else [real, _INT]
    works = map(Workspace, kinds)
    letters = "V" if vectors else "N", "L" if lower else "U"
    info = tape.lapack("heevd" if _is_complex(a) else "syevd", a, *letters, n, v, n, w, *works)
    return _turned(v), w, info


def svd(tape: Tape, a: Array, name: str, mode: str) -> Results:
    """U, the singular values, V^H and ``info``, by ``gesdd`` or ``gesvd``; modes are A, S and N."""
    _, m, n = a.shape
    k, most, real = min(m, n), max(m, n), _real(a)
    u_dims, v_dims = {"A": ((m, m), (n, n)), "S": ((m, k), (k, n)), "N": ((1, 1), (1, 1))}[mode]
    u, s, vt = (
        tape.zeros(a, *u_dims[::-1]),
        tape.zeros(a, k, dtype=real),
        tape.zeros(a, *v_dims[::-1]),
    )
    arrays = m, n, tape.columns(a), m, s, u, u_dims[0], vt, v_dims[0], Workspace(a.dtype)
    reals = k * max(5 * k + 7, 2 * most + 2 * k + 1) if name == "gesdd" else 5 * k
    more = (Workspace(real, reals),) if _is_complex(a) else ()
    if name == "gesdd":
        info = tape.lapack(name, a, mode, *arrays, *more, Workspace(_INT, 8 * k))
    else:
        info = tape.lapack(name, a, mode, mode, *arrays, *more)
    return _turned(u), s, _turned(vt), info


def geev(tape: Tape, a: Array, left: bool, right: bool) -> Results:
    """Eigenvalues (real and imaginary parts of a real matrix), eigenvectors and ``info``."""
    n, letters = a.shape[2], ["V" if side else "N" for side in (left, right)]
    is_complex = _is_complex(a)
    values = [tape.zeros(a, n) for _ in range(1 if is_complex else 2)]
    vl, vr = (tape.zeros(a, n, n) for _ in letters)
    more = (Workspace(_real(a), 2 * n),) if is_complex else ()
    sides = vl, n, vr, n, Workspace(a.dtype), *more
    info = tape.lapack("geev", a, *letters, n, tape.columns(a), n, *values, *sides)
    vectors = [_turned(v) for v in (vl, vr)]
    if not is_complex:
        packed, kind = vectors, np.result_type(a.dtype, np.complex64)
        vectors = [tape.zeros(a, n, n, dtype=kind) for _ in packed]
        for v, out, asked in zip(packed, vectors, (left, right), strict=True):
            if asked:
                tape.then(partial(_unpack, v, values[1], out))
    return *values, *vectors, info


def _unpack(v: Array, imaginary: Array, out: Array) -> None:
    """Eigenvectors of real matrices: of each pair LAPACK gives real and imaginary parts."""
    out[...] = v
    at, first = np.nonzero(imaginary[:, :-1] > 0)
    out[at, :, first] = v[at, :, first] + 1j * v[at, :, first + 1]
    out[at, :, first + 1] = np.conj(out[at, :, first])


def gehrd(tape: Tape, a: Array, low: int, high: int) -> Results:
    """The Hessenberg form of rows ``low`` to ``high``, its reflectors' factors, and ``info``."""
    n = a.shape[2]
    h, tau = tape.columns(a), tape.zeros(a, n - 1)
    info = tape.lapack("gehrd", a, n, low, high, h, n, tau, Workspace(a.dtype))
    return _turned(h), tau, info


def gees(tape: Tape, a: Array, vectors: bool) -> Results:
    """The Schur form, its vectors, eigenvalues, how many were sorted (none), and ``info``."""
    n = a.shape[2]
    values = [tape.zeros(a, n) for _ in range(1 if _is_complex(a) else 2)]
    t, vs, count = tape.columns(a), tape.zeros(a, n, n), tape.zeros(a, dtype=_INT)
    more = (Workspace(_real(a), n),) if _is_complex(a) else ()
    arrays = n, t, n, count, *values, vs, n, Workspace(a.dtype), *more, Workspace(_INT, n)
    info = tape.lapack("gees", a, "V" if vectors else "N", "N", None, *arrays)
    return _turned(t), _turned(vs), *values, count, info


def sytrd(tape: Tape, a: Array, lower: bool) -> Results:
    """A tridiagonal form: reflectors, diagonal, the one beside it, factors, and ``info``."""
    n, real = a.shape[2], _real(a)
    c, d, e = tape.columns(a), tape.zeros(a, n, dtype=real), tape.zeros(a, n - 1, dtype=real)
    tau = tape.zeros(a, n - 1)
    name = "hetrd" if _is_complex(a) else "sytrd"
    info = tape.lapack(name, a, "L" if lower else "U", n, c, n, d, e, tau, Workspace(a.dtype))
    return _turned(c), d, e, tau, info


def gtsv(tape: Tape, low: Array, middle: Array, high: Array, b: Array) -> Results:
    """Solutions of tridiagonal systems, and ``info``; the outer diagonals are one shorter."""
    _, n, columns = b.shape
    x = tape.columns(b)
    diagonals = [tape.copy(d) for d in (low, middle, high)]
    info = tape.lapack("gtsv", b, n, columns, *diagonals, x, n)
    return _turned(x), info
