"""Values of one element type as another: what both interpreters mean by ``convert``."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def is_float(dtype: np.dtype[np.generic]) -> bool:
    """Whether a dtype is one of NumPy's or ml_dtypes' real floats."""
    return dtype.kind == "f" or (dtype.kind == "V" and not _narrow_int(dtype))


def _narrow_int(dtype: np.dtype[np.generic]) -> bool:
    return dtype.name in ("int2", "int4", "uint2", "uint4")


def convert(a: Array, to: np.dtype[np.generic]) -> Array:
    """To another element type as XLA does: floats to integers saturate, NaN becomes 0.

    Integers wrap, complex numbers drop their imaginary part, anything but 0 is true.
    """
    a = np.asarray(a)
    if a.dtype == to:
        return a
    if a.dtype.kind == "c" and to.kind != "c":
        a = a.real
    if to.kind == "b":
        return np.asarray(a != np.zeros((), a.dtype))
    integer = to.kind in "iu" or _narrow_int(to)
    if integer and is_float(a.dtype):
        info = ml_dtypes.iinfo(to)
        wide = a.astype(np.float64)
        low, high = float(info.min), float(info.max)
        inside = np.where(np.isnan(wide), 0.0, np.clip(wide, low, high))
        over, under = wide >= high, wide <= low
        kept = np.where(over | under, 0.0, inside)
        whole = kept.astype(np.uint64 if to.kind == "u" else np.int64)
        whole = np.where(over, whole.dtype.type(info.max), whole)
        return np.where(under, whole.dtype.type(info.min), whole).astype(to)
    if integer and _narrow_int(to):
        return _wrap_narrow(a, to)
    if _narrow_int(a.dtype):
        a = a.astype(np.int32)
    if a.dtype == np.float64 and to.itemsize < 4 and to != np.float16:
        return a.astype(np.float32).astype(to)
    return a.astype(to)


def _wrap_narrow(a: Array, to: np.dtype[np.generic]) -> Array:
    bits = int(to.name.lstrip("uint"))
    whole = a.astype(np.int64) & ((1 << bits) - 1)
    if to.name.startswith("int"):
        whole = whole - ((whole >> (bits - 1)) << bits)
    return whole.astype(to)
