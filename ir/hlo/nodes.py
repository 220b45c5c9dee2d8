"""The nodes of the HLO graph IR.

A module is a set of computations; a computation is a list of instructions in which every operand
precedes its users; an instruction is a value. Nodes are frozen: a pass builds new instructions and
shares the rest, and returns an unchanged computation or module as the same object. Shapes compare
by structure, instructions and computations by identity.

Attributes are kept under the names that HLO text gives them (``dimensions``, ``window``,
``to_apply``, ...). The value's Python type, by attribute:

  tuple[int, ...]     dimensions, offset_dims, lhs_contracting_dims, slice_sizes, ...
  int, float, bool    index, feature_group_count, iota_dimension, epsilon, is_stable, ...
  str                 direction, type, custom_call_target, distribution, algorithm, ...
  Computation         to_apply, condition, body, select, scatter, calls, true_computation, ...
  tuple of them       branch_computations, called_computations
  Window, ConvLabels  window, dim_labels
  tuple[SliceDim]     slice
  tuple[PadDim]       padding (of ``pad``)
  numpy.ndarray       literal of ``constant`` (attribute ``literal``; tuple constants: a tuple;
                      ``Raw`` where the text left the value out)
  Raw                 anything this IR keeps but does not interpret; printed unchanged

``parameter`` has ``number: int``. Metadata is a field of its own and never changes the meaning.

The text of a module (``text.printer``, ``text.parser``) has this grammar. Quoted are terminals,
``[x]`` is optional, ``x*`` any number, ``x, ..`` any number with commas between; ``//`` and
``/* */`` are comments, and a NAME may begin with ``%``. In ``<>`` is the node that a rule makes:

  module      : "HloModule" NAME ["," attribute, ..] [TABLES] computation*       <HloModule>
  computation : ["ENTRY"] NAME [signature] body
  signature   : "(" PARAMETERS ")" "->" shape
  body        : "{" instruction* "}" ["," "execution_thread" "=" STRING]         <Computation>
  instruction : ["ROOT"] NAME "=" [shape] operation ["," attribute, ..]
                ["," "metadata" "=" "{" FIELDS "}"]                    <Instruction> <Metadata>
  operation   : "parameter" "(" INT ")" | "constant" "(" literal ")"
              | OPCODE "(" operand, .. ")"
  operand     : [shape] NAME | [shape] operation
  shape       : DTYPE "[" dim, .. "]" [layout]                                   <Shape>
              | "(" shape, .. ")"                                                <TupleShape>
              | "token" "[" "]" | "opaque" "[" "]" | "b" "(" shape ")"           <TokenShape>
  dim         : ["<="] INT | "?"
  layout      : "{" INT, .. [":" TILES] "}"
  literal     : number | "{" literal, .. "}" | "(" literal, .. ")"
  number      : INT | FLOAT | "true" | "false" | "inf" | "nan" | "(" FLOAT "," FLOAT ")"
  attribute   : NAME "=" value
  value       : INT | FLOAT | "true" | "false" | WORD | STRING | "{" value, .. "}"
              | NAME | body
              | "{" ["size" "=" sizes] ["stride" "=" sizes] ["pad" "=" pads]
                ["lhs_dilate" "=" sizes] ["rhs_dilate" "=" sizes]
                ["rhs_reversal" "=" sizes] "}"                                   <WindowDim>
              | LABELS "_" LABELS "->" LABELS                                    <ConvLabels>
              | "{" "[" INT ":" INT [":" INT] "]", .. "}"                        <SliceDim>
              | edges                                                            <PadDim>
              | TEXT                                                             <Raw>
  sizes       : INT ("x" INT)*
  pads        : INT "_" INT ("x" INT "_" INT)*
  edges       : INT "_" INT ["_" INT] ("x" INT "_" INT ["_" INT])*
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..dtypes import DType


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense array. ``layout`` is minor-to-major (HLO's braces), None for row-major.

    ``dynamic[i]`` marks dimension i as bounded (``<=``): ``dims[i]`` is then its bound. An empty
    tuple means that no dimension is. ``tiling`` is the rest of a layout's text (tiles, memory
    space, element bits), such as ``T(8,128)S(1)``.
    """

    dtype: DType
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] | None = None
    dynamic: tuple[bool, ...] = ()
    tiling: str = ""

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements, bounded dimensions at their bounds."""
        n = 1
        for d in self.dims:
            n *= d
        return n

    @property
    def marks(self) -> tuple[bool, ...]:
        """For each dimension, True if it is bounded."""
        return self.dynamic or (False,) * self.rank

    @property
    def bounded(self) -> tuple[int, ...]:
        """The dimensions of which only the bound is known."""
        return tuple(d for d, marked in enumerate(self.dynamic) if marked)

    @property
    def bytes(self) -> int:
        """Bytes of storage, bounded dimensions at their bounds."""
        return self.size * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple of shapes, possibly nested."""

    elements: tuple[AnyShape, ...]


@dataclass(frozen=True, slots=True)
class TokenShape:
    """The type of values that are not arrays: ``token[]``, ``opaque[]`` and buffers, as text."""

    text: str = "token[]"


