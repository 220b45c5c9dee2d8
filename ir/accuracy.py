"""Error of a result relative to its reference, and the largest error that is accepted.

The error of an element is its absolute difference divided by the root mean square (RMS) of the
reference, or by the element's own size if it is larger. Summing in another order changes small
elements by much relative to themselves, but by little relative to the RMS; rounding changes large
ones by much relative to the RMS, but by little relative to themselves.
"""

from __future__ import annotations

import math

import numpy as np

from .arrays import Array
from .dtypes import DType, bf16, s8, u8
from .lane_dots import LaneDot, lane_dot
from .target import Target
from .tile_dots import tile_dot

LEAST_WEIGHTS = 4096
"""Elements of the smallest weights that are narrowed: smaller ones are in cache, so that reading
them costs nothing.
"""

BF16_PRODUCTS = math.sqrt(2) * 2.0**-9
"""Most of the error of a sum of products of operands that were rounded to bf16, over its RMS.

For independent operands, each of which is off by up to half a unit in its last place.
"""

BYTE_BLOCKS = 0.0075
"""Relative RMS error of normally distributed numbers as codes of 8 bits, with a scale for each
block of up to 256: their largest, some 3.2 standard deviations, over 127 and the root of 12.
"""

BYTE_PRODUCTS = math.sqrt(2) * BYTE_BLOCKS
"""That of a sum of products of such numbers, over its RMS, if they are independent."""

WIDE = "f32"
"""The form of weights that leaves products as they are, whatever error is allowed."""

BLOCKED = "int4"
"""The form with a scale for each block, of products alone that read their right operand so."""

DEEP = 4
"""Products of bytes in a lane that pay for a pass over the rows; with fewer, bf16 is as fast."""

_LARGEST = {64: 1e-9, 32: 1e-3, 16: 3e-2, 8: 0.3, 4: 0.5}  # by bits of a real number


def bf16_dot(target: Target, weights: str | None = None) -> LaneDot | None:
    """Return the instruction that products of f32 use after rounding operands to bf16.

    None where the target has none or allows a smaller error, or ``weights`` keeps them as they are.
    """
    allowed = target.accuracy >= BF16_PRODUCTS and weights != WIDE
    return lane_dot(target, bf16, bf16) if allowed else None


def byte_rows(target: Target, weights: str | None = None) -> LaneDot | None:
    """Return the instruction that multiplies codes in blocks by rows that were rounded to bytes.

    None where the target has none, or allows a smaller error and ``weights`` are not such codes.
    """
    allowed = target.accuracy >= BYTE_BLOCKS and weights != WIDE
    return lane_dot(target, s8, u8) if allowed or weights == BLOCKED else None


def byte_dot(target: Target, weights: str | None = None) -> LaneDot | None:
    """Return the instruction that products of f32 use after rounding both operands to bytes.

    None where the target has none that is faster than bf16's, or allows a smaller error. Tile
    registers are as fast with bf16, whose sums need no scale for each block.
    """
    if tile_dot(target, bf16, bf16) is not None:
        return None
    dot = byte_rows(target, weights) if target.accuracy >= BYTE_PRODUCTS else None
    return dot if dot is not None and dot.depth >= DEEP else None


def rounds_products(target: Target, weights: str | None = None) -> bool:
    """True if products of f32 may round their operands to TF32, bf16 or bytes in a build with the
    form ``weights``.
    """
    found = [bf16_dot(target, weights), byte_dot(target, weights)]
    if weights == BLOCKED:
        found.append(byte_rows(target, weights))
    return target.tf32 or any(dot is not None for dot in found)


def tolerance(dtype: DType, rounded: bool = False) -> float:
    """Return the largest ``relative_error`` accepted for a float or complex type.

    With ``rounded``, f32 gets the tolerance of f16, because products may round their operands to
    TF32, bf16 or bytes.
    """
    bits = dtype.bits // 2 if dtype.kind == "complex" else dtype.bits
    return _LARGEST[16 if rounded and bits == 32 else bits]


def relative_error(result: Array, expected: Array) -> float:
    """Return the largest error of an element: its absolute difference divided by the RMS of the
    finite expected elements, or by the expected element if that is larger.

    The error is infinite if infinities or NaNs differ, or if all expected elements are 0 and a
    result is not.
    """
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    a, b = np.asarray(result).astype(wide), np.asarray(expected).astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    if not b.size:
        return 0.0
    if not np.isfinite(a).all():
        return math.inf
    largest = float(np.abs(b).max())
    if not largest:
        return math.inf if a.any() else 0.0
    with np.errstate(over="ignore", under="ignore"):
        a, b = a / largest, b / largest  # so that squares neither overflow nor vanish
        size = np.abs(b)
        rms = math.sqrt(float(np.mean(size**2)))
        return float((np.abs(a - b) / np.maximum(size, rms)).max())
