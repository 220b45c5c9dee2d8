"""StableHLO as it is written: operations, regions, functions and attributes, before meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ....hlo.nodes import AnyShape


@dataclass(frozen=True, slots=True)
class FunctionType:
    """``(inputs) -> results``"""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class ForeignType:
    """A type that HLO does not have: quantized, sparse, a buffer, ``none``."""

    text: str


Type: TypeAlias = "AnyShape | FunctionType | ForeignType"


class Word(str):
    """A bare word as an attribute: ``DEFAULT``, ``f32``."""

    __slots__ = ()


class Symbol(str):
    """``@name``"""

    __slots__ = ()


class Dictionary(dict[str, Any]):
    """``{name = value, ..}`` and its text."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Dense:
    """``dense<..> : type``, its text not yet read. ``resource`` is the name of a blob instead."""

    text: str
    type: Type
    place: int
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """``#name<fields>``, without fields where their form is not known."""

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Location:
    """``loc(..)``: a name, a file and line, other locations inside, or another one's alias."""

    name: str = ""
    file: str = ""
    line: int = 0
    inner: tuple[Location, ...] = ()
    alias: str = ""


@dataclass(frozen=True, slots=True)
class MlirOp:
    """One operation. ``operands`` and ``results`` are the names of values (``%4#1``).

    ``operand_types`` is None where the text gives one type for operands and results alike.
    """

    name: str
    operands: tuple[str, ...]
    attrs: Mapping[str, Any]
    regions: tuple[MlirRegion, ...]
    operand_types: tuple[Type, ...] | None
    result_types: tuple[Type, ...]
    results: tuple[str, ...]
    place: int
    location: Location | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MlirRegion:
    """One block: the names and types of its arguments, and its operations."""

    arguments: tuple[tuple[str, Type], ...]
    ops: tuple[MlirOp, ...]
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class MlirFunction:
    """``func.func``, with the attributes of each argument and each result."""

    name: str
    body: MlirRegion
    type: FunctionType
    public: bool
    argument_attrs: tuple[Mapping[str, Any], ...]
    result_attrs: tuple[Mapping[str, Any], ...]
    place: int


@dataclass(frozen=True, slots=True)
class MlirModule:
    """Everything that one text says. ``resources`` are blobs by name, ``locations`` aliases."""

    name: str
    attrs: Mapping[str, Any]
    functions: Mapping[str, MlirFunction]
    resources: Mapping[str, bytes]
    locations: Mapping[str, Location]
