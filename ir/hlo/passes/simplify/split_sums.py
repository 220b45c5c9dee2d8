"""Splitting of long sums over columns into steps, for accuracy.

A sum over many rows, accumulated in f32, loses a digit with every factor of ten in their number.
Summing neighboring rows first, and then their sums, loses almost nothing and has more parallelism.
Sums along the fastest dimension are not split: vector lanes already keep several partial sums.
"""

from __future__ import annotations

from math import prod

from ....dtypes import f32
from ...meaning.values import simple_op
from ...nodes import HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import all_static
from ...rewrite import make, map_computations, rebuild
from ..canonical.dot import sum_over

LONG = 1024  # rows from which a sum is split
FIRST = 32  # least number of rows in the first step


def split_sums(module: HloModule) -> HloModule:
    """``reduce(x), dimensions={0,1,2}``  ->  ``reduce(reduce(x), dimensions={2}), ..={0,1}``"""
    return map_computations(module, lambda c: rebuild(c, _split))


def _split(i: Instruction) -> Instruction | None:
    if i.opcode != "reduce" or len(i.operands) != 2 or not all_static(i):
        return None
    x, start = i.operands
    summed = sorted(i.attrs["dimensions"])
    of, rows = x.array, prod(x.array.dims[d] for d in summed)
    if rows < LONG or not of.dtype.is_float or of.dtype.bits > 32 or of.rank - 1 in summed:
        return None
    if simple_op(i.attrs["to_apply"]) != "add" or i.array.dtype != of.dtype:
        return None
    first = _first(of.dims, summed)
    if len(first) == len(summed):
        return None
    if of.dtype.bits < f32.bits:
        return _split_in_f32(i)
    kept = [d for d in range(of.rank) if d not in first]
    shape = Shape(of.dtype, tuple(of.dims[d] for d in kept))
    apply = {"to_apply": i.attrs["to_apply"]}
    zero = build.scalar(0, of.dtype)
    part = make("reduce", shape, (x, zero), dimensions=tuple(first), **apply)
    rest = tuple(kept.index(d) for d in summed if d not in first)
    whole = make("reduce", i.shape, (part, start), name=i.name, dimensions=rest, **apply)
    return _split(whole) or whole


def _split_in_f32(i: Instruction) -> Instruction:
    """Split a sum of a narrower float, accumulating in f32 so that partial sums are not rounded."""
    x, start = (build.convert(o, f32) for o in i.operands)
    shape = Shape(f32, i.array.dims)
    axes = tuple(sorted(i.attrs["dimensions"]))
    add = sum_over(x, axes).attrs["to_apply"]
    whole = make("reduce", shape, (x, start), dimensions=axes, to_apply=add)
    return build.convert(_split(whole) or whole, i.array.dtype)


def _first(dims: tuple[int, ...], summed: list[int]) -> list[int]:
    """Return the innermost summed dimensions, as many as have at least ``FIRST`` rows."""
    first: list[int] = []
    for d in reversed(summed):
        first.insert(0, d)
        if prod(dims[k] for k in first) >= FIRST:
            break
    return first
