"""Computations of scalars evaluated on whole arrays: reducers, comparators, ``map`` bodies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..conversion import convert
from ..dtypes import to_numpy
from ..elementwise import TABLE
from .interp_pointwise import HANDLERS as POINTWISE
from .interp_values import Array, Run, Value
from .nodes import Computation, Instruction, Shape
from .opcodes import ELEMENTWISE

SAME = frozenset({"copy", "broadcast", "reshape", "transpose", "opt-barrier"})
"""Operations that hand on a scalar."""


def simple_op(c: Computation) -> str | None:
    """``add`` if a reducer is ``add(p0, p1)`` in either order, likewise other operations."""
    root = c.root
    commutes = root.opcode in TABLE and TABLE[root.opcode].commutative
    if commutes and len(c.parameters) == 2 and set(root.operands) == set(c.parameters):
        return root.opcode
    return None


def lifted(c: Computation, run: Run) -> Callable[..., Value]:
    """A computation of scalars as a function of arrays of one shape, element by element.

    It runs array operations where every instruction has one, and else a loop over elements.
    """
    known = ELEMENTWISE | SAME | set(POINTWISE) | _STRUCTURE
    if not all(_liftable(i, known) for i in c.instructions):
        return _looped(c, run)
    inner = {i: lifted(_callee(i), run) for i in c.instructions if i.opcode in ("call", "fusion")}

    def apply(*args: Array) -> Value:
        shape = np.broadcast_shapes(*(a.shape for a in args))
        values: dict[Instruction, Value] = {}
        for i in c.instructions:
            operands = [values[o] for o in i.operands]
            match i.opcode:
                case "parameter":
                    values[i] = convert(args[i.attrs["number"]], to_numpy(i.array.dtype))
                case "constant":
                    values[i] = i.attrs["literal"]
                case "tuple":
                    values[i] = tuple(np.broadcast_to(o, shape) for o in operands)
                case "get-tuple-element":
                    values[i] = operands[0][i.attrs["index"]]
                case "call" | "fusion":
                    values[i] = inner[i](*operands)
                case "bitcast":
                    values[i] = POINTWISE["bitcast-convert"](i, operands, run)
                case opcode if opcode in SAME:
                    values[i] = operands[0]
                case opcode if opcode in POINTWISE:
                    values[i] = POINTWISE[opcode](i, operands, run)
                case opcode:
                    values[i] = np.asarray(TABLE[opcode].numpy(*operands))
        result = values[c.root]
        return result if isinstance(result, tuple) else np.broadcast_to(result, shape)

    return apply


_STRUCTURE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "call", "fusion", "compare"}
    | {"bitcast"}
)


def _callee(i: Instruction) -> Computation:
    found: Computation = i.attrs["calls"] if "calls" in i.attrs else i.attrs["to_apply"]
    return found


def _liftable(i: Instruction, known: frozenset[str] | set[str]) -> bool:
    scalar = not isinstance(i.shape, Shape) or not i.shape.dims
    return scalar and i.opcode in known


def _looped(c: Computation, run: Run) -> Callable[..., Value]:
    def apply(*args: Array) -> Value:
        arrays = np.broadcast_arrays(*args)
        shape = arrays[0].shape
        rows = zip(*(a.reshape(-1) for a in arrays), strict=True)
        results = [run(c, [np.asarray(x) for x in row]) for row in rows]
        match c.root.shape:
            case Shape(dtype=dtype):
                return np.array(results, to_numpy(dtype)).reshape(shape)
            case tuples:
                columns = list(zip(*results, strict=True))
                return tuple(
                    np.array(column, to_numpy(e.dtype)).reshape(shape)
                    for column, e in zip(columns, getattr(tuples, "elements", ()), strict=True)
                )

    return apply
