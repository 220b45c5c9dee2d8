"""Argmax with a combiner that takes its terms in any order, for threads that share them.

A combiner that keeps the first of equals, or the first NaN, as it meets them needs its terms in
order. Their places are in order as well, so that comparing those says the same:

    (v, k) = argmax(x)  ->  the same of: a wins if it is beyond b, or its equal and i < j

A NaN is beyond all numbers and the equal of a NaN. Which combiners are meant is found by evaluating
them, as ``split_argmax`` does.
"""

from __future__ import annotations

from ....dtypes import DType, pred
from ...nodes import Computation, HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import is_splat, is_static
from ...rewrite import assemble, make, map_computations, parameter, rebuild
from .shapes import is_extreme
from .split_argmax import counts, keeps_first


def order_argmax(module: HloModule) -> HloModule:
    """``reduce(x, iota), to_apply=first``  ->  ``reduce(x, iota), to_apply=least``"""
    return map_computations(module, lambda c: rebuild(c, _ordered))


def _ordered(i: Instruction) -> Instruction | None:
    if i.opcode != "reduce" or len(i.operands) != 4 or len(i.attrs["dimensions"]) != 1:
        return None
    x, index, start, first = i.operands
    (axis,) = i.attrs["dimensions"]
    of, at = x.array.dtype, index.array.dtype
    if not all(map(is_static, i.operands)) or not x.array.dims[axis]:
        return None
    if not (of.is_float or of.is_int) or of.bits < 8:
        return None
    if not counts(index, axis) or not is_splat(first, 0):
        return None
    for low in (True, False):
        if is_extreme(start, low=low) and keeps_first(i.attrs["to_apply"], of, at, low):
            made = _least(of, at, "GT" if low else "LT")
            return make("reduce", i.shape, i.operands, name=i.name, **{**i.attrs, "to_apply": made})
    return None


def _least(of: DType, at: DType, direction: str) -> Computation:
    """Return the combiner that keeps the best value at its least place, whichever comes first."""
    types = {"a": of, "i": at, "b": of, "j": at}
    given = [parameter(n, Shape(t), name) for n, (name, t) in enumerate(types.items())]
    a, i, b, j = given
    wins = [_beyond(x, y, direction) for x, y in ((a, b), (b, a))]
    here = build.pointwise("and", wins[0], make("not", Shape(pred), (wins[1],)))
    same = build.pointwise("compare", *wins, direction="EQ")
    before = build.pointwise("compare", i, j, direction="LT")
    first = build.pointwise("or", here, build.pointwise("and", same, before))
    parts = [make("select", Shape(x.array.dtype), (first, x, y)) for x, y in ((a, b), (i, j))]
    root = build.tuple_of(parts)
    return assemble(f"first_{direction.lower()}_{of}_{at}", given, root)


def _beyond(x: Instruction, y: Instruction, direction: str) -> Instruction:
    """True if ``x`` is larger (or less) than ``y``, or NaN."""
    beyond = build.pointwise("compare", x, y, direction=direction)
    if not x.array.dtype.is_float:
        return beyond
    return build.pointwise("or", beyond, build.pointwise("compare", x, x, direction="NE"))
