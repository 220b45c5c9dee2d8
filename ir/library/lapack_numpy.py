"""The plainer routines of LAPACK without SciPy: one matrix each, results as LAPACK gives them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def potrf(a: Array, lower: bool) -> tuple[Array, int]:
    """The factor in its triangle, the other one as it was; ``info`` says where it failed."""
    keep, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    rest = other(a, 1 if lower else -1)
    half = np.tril(a) if lower else np.conj(np.triu(a).T)
    for n in range(1, len(a) + 1):
        try:
            np.linalg.cholesky(half[:n, :n])
        except np.linalg.LinAlgError:
            return a, n
    factor = np.linalg.cholesky(half)
    return keep(factor if lower else np.conj(factor.T)) + rest, 0


def getrf(a: Array) -> tuple[Array, Array, int]:
    """L and U in one matrix, pivots from 1, and the first zero of the diagonal, 0 if none."""
    lu = a.copy()
    steps = min(a.shape)
    pivots, info = np.zeros(steps, np.int32), 0
    for k in range(steps):
        best = k + int(np.argmax(np.abs(lu[k:, k])))
        pivots[k] = best + 1
        lu[[k, best]] = lu[[best, k]]
        if lu[k, k] == 0:
            info = info or k + 1
            continue
        lu[k + 1 :, k] /= lu[k, k]
        lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
    return lu, pivots, info


def gesv(a: Array, b: Array) -> tuple[Array, Array, Array, int]:
    """``getrf``'s matrix and pivots, what solves ``a x = b``, and ``info``."""
    lu, pivots, info = getrf(a)
    return lu, pivots, b if info else np.linalg.solve(a, b), info


def geqrf(a: Array) -> tuple[Array, Array]:
    """R above the diagonal, the reflectors below it, and their factors."""
    h, tau = np.linalg.qr(a, mode="raw")
    return h.T.astype(a.dtype), tau.astype(a.dtype)


def orgqr(a: Array, tau: Array) -> Array:
    """The first columns of ``H(1) H(2) ...``, with ``H(k) = I - tau[k] v v^H``, v below row k."""
    m, n = a.shape
    q = np.eye(m, n, dtype=a.dtype)
    for k in reversed(range(len(tau))):
        v = np.concatenate([np.zeros(k, a.dtype), np.ones(1, a.dtype), a[k + 1 :, k]])
        q -= tau[k] * np.outer(v, np.conj(v) @ q)
    return q


def ormqr(a: Array, tau: Array, c: Array, left: bool, turned: bool) -> Array:
    """``Q c``, ``c Q``, or, ``turned``, the same with ``Q^H``; the reflectors are ``orgqr``'s."""
    out = c if left else np.conj(c.T)
    # c Q is (Q^H c^H)^H, so that only products from the left remain
    forward = turned if left else not turned
    out = out.copy()
    for k in range(len(tau)) if forward else reversed(range(len(tau))):
        v = np.concatenate([np.zeros(k, a.dtype), np.ones(1, a.dtype), a[k + 1 :, k]])
        factor = np.conj(tau[k]) if forward else tau[k]
        out -= factor * np.outer(v, np.conj(v) @ out)
    return out if left else np.conj(out.T)


def syevd(a: Array, lower: bool) -> tuple[Array, Array, int]:
    """Eigenvectors and eigenvalues of a Hermitian matrix, of which one triangle is read."""
    values, vectors = np.linalg.eigh(a, "L" if lower else "U")
    return vectors, values, 0


def svd(a: Array, vectors: bool, full: bool) -> tuple[Any, Array, Any, int]:
    """U, the singular values, V^H; U and V^H are None unless ``vectors``."""
    if not vectors:
        return None, np.linalg.svd(a, compute_uv=False), None, 0
    u, s, vt = np.linalg.svd(a, full_matrices=full)
    return u, s, vt, 0
