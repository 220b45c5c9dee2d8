"""Tensor maps, by which kernels copy boxes of matrices: made by the driver for given addresses.

The driver is called by address, since it writes to multiples of 64 bytes only, and the bindings'
own memory need not be at one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...plan.code.device import TensorMap
from .driver import Driver, DriverError

MAP_BYTES = 128
ALIGN = 64
_FUNCTION, _SINCE = "cuTensorMapEncodeTiled", 12000
_KINDS: Mapping[int, int] = MappingProxyType({1: 0, 2: 1, 4: 2, 8: 4})
"""Unsigned integers by their size, as the driver numbers them: zeros are zeros in any type."""
_SWIZZLES: Mapping[int, int] = MappingProxyType({0: 0, 32: 1, 64: 2, 128: 3})
_PROMOTED = 2  # reads of memory bring 128 bytes into L2
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    *[ctypes.c_void_p] * 5,
    *[ctypes.c_int] * 4,
)


def encoded(
    driver: Driver, maps: Sequence[TensorMap], addresses: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the maps one after another, at a multiple of 64 bytes.

    ``DriverError`` if the driver has none, or does not take one.
    """
    found, *_ = driver.call("cuGetProcAddress", _FUNCTION.encode(), _SINCE, 0)
    if not found:
        raise DriverError(_FUNCTION, "the driver is older than CUDA 12")
    encode = _ENCODE(int(found))
    memory = np.zeros(MAP_BYTES * len(maps) + ALIGN, np.uint8)
    skip = -int(memory.ctypes.data) % ALIGN
    made = memory[skip : skip + MAP_BYTES * len(maps)]
    for n, x in enumerate(maps):
        place = int(made.ctypes.data) + n * MAP_BYTES
        status = _encode(encode, place, x, addresses[x.argument] + x.offset)
        if status:
            raise DriverError(_FUNCTION, f"status {status}", status)
    return made


def _encode(encode: Any, place: int, x: TensorMap, address: int) -> int:
    """Make one map: a matrix of two dimensions, elements outside of which are 0."""
    extents = (ctypes.c_uint64 * 2)(x.columns, x.rows)
    pitch = (ctypes.c_uint64 * 1)(x.pitch * x.item)
    box, steps = (ctypes.c_uint32 * 2)(x.box_columns, x.box_rows), (ctypes.c_uint32 * 2)(1, 1)
    arrays = (ctypes.addressof(a) for a in (extents, pitch, box, steps))
    rest = 0, _SWIZZLES[x.swizzle], _PROMOTED, 0
    return int(encode(place, _KINDS[x.item], 2, address, *arrays, *rest))
