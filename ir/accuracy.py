"""How far a result is from the right one, and how far it may be.

The error of an array is its largest difference over the root mean square of what was expected:
sums in another order move small elements far in their own measure, never far in that one.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from .dtypes import DType

Array: TypeAlias = np.ndarray[Any, Any]

_LARGEST = {64: 1e-9, 32: 1e-3, 16: 3e-2, 8: 0.3, 4: 0.5}  # by bits of a real number


def tolerance(dtype: DType, tf32: bool = False) -> float:
    """The largest error of a right result of a float or complex type.

    With ``tf32``, products of f32 may round their operands as f16 would.
    """
    bits = dtype.bits // 2 if dtype.kind == "complex" else dtype.bits
    return _LARGEST[16 if tf32 and bits == 32 else bits]


def relative_error(result: Array, expected: Array) -> float:
    """The largest difference over the root mean square of what was expected.

    Infinities and NaNs have to stand in the same places, else the error is infinite.
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
        a, b = a / largest, b / largest  # whose squares are numbers
        return float(np.abs(a - b).max()) / math.sqrt(float(np.mean(np.abs(b) ** 2)))
