"""Vectorized evaluation of scalar computations: reducers, comparators, ``map`` bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...dtypes import to_numpy
from ..meaning.values import CallEvaluator, Value
from ..nodes import Computation, Instruction, Shape
from ..ops.registry import definition


@dataclass(frozen=True, slots=True)
class Runner:
    """Evaluates computations by ``call``, and lifts scalar computations to arrays."""

    call: Callable[[Computation, Sequence[Value]], Value]

    def __call__(self, computation: Computation, args: Sequence[Value], /) -> Value:
        return self.call(computation, args)

    def lifted(self, computation: Computation) -> Callable[..., Value]:
        """Return a scalar computation as an element-wise function of arrays of one shape."""
        return lifted(computation, self)


def lifted(c: Computation, run: CallEvaluator) -> Callable[..., Value]:
    """Return a scalar computation as an element-wise function of arrays that broadcast.

    It uses array operations if every instruction has one, and loops over elements otherwise.
    """
    if not all(map(_is_liftable, c.instructions)):
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
                case opcode:
                    handler = definition(opcode).lifted
                    assert handler is not None
                    values[i] = handler(i, operands, run)
        result = values[c.root]
        return result if isinstance(result, tuple) else np.broadcast_to(result, shape)

    return apply


_STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "call", "fusion"})


def _callee(i: Instruction) -> Computation:
    found: Computation = i.attrs["calls"] if "calls" in i.attrs else i.attrs["to_apply"]
    return found


def _is_liftable(i: Instruction) -> bool:
    scalar = not isinstance(i.shape, Shape) or not i.shape.dims
    return scalar and (i.opcode in _STRUCTURE or definition(i.opcode).lifted is not None)


def _looped(c: Computation, run: CallEvaluator) -> Callable[..., Value]:
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
