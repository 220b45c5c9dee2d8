"""Work of a computation: floating-point operations, and bytes that must move."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ir.dtypes import f32
from ...ir.hlo.analysis.untouched import untouched
from ...ir.hlo.nodes import AnyShape, Computation, Instruction, Shape, TupleShape, WindowDim
from ...ir.hlo.ops.definition import Pattern
from ...ir.hlo.ops.registry import definition, work, work_of


def flops(c: Computation) -> float:
    """Return the operations of one run, weighted by the table of element-wise operations."""
    return work(c).weight


def certain_flops(c: Computation) -> float:
    """Return a lower bound on the f32 operations of any code for ``c``.

    A multiply-add counts as two operations. Taps of a convolution on padding or between dilated
    elements do not count. 0 if elements of a value are dropped, so that some may never be computed,
    and for narrower floats, which a processor may multiply faster.
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
    """Return the share of a window's taps that are on an element, over ``steps`` positions."""
    places = np.arange(steps)[:, None] * w.stride + np.arange(w.size) * w.rhs_dilate - w.pad_low
    met = (places >= 0) & (places <= (given - 1) * w.lhs_dilate) & (places % w.lhs_dilate == 0)
    return float(met.mean()) if met.size else 0.0


def certain_reads(c: Computation) -> tuple[bool, ...]:
    """Return for each parameter True if any code for ``c`` reads all of its elements.

    False for all if elements of a value are dropped, or a window steps over some or is cut.
    """
    windows = [w for i in c.instructions for w in i.attrs.get("window", ())]
    skips = any(
        w.stride > w.size or w.rhs_dilate > 1 or min(w.pad_low, w.pad_high) < 0 for w in windows
    )
    if skips or any(definition(i.opcode).drops_elements for i in c.instructions):
        return (False,) * len(c.parameters)
    used = {o for i in c.instructions for o in i.operands} | {c.root}
    return tuple(p in used for p in c.parameters)


def moved(c: Computation) -> float:
    """Return the bytes of the arguments and results of one run, each counted once.

    Of an array from which rows are cut, the rows count.
    """
    whole = sum(size(p.shape) for p in c.parameters) + size(c.root.shape)
    return float(whole - untouched(c))


def size(shape: AnyShape) -> int:
    """Return the bytes of a value; tokens take none."""
    match shape:
        case Shape():
            return shape.bytes
        case TupleShape(elements=elements):
            return sum(map(size, elements))
        case _:
            return 0
