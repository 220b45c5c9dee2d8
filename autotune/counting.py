"""How much work a computation is: floating-point operations, and bytes that must move."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir.elementwise import TABLE
from ..ir.hlo.nodes import AnyShape, Computation, Instruction, Shape, TupleShape


def flops(c: Computation) -> float:
    """Operations of one run: a multiply-add counts two, a transcendental what the table says."""
    return sum(_flops(i) for i in c.instructions)


def moved(c: Computation) -> float:
    """Bytes of the arguments and results of one run, each counted once."""
    return float(sum(size(p.shape) for p in c.parameters) + size(c.root.shape))


def size(shape: AnyShape) -> int:
    """Bytes of a value; tokens take none."""
    match shape:
        case Shape():
            return shape.bytes
        case TupleShape(elements=elements):
            return sum(map(size, elements))
        case _:
            return 0


def _flops(i: Instruction) -> float:
    if not isinstance(i.shape, Shape):
        return sum(_elements(e.shape) for e in i.operands) if i.opcode == "reduce" else 0.0
    special = _SPECIAL.get(i.opcode)
    if special is not None:
        return special(i)
    op = TABLE.get(i.opcode)
    floats = i.shape.dtype.kind in ("float", "complex")
    return i.shape.size * op.flops if op is not None and floats else 0.0


def _elements(shape: AnyShape) -> float:
    return float(shape.size) if isinstance(shape, Shape) else 0.0


def _dot(i: Instruction) -> float:
    lhs = i.operands[0].array
    depth: int = math.prod(lhs.dims[d] for d in i.attrs.get("lhs_contracting_dims", ()))
    return 2.0 * i.array.size * depth


def _convolution(i: Instruction) -> float:
    kernel = i.operands[1].array
    features: int = kernel.dims[i.attrs["dim_labels"].rhs_output]
    return 2.0 * i.array.size * kernel.size / max(1, features)


def _reduce(i: Instruction) -> float:
    return _elements(i.operands[0].shape)


def _reduce_window(i: Instruction) -> float:
    points: int = math.prod(w.size for w in i.attrs["window"])
    return float(i.array.size * points)


_SPECIAL: dict[str, Callable[[Instruction], float]] = {
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
}
