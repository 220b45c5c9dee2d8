"""A computation while it is written: instructions in order, names, and what is known of values.

A graph inside another, as the body of a loop, may use values of the outer one: cheap ones are
written again, known ones become constants, all others parameters, which ``captured`` lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Array
from ...dtypes import from_numpy
from ...errors import NestwrightError
from ...hlo.analysis.verify import check_instruction
from ...hlo.interp.evaluate import evaluate_computation
from ...hlo.nodes import (
    AnyShape,
    Computation,
    HloModule,
    Instruction,
    Metadata,
    Shape,
    TupleShape,
)
from ...hlo.ops.registry import definition, infer
from ...hlo.passes.prepare.keep_effects import keep_effects
from ...hlo.rewrite import constant, make, with_entry, with_operands

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
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "reduce",
        "reduce-window",
        "scatter",
        "sort",
        "topk",
    }
)
_PLUMBING = frozenset({"parameter", "tuple", "get-tuple-element"})
_STRANGE = re.compile(r"[^\w.\-]", re.ASCII)
_RESERVED = frozenset({"ROOT", "ENTRY", "HloModule"})


class Graph:
    """One computation, inside ``outer`` if given.

    ``values`` are the values of a text by their names there. ``label`` and ``origin`` name and
    describe the instructions that ``add`` and ``infer`` write.
    """

    def __init__(self, name: str, outer: Graph | None = None) -> None:
        self.name = name
        self.outer = outer
        self.label = ""
        self.origin: Metadata | None = None
        self.captured: dict[Instruction, Instruction] = {}
        self._own: dict[Instruction, Instruction] = {}
        self.values: dict[str, Instruction] = {}
        self.instructions: list[Instruction] = []
        self.parameters: list[Instruction] = []
        self._names: dict[str, int] = {}
        self._known: dict[Instruction, Any] = {}
        self._seen = 0
        self._steps = MAX_STEPS

    def write(
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
        if self.outer is not None:
            self._own[found] = found
        return found

    def add(
        self, opcode: str, shape: AnyShape, operands: Sequence[Instruction] = (), **attrs: Any
    ) -> Instruction:
        """A new instruction, checked: ``VerifyError`` where it is not well formed."""
        inside = [self.inside(o) for o in operands]
        found = self.write(
            opcode, shape, inside, like=self.label, metadata=self.origin, attrs=attrs
        )
        check_instruction(found)
        return found

    @property
    def depth(self) -> int:
        """Return the number of graphs around this one."""
        return 0 if self.outer is None else self.outer.depth + 1

    def infer(self, opcode: str, operands: Sequence[Instruction], **attrs: Any) -> Instruction:
        """A new instruction of the shape that its operands give; errors as for ``add``."""
        shape = infer(opcode, [o.shape for o in operands], attrs)
        return self.add(opcode, shape, operands, **attrs)

    def constant(self, value: Array) -> Instruction:
        """A constant of an array's value, of its type and shape."""
        shape = Shape(from_numpy(value.dtype), value.shape)
        return self.add("constant", shape, literal=np.asarray(value, order="C"))

    def inside(self, value: Instruction) -> Instruction:
        """A value of this graph or of one around it, as this graph can use it."""
        if self.outer is None or value in self._own:
            return self._own.get(value, value)
        given = self.outer.inside(value)
        if given in self.captured:
            return self.captured[given]
        if is_cheap(given):
            found = self.copy(given)
        elif (known := self.outer.known(given)) is not None:
            found = self.constant(known)
        else:
            found = self.capture(given)
        self._own[value] = found
        return found

    def capture(self, value: Instruction) -> Instruction:
        """A parameter for a value of the graph around this one."""
        if value not in self.captured:
            self.captured[value] = self.parameter(value.shape, value.name)
        return self.captured[value]

    def parameter(
        self, shape: AnyShape, like: str = "", metadata: Metadata | None = None
    ) -> Instruction:
        """The next parameter."""
        attrs = {"number": len(self.parameters)}
        found = self.write("parameter", shape, like=like, metadata=metadata, attrs=attrs)
        self.parameters.append(found)
        return found

    def unpack(self, value: Instruction, count: int) -> list[Instruction]:
        """The elements of a tuple."""
        assert isinstance(value.shape, TupleShape) and len(value.shape.elements) == count
        return [
            self.write("get-tuple-element", e, [value], attrs={"index": n}, metadata=value.metadata)
            for n, e in enumerate(value.shape.elements)
        ]

    def pack(self, values: Sequence[Instruction]) -> Instruction:
        """One value as it is, any other number as a tuple."""
        if len(values) == 1:
            return values[0]
        return self.write("tuple", TupleShape(tuple(v.shape for v in values)), values)

    def finish(self, results: Sequence[Instruction]) -> Computation:
        """Return the computation with these results; several become a tuple."""
        root = self.pack([self.inside(r) for r in results])
        return Computation(self.name, tuple(self.parameters), tuple(self.instructions), root)

    def finish_packed(
        self, results: Sequence[Instruction], order: Sequence[Instruction]
    ) -> Computation:
        """Return the computation whose one parameter is the tuple of the parameters in ``order``.

        A single parameter stays as it is.
        """
        if len(order) == 1:
            return self.finish(results)
        root = self.pack([self.inside(r) for r in results])
        state = Graph(self.name)
        packed = state.parameter(TupleShape(tuple(p.shape for p in order)), self._fresh("state"))
        new = dict(zip(order, state.unpack(packed, len(order)), strict=True))
        parts = [replace(p, name=old.name) for old, p in new.items()]
        new = dict(zip(order, parts, strict=True))
        for i in self.instructions:
            if i not in new:
                new[i] = with_operands(i, tuple(new[o] for o in i.operands))
        given = set(order)
        inner = [new[i] for i in self.instructions if i not in given]
        return Computation(self.name, (packed,), (packed, *parts, *inner), new[root])

    def module(self, results: Sequence[Instruction], name: str = "") -> HloModule:
        """Return the module whose entry is this computation; several results become a tuple.

        The result depends on what runs for its effect, which is dropped as dead code otherwise.
        """
        entry = self.finish(results)
        found = keep_effects(HloModule(hlo_name(name or self.name), (), entry))
        return with_entry(found, found.entry)

    def copy(self, value: Instruction) -> Instruction:
        """A cheap value of another computation, written again in this one."""
        operands = [self.copy(o) for o in value.operands]
        return self.write(value.opcode, value.shape, operands, like=value.name, attrs=value.attrs)

    def known(self, value: Instruction) -> Array | None:
        """The value if constants alone give it and it is a small array, else None.

        Each instruction is evaluated once, the first time that any value is asked for.
        """
        if self.outer is not None and value not in self._own:
            return self.outer.known(value)
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
                return self.called(i.attrs["to_apply"], operands)
            case _ if _is_foldable(i):
                inside = tuple(constant(o) for o in operands)
                again = with_operands(i, inside)
                return self.called(Computation("known", (), (*inside, again), again), [])
            case _:
                return None

    def called(self, computation: Computation, operands: list[Any]) -> Any:
        """Evaluate a computation of plain arithmetic that fits into what is left of the allowance;
        None for any other, which costs nothing.
        """
        weight = _weight(computation, {})
        if weight > self._steps:
            return None
        self._steps -= weight
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
