"""The layout of HLO arrays in buffers: complex ones have their parts along one more dimension."""

from __future__ import annotations

import numpy as np

from ...ir.arrays import Array
from ...ir.dtypes import DType, c64, f32, f64
from ...ir.hlo.nodes import Shape
from ...ir.loop.nodes import Buffer


def buffer_of(name: str, shape: Shape) -> Buffer:
    """Return a buffer for an array: f32[.., 2] for c64[..], the real part first."""
    dims, dtype = stored_as(shape)
    return Buffer(name, dims, dtype)


def stored_as(shape: Shape) -> tuple[tuple[int, ...], DType]:
    """Extents and element type of the buffer of an array."""
    if shape.dtype.kind != "complex":
        return shape.dims, shape.dtype
    return (*shape.dims, 2), f32 if shape.dtype == c64 else f64


def stored(array: Array) -> Array:
    """Return an array as its buffer sees it: the same elements, complex ones as two."""
    if array.dtype.kind != "c":
        return array
    part = np.float32 if array.dtype.itemsize == 8 else np.float64
    return np.ascontiguousarray(array).reshape(*array.shape, 1).view(part)


def restored(array: Array, shape: Shape) -> Array:
    """Return a buffer's contents as an array of ``shape``: the inverse of ``stored``."""
    if shape.dtype.kind != "complex":
        return array
    whole = np.complex64 if shape.dtype == c64 else np.complex128
    return np.ascontiguousarray(array).view(whole).reshape(shape.dims)
