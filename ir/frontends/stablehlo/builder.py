"""A computation while it is written: instructions in order, names, and what is known of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...errors import NestwrightError
from ...hlo.interp import evaluate_computation
from ...hlo.nodes import AnyShape, Computation, Instruction, Metadata, Shape, TupleShape
from ...hlo.opcodes import ELEMENTWISE
from ...hlo.rewrite import make, post_order

Array: TypeAlias = np.ndarray[Any, Any]

MAX_KNOWN = 4096  # elements and instructions of what is evaluated while reading
MAX_FOLDED = 4  # levels of calls that are
CHEAP = 64  # elements of a constant that is written again rather than handed on

_FOLDABLE = ELEMENTWISE | {
    "constant", "iota", "broadcast", "reshape", "transpose", "convert", "concatenate", "slice",
    "compare", "reverse", "pad", "bitcast-convert", "tuple", "get-tuple-element",
}  # fmt: skip
_STRANGE = re.compile(r"[^\w.\-]")


class Builder:
    """One computation. ``values`` are the values of the text by their names there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, Instruction] = {}
        self.instructions: list[Instruction] = []
        self.parameters: list[Instruction] = []
        self._names: dict[str, int] = {}
        self._known: dict[Instruction, Array | None] = {}

    def add(
        self,
        opcode: str,
        shape: AnyShape,
        operands: Iterable[Instruction] = (),
        *,
        like: str = "",
        metadata: Metadata | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Instruction:
        """A new instruction, named after the value ``like`` of the text."""
        name = self._fresh(_base(like, opcode))
        found = make(opcode, shape, operands, name=name, metadata=metadata, **(attrs or {}))
        self.instructions.append(found)
        return found

    def parameter(
        self, shape: AnyShape, like: str = "", metadata: Metadata | None = None
    ) -> Instruction:
        """The next parameter."""
        attrs = {"number": len(self.parameters)}
        found = self.add("parameter", shape, like=like, metadata=metadata, attrs=attrs)
        self.parameters.append(found)
        return found

    def unpack(self, value: Instruction, count: int) -> list[Instruction]:
        """The elements of a tuple."""
        assert isinstance(value.shape, TupleShape) and len(value.shape.elements) == count
        return [
            self.add("get-tuple-element", e, [value], attrs={"index": n}, metadata=value.metadata)
            for n, e in enumerate(value.shape.elements)
        ]

    def pack(self, values: Sequence[Instruction]) -> Instruction:
        """One value as it is, any other number as a tuple."""
        if len(values) == 1:
            return values[0]
        return self.add("tuple", TupleShape(tuple(v.shape for v in values)), values)

    def finish(self, results: Sequence[Instruction]) -> Computation:
        root = self.pack(results)
        return Computation(self.name, tuple(self.parameters), tuple(self.instructions), root)

    def copy(self, value: Instruction) -> Instruction:
        """A cheap value of another computation, written again in this one."""
        operands = [self.copy(o) for o in value.operands]
        return self.add(value.opcode, value.shape, operands, like=value.name, attrs=value.attrs)

    def known(self, value: Instruction) -> Array | None:
        """The value if constants alone give it and it is small, else None."""
        if value not in self._known:
            self._known[value] = _evaluated(value)
        return self._known[value]

    def _fresh(self, base: str) -> str:
        if base not in self._names:
            self._names[base] = 0
            return base
        while True:
            self._names[base] += 1
            name = f"{base}.{self._names[base]}"
            if name not in self._names:
                self._names[name] = 0
                return name


def is_cheap(value: Instruction) -> bool:
    """Whether a value is rather made again than handed into a loop or a branch."""
    match value:
        case Instruction(opcode="constant", shape=Shape() as shape):
            return shape.size <= CHEAP
        case Instruction(opcode="broadcast", operands=(Instruction(opcode="constant") as one,)):
            return one.array.size == 1
        case _:
            return value.opcode == "iota"


def _base(like: str, opcode: str) -> str:
    """``%cst_0`` -> ``cst_0``, ``%12`` -> ``add.12``, ``%12#1`` -> ``sort.12``"""
    stem = like.removeprefix("%").partition("#")[0]
    if not stem:
        return opcode
    if stem[0].isdecimal():
        return f"{opcode}.{stem}"
    clean = _STRANGE.sub("_", stem)
    return clean if clean[0].isalpha() or clean[0] == "_" else f"_{clean}"


def _is_small(shape: AnyShape) -> bool:
    match shape:
        case Shape(dynamic=()):
            return shape.size <= MAX_KNOWN
        case TupleShape(elements=elements):
            return all(map(_is_small, elements))
        case _:
            return False


def _is_foldable(i: Instruction, depth: int = 0) -> bool:
    """Whether an instruction may be evaluated while reading: arithmetic, and calls of it."""
    if i.opcode != "call":
        return i.opcode in _FOLDABLE
    own: Computation = i.attrs["to_apply"]
    if depth >= MAX_FOLDED or len(own.instructions) > MAX_KNOWN:
        return False
    return all(o.opcode == "parameter" or _is_foldable(o, depth + 1) for o in own.instructions)


def _evaluated(value: Instruction) -> Array | None:
    order: list[Instruction] = []
    for i in post_order([value]):
        if not _is_small(i.shape) or not _is_foldable(i) or len(order) >= MAX_KNOWN:
            return None
        order.append(i)
    if not isinstance(value.shape, Shape):
        return None
    try:
        found = evaluate_computation(Computation("known", (), tuple(order), value), [])
    except (NestwrightError, TypeError, ValueError):
        return None
    return np.asarray(found)
