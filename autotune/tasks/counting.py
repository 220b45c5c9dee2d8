"""How much work a computation is: floating-point operations, and bytes that must move."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ir.dtypes import f32
from ...ir.hlo.nodes import AnyShape, Computation, Instruction, Shape, TupleShape, WindowDim
from ...ir.hlo.ops.definition import Pattern
from ...ir.hlo.ops.registry import definition, work, work_of


def flops(c: Computation) -> float:
    """Operations of one run, each as heavy as the table of element-wise operations says."""
    return work(c).weight


def certain_flops(c: Computation) -> float:
    """Multiply-adds in f32, as two operations each, that no code for ``c`` can do without.

    Taps of a convolution that fall into padding or between dilated elements are left out. 0 where
    something is cut out of a value, so that some of it may never be computed, and where narrower
    floats come in, which a processor may multiply faster.
    """
    narrow = any(s.dtype.is_float and s.dtype.bits < 32 for s in _arrays(c.parameters))
    if narrow or any(definition(i.opcode).drops_elements for i in c.instructions):
        return 0.0
    products = (i for i in c.instructions if definition(i.opcode).pattern is Pattern.OUT_FUSABLE)
    return sum(_certain(i) for i in products if all(o.array.dtype == f32 for o in i.operands))


def _arrays(values: Iterable[Instruction]) -> list[Shape]:
    return [v.shape for v in values if isinstance(v.shape, Shape)]


def _certain(i: Instruction) -> float:
    valid = 1.0
    for n, window in enumerate(i.attrs.get("window", ())):
        labels = i.attrs["dim_labels"]
        given = i.operands[0].array.dims[labels.lhs_spatial[n]]
        valid *= _inside(window, given, i.array.dims[labels.out_spatial[n]])
    return work_of(i).flops * valid


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