AnyShape: TypeAlias = Shape | TupleShape | TokenShape


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One dimension of a window, as in ``window={size=3x3 stride=2x2 pad=0_1x0_1}``."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversal: bool = False


Window: TypeAlias = tuple[WindowDim, ...]


@dataclass(frozen=True, slots=True)
class ConvLabels:
    """``dim_labels`` of a convolution: positions of batch, feature and spatial dimensions.

    ``b01f_01io->b01f`` reads: lhs_batch=0, lhs_feature=3, lhs_spatial=(1, 2); rhs_input=2,
    rhs_output=3, rhs_spatial=(0, 1); out_batch=0, out_feature=3, out_spatial=(1, 2).
    """

    lhs_batch: int
    lhs_feature: int
    lhs_spatial: tuple[int, ...]
    rhs_input: int
    rhs_output: int
    rhs_spatial: tuple[int, ...]
    out_batch: int
    out_feature: int
    out_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceDim:
    """One dimension of a slice, ``[start:limit:stride]``."""

    start: int
    limit: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class PadDim:
    """One dimension of ``padding``, ``low_high_interior``; low and high may be negative."""

    low: int
    high: int
    interior: int = 0


@dataclass(frozen=True, slots=True)
class Raw:
    """Attribute text that is kept and printed, not interpreted."""

    text: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """The origin of an instruction, as recorded by the front-end."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    raw: str = ""


_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One operation and its result. ``name`` is unique in its computation."""

    name: str
    opcode: str
    shape: AnyShape
    operands: tuple[Instruction, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=lambda: _NO_ATTRS)
    metadata: Metadata | None = None

    @property
    def array(self) -> Shape:
        """The shape of a result that is one array; ``TypeError`` for tuples and tokens."""
        if not isinstance(self.shape, Shape):
            raise TypeError(f"{self.opcode} {self.name} has no array shape: {self.shape}")
        return self.shape

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.name}>"


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """A function: instructions in topological order, its parameters among them.

    ``parameters[i]`` has ``number`` i.
    """

    name: str
    parameters: tuple[Instruction, ...]
    instructions: tuple[Instruction, ...]
    root: Instruction

    def __repr__(self) -> str:
        return f"<computation {self.name}: {len(self.instructions)} instructions>"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class HloModule:
    """A program. ``computations`` has callees before callers; ``entry`` is one of them.

    ``attrs`` are the header's attributes (``entry_computation_layout``, ...) and ``tables`` the
    file and stack-frame tables, both as text.
    """

    name: str
    computations: tuple[Computation, ...]
    entry: Computation
    attrs: Mapping[str, Any] = field(default_factory=dict)
    tables: str = ""

    def __reduce__(self) -> tuple[Callable[..., HloModule], tuple[object, ...]]:
        """Return what copies and pickles hold: rows with numbers, since graphs may be deep."""
        number = {c: n for n, c in enumerate(self.computations)}
        rows = tuple(_rows(c, number) for c in self.computations)
        return _module, (self.name, rows, number[self.entry], dict(self.attrs), self.tables)


class _Number(NamedTuple):
    """Stands for a computation in the rows of a module."""

    number: int


_Row: TypeAlias = tuple[str, str, AnyShape, tuple[int, ...], dict[str, Any], Metadata | None]


def _rows(c: Computation, number: Mapping[Computation, int]) -> tuple[object, ...]:
    """The name of a computation, the numbers of its parameters and its root, its instructions."""
    place = {i: n for n, i in enumerate(c.instructions)}

    def plain(value: Any) -> Any:
        match value:
            case Computation():
                return _Number(number[value])
            case (Computation(), *_):
                return tuple(map(plain, value))
            case _:
                return value

    def row(i: Instruction) -> _Row:
        attrs = {name: plain(value) for name, value in i.attrs.items()}
        return i.name, i.opcode, i.shape, tuple(place[o] for o in i.operands), attrs, i.metadata

    parameters = tuple(place[p] for p in c.parameters)
    return c.name, parameters, place[c.root], tuple(map(row, c.instructions))


def _module(
    name: str, rows: Sequence[Any], entry: int, attrs: Mapping[str, Any], tables: str
) -> HloModule:
    """Return the module of such rows."""
    made: list[Computation] = []
    for of, parameters, root, instructions in rows:
        new: list[Instruction] = []
        for own, opcode, shape, operands, given, metadata in instructions:
            kept = MappingProxyType({k: _linked(v, made) for k, v in given.items()})
            new.append(
                Instruction(own, opcode, shape, tuple(new[o] for o in operands), kept, metadata)
            )
        made.append(Computation(of, tuple(new[p] for p in parameters), tuple(new), new[root]))
    return HloModule(name, tuple(made), made[entry], attrs, tables)


def _linked(value: Any, computations: Sequence[Computation]) -> Any:
    match value:
        case _Number():
            return computations[value.number]
        case (_Number(), *_):
            return tuple(computations[v.number] for v in value)
        case np.ndarray():
            value.setflags(write=False)
    return value
