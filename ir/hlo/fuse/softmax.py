"""Softmax in a group: a row is multiplied by the reciprocal of its sum instead of divided by it.

    exp(x - max(x)) / sum(exp(x - max(x)))  ->  exp(x - max(x)) * (1 / sum(exp(x - max(x))))

One term of such a sum is exactly 1, so the sum is at least 1 or NaN, and its reciprocal is a normal
number or NaN: the product is within 1.5 units in the last place of the quotient, while the sum
itself is rounded more often than that. Any other quotient stays a division.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...dtypes import f32
from ..meaning.values import simple_op
from ..nodes import Instruction
from ..ops.definition import Pattern
from ..patterns.match import is_splat
from ..rewrite import constant, make, rebuild
from .groups import Fusion, Group
from .kinds import is_unit_view, pattern

_LEAST = float(np.finfo(np.float32).min)
_STARTS = {"add": (0.0,), "maximum": (-np.inf, _LEAST)}
"""What the reductions may start with, so that one term of the sum is 1."""


def multiply_by_reciprocals(fusion: Fusion) -> Fusion:
    """Return the fusion with the divisions of its softmaxes done once a row."""
    groups = tuple(map(_with_reciprocals, fusion.groups))
    if all(a is b for a, b in zip(groups, fusion.groups, strict=True)):
        return fusion
    return replace(fusion, groups=groups)


def _with_reciprocals(group: Group) -> Group:
    c = rebuild(group.computation, _rule)
    return group if c is group.computation else replace(group, computation=c)


def _rule(i: Instruction) -> Instruction | None:
    if i.opcode != "divide" or i.array.dtype != f32:
        return None
    weights, spread = i.operands
    sums = _per_row(spread, weights, "add")
    if sums is None or sums.operands[0] is not weights or weights.opcode != "exponential":
        return None
    shifted = weights.operands[0]
    if shifted.opcode != "subtract":
        return None
    most = _per_row(shifted.operands[1], weights, "maximum")
    if most is None or most.operands[0] is not shifted.operands[0]:
        return None
    one = make("broadcast", sums.shape, (constant(np.array(1, np.float32)),), dimensions=())
    reciprocal = make("divide", sums.shape, (one, sums), name="reciprocal")
    axes = _axes(sums)
    row = make("broadcast", i.shape, (reciprocal,), dimensions=axes)
    return make("multiply", i.shape, (weights, row), name="scaled")


def _axes(reduce: Instruction) -> tuple[int, ...]:
    """Return the dimensions that a reduction keeps."""
    gone = reduce.attrs["dimensions"]
    return tuple(k for k in range(len(reduce.operands[0].array.dims)) if k not in gone)


def _per_row(i: Instruction, like: Instruction, by: str) -> Instruction | None:
    """Return the f32 reduction ``by`` an operation whose results ``i`` repeats along what was
    reduced; None if it is anything else. ``like`` has the shape before the reduction.
    """
    if pattern(i) is not Pattern.BROADCAST or not i.operands:
        return None
    (source,) = i.operands
    while is_unit_view(source):
        source = source.operands[0]
    if source.opcode != "reduce" or len(source.operands) != 2 or source.array.dtype != f32:
        return None
    x, start = source.operands
    if x.array.dims != like.array.dims or simple_op(source.attrs["to_apply"]) != by:
        return None
    if not any(is_splat(start, value) for value in _STARTS[by]):
        return None
    wide = _nonunit_axes(i)
    kept = tuple(k for k in _axes(source) if like.array.dims[k] != 1)
    return source if wide == kept else None


def _nonunit_axes(broadcast: Instruction) -> tuple[int, ...]:
    """Return the dimensions of a broadcast that step through its operand, none of size 1."""
    (source,), to = broadcast.operands, broadcast.attrs["dimensions"]
    return tuple(d for d, n in zip(to, source.array.dims, strict=True) if n != 1)
