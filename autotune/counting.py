"""How much work a computation is: floating-point operations, and bytes that must move."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from ..ir.dtypes import f32
from ..ir.elementwise import TABLE
from ..ir.hlo.nodes import AnyShape, Computation, Instruction, Shape, TupleShape, WindowDim


def flops(c: Computation) -> float:
    """Operations of one run: a multiply-add counts two, a transcendental what the table says."""
    return sum(_flops(i) for i in c.instructions)


def certain_flops(c: Computation) -> float:
    """Multiply-adds in f32, as two operations each, that no code for ``c`` can do without.

    Taps of a convolution that fall into padding or between dilated elements are left out. 0 where
    something is cut out of a value, so that some of it may never be computed, and where narrower
    floats come in, which a processor may multiply faster.
    """
    narrow = any(s.dtype.is_float and s.dtype.bits < 32 for s in _arrays(c.parameters))
    if narrow or any(i.opcode in _CUTS for i in c.instructions):
        return 0.0
    found = (i for i in c.instructions if i.opcode in ("dot", "convolution"))
    return sum(_certain(i) for i in found if all(o.array.dtype == f32 for o in i.operands))


def _arrays(values: Iterable[Instruction]) -> list[Shape]:
    return [v.shape for v in values if isinstance(v.shape, Shape)]


def _certain(i: Instruction) -> float:
    if i.opcode == "dot":
        return _dot(i)
    labels, valid = i.attrs["dim_labels"], 1.0
    for n, window in enumerate(i.attrs.get("window", ())):
        given = i.operands[0].array.dims[labels.lhs_spatial[n]]
        valid *= _inside(window, given, i.array.dims[labels.out_spatial[n]])
    return _convolution(i) * valid


def _inside(w: WindowDim, given: int, steps: int) -> float:
    """The share of a window's taps that meet an element, over all ``steps`` places."""
    places = np.arange(steps)[:, None] * w.stride + np.arange(w.size) * w.rhs_dilate - w.pad_low
    met = (places >= 0) & (places <= (given - 1) * w.lhs_dilate) & (places % w.lhs_dilate == 0)
    return float(met.mean()) if met.size else 0.0


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


_CUTS = frozenset({"slice", "dynamic-slice", "gather", "pad", "sort", "topk"})

_SPECIAL: dict[str, Callable[[Instruction], float]] = {
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
}
