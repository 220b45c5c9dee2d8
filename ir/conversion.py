"""Values of one element type as another: what both interpreters mean by ``convert``."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from .dtypes import is_numpys

Array: TypeAlias = np.ndarray[Any, Any]


def is_float(dtype: np.dtype[np.generic]) -> bool:
    """Whether a dtype is one of NumPy's or ml_dtypes' real floats."""
    return dtype.kind == "f" or (not is_numpys(dtype) and not is_narrow_int(dtype))


def is_narrow_int(dtype: np.dtype[np.generic]) -> bool:
    """Whether a dtype is one of ml_dtypes' integers of 2 or 4 bits."""
    return dtype.name in ("int2", "int4", "uint2", "uint4")


def convert(a: Array, to: np.dtype[np.generic]) -> Array:
    """To another element type as XLA does: floats to integers saturate, NaN becomes 0.

    Integers wrap, complex numbers drop their imaginary part, anything but 0 is true. Floats are
    rounded to nearest even, once; but f64 becomes bf16 by way of f32, as on XLA's CPU.
    """
    a = np.asarray(a)
    if a.dtype == to:
        return a
    if a.dtype.kind == "c" and to.kind != "c":
        a = a.real
    if to.kind == "b":
        wide = a if is_numpys(a.dtype) else a.astype(np.float32)
        return np.asarray(wide != 0)
    integer = to.kind in "iu" or is_narrow_int(to)
    if integer and is_float(a.dtype):
        return _saturated(a, to)
    if integer and is_narrow_int(to):
        return _wrap_narrow(a, to)
    if is_narrow_int(a.dtype):
        a = a.astype(np.int32)
    if not is_numpys(to) and a.dtype != np.float32:  # not all of ml_dtypes' convert to each other
        a = to_odd(a) if a.dtype == np.float64 and to.itemsize == 1 else a.astype(np.float32)
    return a.astype(to)


def _saturated(a: Array, to: np.dtype[np.generic]) -> Array:
    info = ml_dtypes.iinfo(to)
    wide = a.astype(np.float64)
    low, high = float(info.min), float(info.max)
    inside = np.where(np.isnan(wide), 0.0, np.clip(wide, low, high))
    over, under = wide >= high, wide <= low
    kept = np.where(over | under, 0.0, inside)
    whole = kept.astype(np.uint64 if to.kind == "u" else np.int64)
    whole = np.where(over, whole.dtype.type(info.max), whole)
    return np.where(under, whole.dtype.type(info.min), whole).astype(to)


def to_odd(a: Array) -> Array:
    """f64 as f32, truncated, the last bit set where that lost something.

    What is rounded to fewer bits after that is rounded as if at once (Boldo and Melquiond, 2008).
    """
    near = a.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    inexact = (back != a) & (a == a)
    toward_zero = bits - (np.abs(back) > np.abs(a))
    return np.where(inexact, toward_zero | 1, bits).astype(np.uint32).view(np.float32)


def _wrap_narrow(a: Array, to: np.dtype[np.generic]) -> Array:
    bits = int(to.name.lstrip("uint"))
    whole = a.astype(np.int64) & ((1 << bits) - 1)
    if to.name.startswith("int"):
        whole = whole - ((whole >> (bits - 1)) << bits)
    return whole.astype(to)
