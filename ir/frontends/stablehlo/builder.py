"""A computation while it is written: instructions in order, names, and what is known of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...errors import NestwrightError
from ...hlo.interp.evaluate import evaluate_computation
from ...hlo.nodes import AnyShape, Computation, Instruction, Metadata, Shape, TupleShape
from ...hlo.ops.registry import definition
from ...hlo.rewrite import constant, make, with_operands

Array: TypeAlias = np.ndarray[Any, Any]

MAX_KNOWN = 1024  # elements of a value that is evaluated while reading
MAX_STEPS = 100_000  # instructions of one computation that are
CHEAP = 64  # elements of a constant that is written again rather than handed on

_FOLDABLE = frozenset(
    {
        "constant",
        "iota",
        "broadcast",
        "reshape",
        "transpose",
        "convert",
        "concatenate",
        "slice",
        "compare",
        "reverse",
        "pad",
        "bitcast-convert",
    }
)
_PLUMBING = frozenset({"parameter", "tuple", "get-tuple-element"})
_STRANGE = re.compile(r"[^\w.\-]", re.ASCII)
_RESERVED = frozenset({"ROOT", "ENTRY", "HloModule"})


class GraphBuilder:
    """One computation. ``values`` are the values of the text by their names there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, Instruction] = {}
        self.instructions: list[Instruction] = []
        self.parameters: list[Instruction] = []
        self._names: dict[str, int] = {}
        self._known: dict[Instruction, Any] = {}
        self._seen = 0
        self._steps = MAX_STEPS

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
        """Return the computation with these results; several become a tuple."""
        root = self.pack(results)
        return Computation(self.name, tuple(self.parameters), tuple(self.instructions), root)

    def copy(self, value: Instruction) -> Instruction:
        """A cheap value of another computation, written again in this one."""
        operands = [self.copy(o) for o in value.operands]
        return self.add(value.opcode, value.shape, operands, like=value.name, attrs=value.attrs)

    def known(self, value: Instruction) -> Array | None:
        """The value if constants alone give it and it is a small array, else None.

        Each instruction is evaluated once, the first time that any value is asked for.
        """
        while self._seen < len(self.instructions):
            i = self.instructions[self._seen]
            self._seen += 1
            self._known[i] = self._evaluated(i)
        found = self._known.get(value)
        return found if isinstance(found, np.ndarray) else None

    def _evaluated(self, i: Instruction) -> Any:
        """The value of one instruction whose operands are known; None for any other."""
        if not _is_small(i.shape):
            return None
        operands: list[Any] = [self._known.get(o) for o in i.operands]
        if any(o is None for o in operands):
            return None
        match i.opcode:
            case "constant":
                return i.attrs["literal"]
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                return operands[0][i.attrs["index"]]
            case "call":
                return self._called(i.attrs["to_apply"], operands)
            case _ if _is_foldable(i):
                inside = tuple(constant(o) for o in operands)
                again = with_operands(i, inside)
                return self._called(Computation("known", (), (*inside, again), again), [])
            case _:
                return None

    def _called(self, computation: Computation, operands: list[Any]) -> Any:
        """Evaluate a computation of plain arithmetic; None once the allowance is used up."""
        self._steps -= _weight(computation, {})
        if self._steps < 0:
            return None
        try:
            return evaluate_computation(computation, operands)
        except (NestwrightError, TypeError, ValueError):
            return None

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
    """True if a value is cheaper to compute again inside a loop or branch than to pass in."""
    match value:
        case Instruction(opcode="constant", shape=Shape() as shape):
            return shape.size <= CHEAP
        case Instruction(opcode="broadcast", operands=(Instruction(opcode="constant") as one,)):
            return one.array.size == 1
        case _:
            return value.opcode == "iota"


def hlo_name(text: str) -> str:
    """A text as a name that HLO text can hold."""
    clean = _STRANGE.sub("_", text)
    plain = (clean[:1].isalpha() or clean[:1] == "_") and clean not in _RESERVED
    return clean if plain else f"_{clean}"


def _base(like: str, opcode: str) -> str:
    """``%cst_0`` -> ``cst_0``, ``%12`` -> ``add.12``, ``%12#1`` -> ``sort.12``"""
    stem = like.removeprefix("%").partition("#")[0]
    if not stem:
        return opcode
    return f"{opcode}.{stem}" if stem.isdecimal() else hlo_name(stem)


def _is_small(shape: AnyShape) -> bool:
    match shape:
        case Shape(dynamic=()):
            return shape.size <= MAX_KNOWN
        case TupleShape(elements=elements):
            return all(map(_is_small, elements))
        case _:
            return False


def _is_foldable(i: Instruction) -> bool:
    return definition(i.opcode).arithmetic or i.opcode in _FOLDABLE


def _weight(computation: Computation, known: dict[Computation, int]) -> int:
    """Count the instructions that run; over ``MAX_STEPS`` if one is not plain arithmetic."""
    if computation not in known:
        known[computation] = MAX_STEPS + 1  # until it is counted
        total = 0
        for i in computation.instructions:
            if i.opcode == "call":
                total += _weight(i.attrs["to_apply"], known)
            elif not _is_foldable(i) and i.opcode not in _PLUMBING:
                total = MAX_STEPS + 1
            total += 1
        known[computation] = min(total, MAX_STEPS + 1)
    return known[computation]
