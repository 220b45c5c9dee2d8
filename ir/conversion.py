"""Conversion between element types: the reference semantics of ``convert``, in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .arrays import Array
from .dtypes import is_numpy_dtype


def is_float(dtype: np.dtype[np.generic]) -> bool:
    """True for the real floating-point dtypes of NumPy and ml_dtypes."""
    return dtype.kind == "f" or (not is_numpy_dtype(dtype) and not is_narrow_int(dtype))


def is_narrow_int(dtype: np.dtype[np.generic]) -> bool:
    """True for the 2-bit and 4-bit integer dtypes of ml_dtypes."""
    return dtype.name in ("int2", "int4", "uint2", "uint4")


def convert(a: Array, to: np.dtype[np.generic]) -> Array:
    """Convert an array to another element type as XLA does.

    Floats saturate to integers, and NaN becomes 0. Integers wrap, complex numbers lose their
    imaginary part, and anything but 0 converts to true. Floats are rounded once, to nearest even,
    except that f64 is converted to bf16 by way of f32, as in XLA's CPU backend.
    """
    a = np.asarray(a)
    if a.dtype == to:
        return a
    if a.dtype.kind == "c" and to.kind != "c":
        a = a.real
    if to.kind == "b":
        wide = a if is_numpy_dtype(a.dtype) else a.astype(np.float32)
        return np.asarray(wide != 0)
    integer = to.kind in "iu" or is_narrow_int(to)
    if integer and is_float(a.dtype):
        return _saturated(a, to)
    if integer and is_narrow_int(to):
        return _wrap_narrow(a, to)
    if is_narrow_int(a.dtype):
        a = a.astype(np.int32)
    if (
        not is_numpy_dtype(to) and a.dtype != np.float32
    ):  # not all of ml_dtypes' convert to each other
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
    """Round f64 to f32 to odd: truncate, and set the last bit where the result is inexact.

    Rounding the result to nearest in a narrower type then gives what rounding the f64 directly
    would give (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
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
