"""Tridiagonal systems whose pivots are perturbed where they are too small.

The factors are those of LAPACK's xLAGTF, the substitution that of xLAGTS with JOB = -1, for many
right-hand sides at once: where a quotient would overflow, its pivot is moved away from zero by
``eps * max |U|``, then by twice as much, until it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array


def solve_perturbed(low: Array, middle: Array, high: Array, b: Array) -> Array:
    """``x [m, n]`` of ``A x = b``, finite for a singular A too.

    ``low``, ``middle`` and ``high`` are the diagonals of A, ``[m]`` each: the first element of
    ``low`` and the last of ``high`` are not used. All four have the same element type.
    """
    with np.errstate(all="ignore"):
        lu = _factor(low, middle, high)
        return _back(lu, _forward(lu, b))


@dataclass(frozen=True, slots=True)
class _Factors:
    """``P A = L U``; ``swapped[k]`` says that rows k and k + 1 changed places.

    ``lower [m - 1]`` are the multipliers of L; ``diagonal [m]``, ``first [m]`` and ``second [m]``
    are U and its two diagonals above. ``largest`` is what counts as the largest element of U.
    """

    lower: Array
    swapped: list[bool]
    diagonal: Array
    first: Array
    second: Array
    largest: Any


def _factor(low: Array, middle: Array, high: Array) -> _Factors:
    """Gaussian elimination; rows are scaled by their sums before their pivots are compared."""
    m = len(middle)
    d, u, w = middle.copy(), high.copy(), np.zeros_like(high)
    u[m - 1] = 0
    lower, swapped = np.zeros_like(middle[1:]), [False] * (m - 1)
    start = max(abs(d[0]), abs(u[0]))
    scale = abs(d[0]) + abs(u[0])
    for k in range(m - 1):
        below = low[k + 1]
        scale_below = abs(below) + abs(d[k + 1]) + abs(u[k + 1])
        if below == 0:
            scale = scale_below
            continue
        here = abs(d[k]) / scale if d[k] != 0 else 0
        if abs(below) / scale_below <= here:
            scale = scale_below
            lower[k] = below / d[k]
            d[k + 1] -= lower[k] * u[k]
            continue
        swapped[k] = True
        lower[k] = d[k] / below
        d[k], u[k], d[k + 1] = below, d[k + 1], u[k] - lower[k] * d[k + 1]
        w[k], u[k + 1] = u[k + 1], -lower[k] * u[k + 1]
    # The rows that jaxlib 0.10 looks at, so that singular systems have the solutions it gives:
    # the first one before elimination too, and not the last but one.
    looked_at = (d[: m - 2], u[: m - 2], w[: m - 2], d[m - 1 :], [start]) if m > 1 else (d, [start])
    largest = max(np.max(np.abs(part), initial=0) for part in looked_at)
    return _Factors(lower, swapped, d, u, w, largest)


def _forward(lu: _Factors, b: Array) -> Array:
    """``L^-1 P b``"""
    y = b.copy()
    for k, swapped in enumerate(lu.swapped):
        if swapped:
            y[[k, k + 1]] = y[[k + 1, k]]
        y[k + 1] -= lu.lower[k] * y[k]
    return y


def _back(lu: _Factors, y: Array) -> Array:
    """``U^-1 y``; a pivot that is too small for one right-hand side is perturbed for all."""
    info = np.finfo(y.dtype)
    step = max(info.eps * lu.largest, info.tiny)
    x = y.copy()
    for k in reversed(range(len(y))):
        if k + 1 < len(y):
            x[k] -= lu.first[k] * x[k + 1]
        if k + 2 < len(y):
            x[k] -= lu.second[k] * x[k + 2]
        x[k] = _quotient(x[k], lu.diagonal[k], step)
    return x


def _quotient(row: Array, pivot: Any, step: Any) -> Array:
    """``row / pivot`` with the smallest perturbation of the pivot by which nothing overflows."""
    tiny = np.finfo(row.dtype).tiny
    sizes = np.abs(row)
    size = np.max(sizes, initial=0, where=np.isfinite(sizes))
    move = np.copysign(step, np.real(pivot))
    while _overflows(size, abs(pivot), tiny):
        pivot, move = pivot + move, 2 * move
    if abs(pivot) < tiny:
        row, pivot = row / tiny, pivot / tiny
    return np.asarray(row / pivot)


def _overflows(size: Any, pivot: Any, tiny: Any) -> bool:
    """True if a value of this size, divided by the pivot, may exceed ``1 / tiny``."""
    far = size * tiny > pivot if pivot < tiny else size > pivot / tiny
    return bool(pivot == 0 or (pivot < 1 and far))
