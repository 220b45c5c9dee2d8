"""C structures that Python fills and LLVM IR reads: each field once, by name and type.

A field's offset follows from those before it, as in C. Python writes structures by name (``table``,
``constant``) and reads them (``read``); the text of a template has a field's byte offset as
``${struct.field}`` and the structure's size as ``${sizeof.struct}`` (see ``emit.llvm.template``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

_KINDS = {"i32": np.int32, "i64": np.int64, "ptr": np.uint64}


class Struct:
    """A structure: the LLVM types of its fields by name, in order.

    A type is one of ``i32``, ``i64`` and ``ptr``, or an array of them such as ``[2 x ptr]``.
    """

    def __init__(self, name: str, fields: Mapping[str, str]) -> None:
        """Name a structure's fields."""
        self.name = name
        self.fields = fields

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype([(name, _numpy(type_)) for name, type_ in self.fields.items()], align=True)

    @property
    def bytes(self) -> int:
        """The size, padded to a multiple of the alignment."""
        return self._dtype.itemsize

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """The byte offset of each field."""
        places = self._dtype.fields
        assert places is not None
        return MappingProxyType({name: places[name][1] for name in self.fields})

    @cached_property
    def names(self) -> Mapping[str, int]:
        """The names for templates: ``struct.field`` and ``sizeof.struct``."""
        fields = {f"{self.name}.{field}": offset for field, offset in self.offsets.items()}
        return MappingProxyType(fields | {f"sizeof.{self.name}": self.bytes})

    @property
    def type(self) -> str:
        """The LLVM type."""
        return f"{{ {', '.join(self.fields.values())} }}"

    def table(self, rows: Sequence[Mapping[str, Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """Return an array of structures with these values, every field of each given."""
        made = np.zeros(len(rows), self._dtype)
        for n, row in enumerate(rows):
            made[n] = tuple(self._in_order(row))
        return made

    def constant(self, values: Mapping[str, object]) -> str:
        """Return an LLVM constant, its type first, of values without their types."""
        typed = zip(self.fields.values(), self._in_order(values), strict=True)
        return f"{self.type} {{ {', '.join(f'{type_} {value}' for type_, value in typed)} }}"

    def constants(self, rows: Sequence[Mapping[str, object]]) -> str:
        """Return an LLVM constant array of structures, its type first."""
        items = ", ".join(self.constant(row) for row in rows)
        return f"[{len(rows)} x {self.type}] [{items}]"

    def read(self, address: int) -> dict[str, Any]:
        """Return the values of a structure in memory, by field."""
        row = np.frombuffer(ctypes.string_at(address, self.bytes), self._dtype)
        return {field: row[field][0].tolist() for field in self.fields}

    def _in_order(self, values: Mapping[str, Any]) -> Iterable[Any]:
        if values.keys() != self.fields.keys():
            wrong = sorted(values.keys() ^ self.fields.keys())
            raise KeyError(f"{', '.join(wrong)}: missing in or unknown to struct {self.name}")
        return (values[field] for field in self.fields)


def _numpy(type_: str) -> np.dtype[Any]:
    if not type_.startswith("["):
        return np.dtype(_KINDS[type_])
    count, kind = type_[1:-1].split(" x ")
    return np.dtype((_KINDS[kind], (int(count),)))
