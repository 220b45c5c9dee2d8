"""Sums of exponentials of a few long rows together with their maxima, for GPUs.

A softmax needs the largest element of a row before any exponential, and where blocks of threads
share a row, only the end of a launch tells it to all of them. Both values are reduced at once here,
each sum relative to the largest element so far (an online softmax):

    m = max(x);  s = sum(exp(x - m))  ->  (m, s) = reduce((x, 1));  s * exp(m - m)

Of two parts the sum with the smaller maximum is scaled down by ``exp(-|m1 - m2|)``. The factor
``exp(m - shift)`` is 1 for finite maxima, and else what the given shift of the row makes of it, as
NaN. Exponentials that a product takes are left to attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ....dtypes import DType, f32
from ....gpus import FEW_ROWS, LONG_ROW
from ...meaning.values import simple_op
from ...nodes import Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.match import is_splat, is_static, nonunit
from ...rewrite import assemble, make, map_computations, parameter, rebuild

_LEAST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """The maxima and the sums to be replaced, by name, and the pairs that were made of the first.

    ``sums`` has the name of the maximum that a sum belongs to.
    """

    sums: dict[str, str]
    pairs: dict[str, Instruction] = field(default_factory=dict)

    def rule(self, i: Instruction) -> Instruction | None:
        if i.name in self.sums.values():
            self.pairs[i.name] = _pair(i)
            return build.element(self.pairs[i.name], 0)
        if i.name not in self.sums:
            return None
        pair = self.pairs[self.sums[i.name]]
        scale = _row(i.operands[0].operands[0].operands[1])
        assert scale is not None
        shift = build.reshape(scale, i.array.dims)
        left = build.pointwise("subtract", build.element(pair, 0), shift)
        return build.pointwise(
            "multiply", build.element(pair, 1), build.pointwise("exponential", left)
        )


def online_softmax(module: HloModule) -> HloModule:
    """``reduce(x, max)``, ``reduce(exp(x - max), add)``  ->  ``reduce((x, 1), online)``"""
    return map_computations(module, _rewritten)


def _rewritten(c: Computation) -> Computation:
    multiplied: set[Instruction] = set()
    for i in reversed(c.instructions):
        if i in multiplied or i.opcode in ("dot", "convolution"):
            multiplied.update(i.operands)
    sums: dict[str, str] = {}
    for i in c.instructions:
        top = _maximum(i)
        if top is not None and i.operands[0] not in multiplied and top.name not in sums.values():
            sums[i.name] = top.name
    return rebuild(c, _Rewriting(sums).rule) if sums else c


def _maximum(i: Instruction) -> Instruction | None:
    """Return the maxima of rows that the exponentials are relative to whose sums ``i`` has."""
    if not _reduces(i, "add") or not is_splat(i.operands[1], 0.0):
        return None
    dims = i.operands[0].array.dims
    if math.prod(dims[:-1]) >= FEW_ROWS or dims[-1] <= LONG_ROW:
        return None
    e = i.operands[0]
    if e.opcode != "exponential" or e.operands[0].opcode != "subtract":
        return None
    x, spread = e.operands[0].operands
    shift = _row(spread)
    top = None if shift is None else _shifts(shift)
    if top is None or not _reduces(top, "maximum") or top.operands[0] is not x:
        return None
    start = top.operands[1]
    return top if is_splat(start, -math.inf) or is_splat(start, _LEAST) else None


def _reduces(i: Instruction, by: str) -> bool:
    """True if ``i`` reduces rows of f32, which are contiguous, by an operation."""
    if i.opcode != "reduce" or len(i.operands) != 2 or not all(map(is_static, i.operands)):
        return False
    x = i.operands[0].array
    rows = x.dtype == f32 and tuple(i.attrs["dimensions"]) == (len(x.dims) - 1,)
    return rows and simple_op(i.attrs["to_apply"]) == by


def _row(spread: Instruction) -> Instruction | None:
    """Return the value of each row that is repeated along the last dimension; None if it is none.

    It may have other dimensions of size 1.
    """
    if spread.opcode != "broadcast" or not spread.operands:
        return None
    to = spread.array.dims
    kept = tuple(d for d in spread.attrs["dimensions"] if to[d] != 1)
    rows = tuple(d for d in range(len(to) - 1) if to[d] != 1)
    return _without_units(spread.operands[0]) if kept == rows else None


def _without_units(x: Instruction) -> Instruction:
    """Return ``x`` before reshapes that add or remove dimensions of size 1."""
    while x.opcode == "reshape" and nonunit(x.operands[0].array.dims) == nonunit(x.array.dims):
        x = x.operands[0]
    return x


def _shifts(shift: Instruction) -> Instruction:
    """Return the maxima that a shift is, or is where they are finite."""
    if shift.opcode == "select" and shift.operands[0].opcode == "is-finite":
        finite, top = shift.operands[0].operands[0], shift.operands[1]
        if _without_units(finite) is _without_units(top) and is_splat(shift.operands[2], 0.0):
            return _without_units(top)
    return shift


def _pair(top: Instruction) -> Instruction:
    x, start = top.operands
    ones = build.full(1.0, f32, x.array.dims)
    shape = TupleShape((top.array, top.array))
    operands = (x, ones, start, build.scalar(0.0, f32))
    return make("reduce", shape, operands, name=top.name, **{**top.attrs, "to_apply": _online(f32)})


def _online(dtype: DType) -> Computation:
    """Return the combiner of maxima with the sums relative to them."""
    shape = Shape(dtype)
    a, s, b, t = given = [parameter(n, shape, name) for n, name in enumerate("asbt")]
    apart = build.pointwise("abs", build.pointwise("subtract", a, b))
    same = build.pointwise("compare", a, b, direction="EQ")  # infinities, too
    apart = make("select", shape, (same, build.scalar(0.0, dtype), apart))
    scale = build.pointwise("exponential", build.pointwise("negate", apart))
    first = build.pointwise("add", s, build.pointwise("multiply", t, scale))
    second = build.pointwise("add", build.pointwise("multiply", s, scale), t)
    larger = build.pointwise("compare", a, b, direction="GE")
    total = make("select", shape, (larger, first, second))
    parts = (build.pointwise("maximum", a, b), total)
    return assemble("online", given, build.tuple_of(parts))
