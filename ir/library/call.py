"""A call of a host function: its name, its attributes, the types of operands and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..dtypes import BY_NAME, from_numpy, to_numpy

GROUP = "group"
"""The opcode of a call that computes a group; its target is the function's name."""

FAILED = "nestwright_check_failed"
"""The custom call of a check of values that fails: see ``library.checks``."""

COLLECTIVE = "collective"
"""The attribute that gives a collective the name of its instruction."""

Attribute: TypeAlias = "bool | int | float | str | tuple[Attribute, ...] | Mapping[str, Attribute]"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Shape and element type of an array, in NumPy's terms (ml_dtypes' for bf16 and narrower)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size of the array in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{from_numpy(self.dtype).name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a function of the host.

    ``opcode`` is ``custom-call``, and ``target`` the name in the model, or an operation (``fft``)
    whose name ``target`` repeats. ``operands`` and ``results`` are the arrays in order: tuples are
    flat, tokens left out. ``backend_config`` is the text that the model hands to the function;
    where that is a dictionary (``{mode = 65 : ui8}``), ``attributes`` has its values by name, or by
    place ("0", "1", ...) where the text has no names. Of other operations they are the
    instruction's own attributes.
    """

    opcode: str
    target: str
    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]
    backend_config: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    frontend_attributes: Mapping[str, str] = field(default_factory=dict)
    api_version: str = ""

    @property
    def is_group(self) -> bool:
        """True for a call that computes a group of the model."""
        return self.opcode == GROUP

    @property
    def is_collective(self) -> bool:
        """True for an exchange of values with other devices."""
        return COLLECTIVE in self.attributes and self.opcode != "custom-call"

    def attribute(self, name: str, place: int, default: Attribute) -> Attribute:
        """An attribute by its name, or by its place where the text has no names."""
        return self.attributes.get(name, self.attributes.get(str(place), default))


def to_json(call: LibraryCall) -> dict[str, Any]:
    """The call as JSON values."""
    return {
        "opcode": call.opcode,
        "target": call.target,
        "operands": [_type_to_json(t) for t in call.operands],
        "results": [_type_to_json(t) for t in call.results],
        "backend_config": call.backend_config,
        "attributes": dict(call.attributes),
        "frontend_attributes": dict(call.frontend_attributes),
        "api_version": call.api_version,
    }


def from_json(data: Mapping[str, Any]) -> LibraryCall:
    """The call that ``to_json`` wrote. ``ValueError``, ``KeyError`` or ``TypeError`` for others."""
    attributes = {str(k): _attribute(v) for k, v in dict(data["attributes"]).items()}
    frontend = {str(k): str(v) for k, v in dict(data["frontend_attributes"]).items()}
    return LibraryCall(
        str(data["opcode"]),
        str(data["target"]),
        tuple(_type_from_json(t) for t in data["operands"]),
        tuple(_type_from_json(t) for t in data["results"]),
        str(data["backend_config"]),
        attributes,
        frontend,
        str(data["api_version"]),
    )


def _type_to_json(t: ArrayType) -> list[Any]:
    return [from_numpy(t.dtype).name, list(t.shape)]


def _type_from_json(data: Sequence[Any]) -> ArrayType:
    name, dims = data
    if not all(type(d) is int and 0 <= d < 1 << 48 for d in dims):
        raise ValueError(f"{dims!r} are not dimensions")
    return ArrayType(tuple(dims), to_numpy(BY_NAME[name]))


def _attribute(value: Any, depth: int = 0) -> Attribute:
    if isinstance(value, bool | int | float | str):
        return value
    if depth > 8:
        raise ValueError("attributes too deep")
    if isinstance(value, Mapping):
        return {str(k): _attribute(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_attribute(v, depth + 1) for v in value)
    raise ValueError(f"{value!r} is not an attribute")
