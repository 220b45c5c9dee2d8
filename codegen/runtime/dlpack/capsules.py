"""DLPack capsules, read and made through their C layout: arrays that change owners without
a copy.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.dtypes import DType, to_numpy
from .elements import CUDA, code_of, element_type

_NAME = b"dltensor"  # of a capsule that has not been consumed
_VERSIONED = b"dltensor_versioned"  # the same with a version and flags
_READ_ONLY, _IS_COPIED = 1, 2  # flags
VERSION = 1, 0
"""The newest version that is understood here. Another major number means another layout."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.PyDLL(None)
_new = _python["PyCapsule_New"]
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = _python["PyCapsule_IsValid"]
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_get = _python["PyCapsule_GetPointer"]
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]


@dataclass(frozen=True, slots=True)
class Found:
    """The array in a capsule; strides in elements, None for row-major. ``owner`` keeps it alive."""

    address: int
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    owner: object
    read_only: bool = False


def read(capsule: object) -> Found:
    """Return the array in a capsule of ``__dlpack__``. ``ValueError`` for anything else.

    The capsule is not consumed: it keeps the array alive and releases it when it is destroyed.
    """
    t, read_only = _tensor(id(capsule))
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    dtype = element_type(t.code, t.bits) if t.lanes == 1 else None
    return Found((t.data or 0) + t.byte_offset, dtype, shape, strides, capsule, read_only)


class _Memory:
    """Memory that NumPy makes an array of; the array keeps it alive, and it keeps the owner."""

    def __init__(self, found: Found, size: int) -> None:
        self.owner = found.owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": found.shape,
            "strides": found.strides and tuple(size * s for s in found.strides),
            "data": (found.address, found.read_only),
        }


def as_array(found: Found) -> np.ndarray[Any, Any]:
    """Return NumPy's view of an array in the host's memory, of any element type that HLO has.

    ``TypeError`` for an element type that it does not have.
    """
    if found.dtype is None:
        raise TypeError("its element type is not one of HLO")
    dtype = to_numpy(found.dtype)
    return np.asarray(_Memory(found, dtype.itemsize)).view(dtype)


def _tensor(handle: int) -> tuple[_Tensor, bool]:
    """Return the tensor in a capsule, and True if it is read-only."""
    if _is_valid(handle, _VERSIONED):
        place = ctypes.POINTER(_ManagedVersioned)
        managed = ctypes.cast(_get(handle, _VERSIONED), place).contents
        if managed.major != VERSION[0]:
            version = f"{managed.major}.{managed.minor}"
            raise ValueError(f"its DLPack capsule is of version {version}, not {VERSION[0]}.x")
        return managed.tensor, bool(managed.flags & _READ_ONLY)
    if _is_valid(handle, _NAME):
        return ctypes.cast(_get(handle, _NAME), ctypes.POINTER(_Managed)).contents.tensor, False
    raise ValueError("it is not a DLPack capsule, or it was consumed")


@dataclass(slots=True)
class _Lent:
    """A tensor that another library may hold, and the memory under it."""

    managed: _Managed | _ManagedVersioned
    shape: Any
    strides: Any
    owner: object


_lent: dict[int, _Lent] = {}


def _give_back(managed: int, lent: dict[int, _Lent] = _lent) -> None:
    lent.pop(managed, None)


def _end(capsule: int) -> None:
    """Destroy a capsule: if it was not consumed, its tensor is released."""
    for name in (_NAME, _VERSIONED):
        if _is_valid(capsule, name):
            _give_back(_get(capsule, name))


# Called from C: the first by the tensor's consumer, the second by Python itself. They are
# never freed: other libraries may drop their tensors when this module is gone already.
_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_give_back)
_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_end)
for _callback in (_deleter, _destructor):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def capsule(
    address: int,
    dtype: DType,
    shape: tuple[int, ...],
    ordinal: int,
    owner: object,
    strides: tuple[int, ...] | None = None,
    *,
    kind: int = CUDA,
    versioned: bool = False,
    copied: bool = False,
) -> object:
    """Return a capsule over memory of a device, row-major without ``strides``.

    ``owner`` is kept alive as long as the capsule's tensor is in use. ``BufferError`` for elements
    of less than 8 bits.
    """
    rank, code = len(shape), code_of(dtype)
    dense = (math.prod(shape[i + 1 :]) for i in range(rank))
    extents = (ctypes.c_int64 * max(1, rank))(*shape)
    steps = (ctypes.c_int64 * max(1, rank))(*(dense if strides is None else strides))
    managed = _ManagedVersioned() if versioned else _Managed()
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = VERSION
        managed.flags = _IS_COPIED if copied else 0
    managed.tensor = _Tensor(address, kind, ordinal, rank, *code, 1, extents, steps, 0)
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    place = ctypes.addressof(managed)
    _lent[place] = _Lent(managed, extents, steps, owner)
    name = _VERSIONED if versioned else _NAME
    return _new(place, name, ctypes.cast(_destructor, ctypes.c_void_p).value)
