"""Reducers that NumPy has, by the name of their operation, and the types that they accumulate in.

A reduction of elements of one array and one over devices share these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrays import Array
from .conversion import convert, is_narrow_int
from .dtypes import is_numpy_dtype

BLOCK = 1 << 13
"""Elements that ``in_order`` combines at once, so that their wider copies stay in cache."""

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def wide_type(op: str, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the type that a reduction accumulates in.

    Sums and products of floats use f64 for f32 and f32 for narrower types. Types of 8 bits or
    fewer that NumPy lacks use f32 or s64 for every operation.
    """
    if is_narrow_int(dtype):
        return np.dtype(np.int64)
    if not is_numpy_dtype(dtype) and dtype.itemsize == 1:
        return np.dtype(np.float32)
    if op not in ("add", "multiply") or dtype.kind in "biu" or dtype.kind == "c":
        return dtype
    if dtype == np.float32:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def ufunc_of(op: str, dtype: np.dtype[np.generic]) -> np.ufunc:
    """Return the ufunc of a reducer; for booleans a logical one."""
    if dtype.kind == "b":
        logical = {"add": np.logical_or, "maximum": np.logical_or}
        return {**logical, "multiply": np.logical_and, "minimum": np.logical_and}.get(
            op, UFUNCS[op]
        )
    return UFUNCS[op]


def in_order(op: str, values: Sequence[Array]) -> Array:
    """Combine arrays of one shape and type element by element, from the first to the last.

    The wide_type is wider where ``wide_type`` says so, and the result is rounded once.
    """
    first = values[0]
    if first.size <= BLOCK:
        return _combined(op, values)
    out = np.empty(first.shape, first.dtype)
    flat, target = [v.reshape(-1) for v in values], out.reshape(-1)
    for start in range(0, first.size, BLOCK):
        part = slice(start, start + BLOCK)
        target[part] = _combined(op, [v[part] for v in flat])
    return out


def _combined(op: str, values: Sequence[Array]) -> Array:
    dtype = values[0].dtype
    f, wide = ufunc_of(op, dtype), wide_type(op, dtype)
    with np.errstate(all="ignore"):
        total = values[0].astype(wide)
        for value in values[1:]:
            total = f(total, value.astype(wide, copy=False))
        return convert(np.asarray(total), dtype)
