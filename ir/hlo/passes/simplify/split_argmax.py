"""Splitting of an argmax along the last dimension into two reductions that lanes can share.

A reduction of values with their indices keeps one pair at a time. The same result is the largest
value, and then the least index where it stands:

    (v, k) = argmax(x)  ->  v = max(x);  k = min(where(x == v or x != x, iota, highest))

A NaN is larger than any number here, and the first of equals wins; of zeros of both signs the value
is +0 (-0 for a least one), whichever came first. What a combiner does is found by
evaluating it: one that only compares values with values and indices with indices, and selects, does
the same for all values in the same order.

``x`` is read twice. What might differ a little each time it is computed is stored before, behind an
``opt-barrier``, which nothing is fused across.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ....dtypes import DType, bf16, f16, f32, f64, to_numpy
from ...interp.evaluate import evaluate_computation
from ...nodes import Computation, HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import is_splat, is_static, moves
from ...rewrite import assemble, make, map_computations, parameter, rebuild
from .shapes import is_extreme

_CHOICES = frozenset({"negate", "maximum", "minimum", "select", "copy"})
"""Operations that round nothing."""
_EXACT = _CHOICES | {"add", "subtract"}
"""Operations that give the same value each time they are computed, whatever they are fused with.

Of f16 and bf16 only ``_CHOICES`` do: what is fused stays in f32.
"""
_STORED = frozenset({"parameter", "constant", "gather"})
_SOURCES = _STORED | {"dot", "convolution", "get-tuple-element"}
_CHOOSING = frozenset({"compare", "and", "or", "not", "select", "minimum", "maximum", "tuple"})


def split_argmax(module: HloModule) -> HloModule:
    """``reduce(x, iota)``  ->  ``reduce(x)`` and ``reduce(select(x == max, iota, ..))``"""
    return map_computations(module, lambda c: rebuild(c, _split))


def _split(i: Instruction) -> Instruction | None:
    if i.opcode != "reduce" or len(i.operands) != 4:
        return None
    if not all(map(is_static, i.operands)):
        return None
    x, index, start, first = i.operands
    axis, of = x.array.rank - 1, x.array
    if tuple(i.attrs["dimensions"]) != (axis,) or not of.dims[axis]:
        return None
    if not (of.dtype in (f16, bf16, f32, f64) or of.dtype.is_int) or of.dtype.bits < 8:
        return None
    if not counts(index, axis) or not is_splat(first, 0):
        return None
    combiner = i.attrs["to_apply"]
    for low in (True, False):
        if is_extreme(start, low=low) and keeps_first(combiner, of.dtype, index.array.dtype, low):
            x = x if _is_steady(x) else make("opt-barrier", of, (x,))
            return _two(x, index, start, axis, "maximum" if low else "minimum")
    return None


def counts(index: Instruction, axis: int) -> bool:
    """True if the elements of ``index`` are their places along ``axis``, none of which wraps."""
    dtype, dims = index.array.dtype, index.array.dims
    if not dtype.is_int or dtype.bits < 8 or dims[axis] - 1 > np.iinfo(to_numpy(dtype)).max:
        return False
    if index.opcode == "broadcast" and tuple(index.attrs["dimensions"]) == (axis,):
        return index.operands[0].opcode == "iota"
    if index.opcode == "reshape" and index.array.size == dims[axis]:
        return index.operands[0].opcode == "iota" and index.operands[0].array.rank == 1
    return index.opcode == "iota" and int(index.attrs["iota_dimension"]) == axis


def _is_steady(x: Instruction, depth: int = 8) -> bool:
    """True if computing ``x`` twice, in different loops, gives the same values."""
    narrow = x.array.dtype in (f16, bf16)
    if x.opcode in (_STORED if narrow else _SOURCES):
        return True
    plain = x.opcode in (_CHOICES if narrow else _EXACT) or moves(x)
    return plain and depth > 0 and all(_is_steady(o, depth - 1) for o in x.operands)


def keeps_first(c: Computation, value: DType, index: DType, low: bool) -> bool:
    """True if the combiner keeps the largest (or least) value, NaN before any, the first of
    equals.
    """
    if len(c.parameters) != 4 or not all(map(_chooses, c.instructions)):
        return False
    numbers = _samples(value)
    lowest = min(numbers) if low else max(numbers)
    seconds = [*numbers, math.nan] if value.is_float else numbers
    pairs = [(a, 0, b, 1) for a, b in itertools.product(seconds, seconds)]
    return all(
        _same(c, value, index, case, low)
        for case in [*pairs, *((lowest, 0, b, 0) for b in seconds)]
    )


def _samples(dtype: DType) -> list[Any]:
    if dtype.is_float:
        return [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf]
    limits = np.iinfo(to_numpy(dtype))
    return [int(limits.min), 1, 2, int(limits.max)]


def _chooses(i: Instruction) -> bool:
    """True if ``i`` depends on the order of the values, and on that of the indices, alone."""
    if i.opcode == "parameter":
        return True
    if i.opcode in ("compare", "minimum", "maximum"):
        kinds = [int(o.attrs["number"]) % 2 for o in i.operands if o.opcode == "parameter"]
        return kinds in ([0, 0], [1, 1]) and (i.opcode == "compare" or kinds == [1, 1])
    return i.opcode in _CHOOSING


def _same(
    c: Computation, value: DType, index: DType, case: tuple[Any, int, Any, int], low: bool
) -> bool:
    a, i, b, j = case
    v, k = to_numpy(value), to_numpy(index)
    made = evaluate_computation(c, [v.type(a), k.type(i), v.type(b), k.type(j)])
    assert isinstance(made, tuple)
    later = (b > a if low else b < a) or (math.isnan(b) and not math.isnan(a))
    best, at = (b, j) if later and not math.isnan(a) else (a, i)
    found = float(np.asarray(made[0]))
    same = math.isnan(found) if math.isnan(best) else found == float(v.type(best))
    return same and int(np.asarray(made[1])) == at


def _two(
    x: Instruction, index: Instruction, start: Instruction, axis: int, opcode: str
) -> Instruction:
    best = _reduce(opcode, x, start, axis)
    spread = build.broadcast(best, tuple(range(axis)), x.array.dims)
    here = build.pointwise("compare", x, spread, direction="EQ")
    if x.array.dtype.is_float:
        here = build.pointwise("or", here, build.pointwise("compare", x, x, direction="NE"))
    dtype = index.array.dtype
    last = int(np.iinfo(to_numpy(dtype)).max)
    places = build.pointwise("select", here, index, build.full(last, dtype, x.array.dims))
    at = _reduce("minimum", places, build.scalar(last, dtype), axis)
    return build.tuple_of((best, at))


def _reduce(opcode: str, x: Instruction, start: Instruction, axis: int) -> Instruction:
    dtype = x.array.dtype
    a, b = (parameter(n, Shape(dtype), name) for n, name in enumerate(("a", "b")))
    body = assemble(f"{opcode}_{dtype}", (a, b), make(opcode, Shape(dtype), (a, b)))
    shape = Shape(dtype, x.array.dims[:axis])
    return make("reduce", shape, (x, start), dimensions=(axis,), to_apply=body)
