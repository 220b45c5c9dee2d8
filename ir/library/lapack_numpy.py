"""The plainer routines of LAPACK without SciPy, on whole batches: matrices ``[B, m, n]``.

Results are as LAPACK gives them; NumPy's functions end for a whole batch where one of its matrices
fails, so that its matrices are then computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..arrays import Array

Results: TypeAlias = tuple[Array, ...]


def potrf(a: Array, lower: bool) -> Results:
    """The factor in its triangle, the other one as it was; ``info`` says where it failed."""
    half = np.tril(a) if lower else np.conj(_turned(np.triu(a)))
    (factor,), info = _told(lambda x: (np.linalg.cholesky(x),), half, [half.copy()])
    for k in np.flatnonzero(info):
        info[k] = _failed(half[k])
    keep, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    made = keep(factor if lower else np.conj(_turned(factor))) + other(a, 1 if lower else -1)
    return np.where(info[:, None, None] != 0, a, made), info


def _failed(half: Array) -> int:
    """The first leading minor, from 1, that has no factor."""
    for n in range(1, len(half)):
        try:
            np.linalg.cholesky(half[:n, :n])
        except np.linalg.LinAlgError:
            return n
    return len(half)


def getrf(a: Array) -> Results:
    """L and U in one matrix, pivots from 1, and the first zero of the diagonal, 0 if none."""
    lu, (count, m, n) = a.copy(), a.shape
    steps, every = min(m, n), np.arange(count)
    pivots, info = np.zeros((count, steps), np.int32), np.zeros(count, np.int32)
    for k in range(steps):
        best = k + np.argmax(_size(lu[:, k:, k]), axis=1)
        pivots[:, k] = best + 1
        row = lu[every, best]
        lu[every, best], lu[:, k] = lu[:, k].copy(), row
        zero = row[:, k] == 0
        info[zero & (info == 0)] = k + 1
        lu[:, k + 1 :, k] /= np.where(zero, 1, row[:, k])[:, None]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * row[:, None, k + 1 :]
    return lu, pivots, info


def _size(x: Array) -> Array:
    """The sizes that pivots are chosen by."""
    return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)


def gesv(a: Array, b: Array) -> Results:
    """``getrf``'s matrix and pivots, what solves ``a x = b``, and ``info``."""
    lu, pivots, info = getrf(a)
    x, good = b.copy(), info == 0
    x[good] = np.linalg.solve(a[good], b[good])
    return lu, pivots, x, info


def geqrf(a: Array) -> Results:
    """R above the diagonal, the reflectors below it, and their factors."""
    h, tau = np.linalg.qr(a, mode="raw")
    return _turned(h).astype(a.dtype), tau.astype(a.dtype)


def orgqr(a: Array, tau: Array) -> Results:
    """The first columns of ``H(1) H(2) ...``, with ``H(k) = I - tau[k] v v^H``, v below row k."""
    _, m, n = a.shape
    q = np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape).copy()
    for k in reversed(range(tau.shape[1])):
        _reflect(a, tau[:, k], k, q)
    return (q,)


def ormqr(a: Array, tau: Array, c: Array, left: bool, turned: bool) -> Results:
    """``Q c``, ``c Q``, or, ``turned``, the same with ``Q^H``; the reflectors are ``orgqr``'s."""
    out = c.copy() if left else np.conj(_turned(c))
    # c Q is (Q^H c^H)^H, so that only products from the left remain
    forward, steps = turned if left else not turned, range(tau.shape[1])
    for k in steps if forward else reversed(steps):
        _reflect(a, np.conj(tau[:, k]) if forward else tau[:, k], k, out)
    return (out if left else np.conj(_turned(out)),)


def _reflect(a: Array, factor: Array, k: int, x: Array) -> None:
    """Multiply ``x`` by reflector number ``k`` of each matrix."""
    v = a[:, k:, k].copy()
    v[:, 0] = 1
    products = np.conj(v)[:, None, :] @ x[:, k:]
    x[:, k:] -= (factor[:, None] * v)[:, :, None] * products


def syevd(a: Array, lower: bool, vectors: bool) -> Results:
    """Eigenvectors, eigenvalues and ``info`` of Hermitian matrices, of which a triangle is read."""

    def solved(x: Array) -> Results:
        values, v = np.linalg.eigh(x, "L" if lower else "U")
        return v, values

    (v, values), info = _told(solved, a, [a.copy(), np.zeros(a.shape[:2], a.real.dtype)])
    return v, values, info


def svd(a: Array, name: str, mode: str) -> Results:
    """U, the singular values, V^H and ``info``; in mode N neither U nor V^H."""
    count, m, n = a.shape
    k = min(m, n)
    u_dims, v_dims = {"A": ((m, m), (n, n)), "S": ((m, k), (k, n)), "N": ((1, 1), (1, 1))}[mode]
    u, vt = (np.zeros((count, *dims), a.dtype) for dims in (u_dims, v_dims))
    s = np.zeros((count, k), a.real.dtype)
    if mode == "N":
        (s,), info = _told(lambda x: (np.linalg.svd(x, compute_uv=False),), a, [s])
    else:
        full = mode == "A"
        (u, s, vt), info = _told(lambda x: tuple(np.linalg.svd(x, full)), a, [u, s, vt])
    return u, s, vt, info


def _told(
    function: Callable[[Array], Results], a: Array, outs: Sequence[Array]
) -> tuple[Sequence[Array], Array]:
    """Return a function's results and ``info``: 1, and what ``outs`` had, where it fails."""
    info = np.zeros(len(a), np.int32)
    try:
        return function(a), info
    except np.linalg.LinAlgError:
        for k in range(len(a)):
            try:
                for out, made in zip(outs, function(a[k : k + 1]), strict=True):
                    out[k] = made[0]
            except np.linalg.LinAlgError:
                info[k] = 1
    return outs, info


def _turned(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)
