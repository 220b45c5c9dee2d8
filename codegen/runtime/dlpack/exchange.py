"""DLPack's C exchange interface: an array's memory by one C call, without a capsule.

A library puts ``__dlpack_c_exchange_api__`` on its array type, a capsule of C functions; one of
them fills a ``DLTensor`` that is valid as long as the array. An entry that knows such a type calls
that function itself (see ``calls/exchange.ll``), which takes some ten nanoseconds an argument.

The function gives an array's memory even where it is not what the array means: torch has views that
are conjugated or negated when they are read, and tensors whose gradients would be lost. So an
exchange says what to ask an array first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ...plan.struct_table import Struct

ATTRIBUTE = "__dlpack_c_exchange_api__"
SETTLED = MappingProxyType({"is_conj": "resolve_conj", "is_neg": "resolve_neg"})
"""Methods that tell a view whose memory is not its value, and those that make it so."""
_LOSES = ("requires_grad",)  # attributes of arrays that only their own library should read
_NAME = b"dlpack_exchange_api"
_MAJOR = 1  # of the version: another one may have another layout


EXCHANGE = Struct(
    "exchange",
    {
        "type": "ptr",
        "function": "ptr",
        "flags": "i64",
        "false": "ptr",
        "attributes_count": "i64",
        "attributes": "ptr",
        "methods_count": "i64",
        "methods": "ptr",
    },
)
"""A type of arrays and the function that fills a ``DL_TENSOR`` of one; it may be called where the
named attributes are ``false``, Python's False, and the named methods return it."""

DERIVED = 1  # flag of an exchange: subclasses of its type are read, too

DL_TENSOR = Struct(
    "dl_tensor",
    {
        "data": "ptr",
        "device": "[2 x i32]",
        "rank": "i32",
        "dtype": "i32",
        "dims": "ptr",
        "strides": "ptr",
        "offset": "i64",
    },
)
"""DLPack's view of an array's memory: the device's kind and number, the element type as one
number."""


class _Interface(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


@dataclass(frozen=True, eq=False)
class Exchange:
    """A type of arrays and the C function that reads them, as native code takes them.

    With ``derived`` the type's subclasses are read, too. An array is not read if one of the
    ``attributes`` is not False, or one of the ``methods``, without arguments, does not return it.
    """

    kind: type
    derived: bool
    attributes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    table: np.ndarray[Any, np.dtype[Any]] = field(init=False)
    _keep: list[object] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for a type without functions of this version."""
        interface = _interface(self.kind)
        if interface is None:
            raise TypeError(f"{self.kind.__name__} has no {ATTRIBUTE} of version {_MAJOR}")
        values = {
            "type": id(self.kind),
            "function": interface.tensor_from_object,
            "flags": DERIVED * self.derived,
            "false": id(False),
            "attributes_count": len(self.attributes),
            "attributes": self._names(self.attributes),
            "methods_count": len(self.methods),
            "methods": self._names(self.methods),
        }
        object.__setattr__(self, "table", EXCHANGE.table([values]))

    @property
    def address(self) -> int:
        """The address of the structure."""
        return int(self.table.ctypes.data)

    def _names(self, names: Sequence[str]) -> int:
        array = np.array([id(name) for name in names] or [0], np.uint64)
        self._keep.extend((names, array))
        return int(array.ctypes.data)


def exchange_of(kind: type) -> Exchange | None:
    """Return the exchange of exactly this type; None for a type that has none."""
    if not has_exchange(kind):
        return None
    methods = tuple(name for name in SETTLED if hasattr(kind, name))
    attributes = tuple(name for name in _LOSES if hasattr(kind, name))
    return Exchange(kind, False, attributes, methods)


def has_exchange(kind: type) -> bool:
    """True if arrays of a type can be read by a C function of a version that is known here."""
    return _interface(kind) is not None


def settled(array: Any) -> Any:
    """Return an array whose memory is its value: itself, or a copy of a view that is lazy."""
    for tells, makes in SETTLED.items():
        if hasattr(array, tells) and getattr(array, tells)():
            array = getattr(array, makes)()
    return array


def _interface(kind: type) -> _Interface | None:
    capsule = getattr(kind, ATTRIBUTE, None)
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    if capsule is None or not valid(capsule, _NAME):
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = _Interface.from_address(pointer(capsule, _NAME))
    return found if found.major == _MAJOR and found.tensor_from_object else None
