"""Arrays whose elements are repeated along a dimension, and what they repeat."""

from __future__ import annotations

import math

from ...nodes import Instruction, Shape
from ...ops.registry import definition
from ...patterns import build
from ...patterns.match import is_pointwise, segments, splat
from ...rewrite import make

STEPS = 16
"""Most instructions in a row that are looked through."""


def repetitions(x: Instruction, d: int, steps: int = STEPS) -> int:
    """Return how many neighbors along dimension ``d`` are equal for certain, from the first on.

    ``x[.., n, ..] = y[.., n // g, ..]`` for the ``g`` that is returned; 1 if nothing is known.
    """
    if not steps or x.array.dims[d] == 1 or splat(x) is not None:
        return 1
    match x.opcode:
        case "broadcast":
            return 1 if d in x.attrs.get("dimensions", ()) else x.array.dims[d]
        case "reshape":
            inner = _innermost(x, d)
            return 1 if inner is None else repetitions(x.operands[0], inner, steps - 1)
        case opcode if definition(opcode).permutes:
            return repetitions(x.operands[0], x.attrs["dimensions"][d], steps - 1)
        case _ if is_pointwise(x):
            rest = [o for o in x.operands if splat(o) is None]
            return math.gcd(*(repetitions(o, d, steps - 1) for o in rest)) if rest else 1
        case _:
            return 1


def once(x: Instruction, d: int, g: int) -> Instruction:
    """Return what ``x`` repeats ``g`` times along dimension ``d``; `repetitions` allows ``g``."""
    dims = (*x.array.dims[:d], x.array.dims[d] // g, *x.array.dims[d + 1 :])
    if (value := splat(x)) is not None:
        return build.full(value, x.array.dtype, dims)
    match x.opcode:
        case "broadcast":
            return build.broadcast(x.operands[0], x.attrs["dimensions"], dims)
        case "reshape":
            inner = _innermost(x, d)
            assert inner is not None
            return build.reshape(once(x.operands[0], inner, g), dims)
        case opcode if definition(opcode).permutes:
            order = x.attrs["dimensions"]
            return build.transpose(once(x.operands[0], order[d], g), order)
        case _:
            operands = tuple(once(o, d, g) for o in x.operands)
            return make(x.opcode, Shape(x.array.dtype, dims), operands, **x.attrs)


def _innermost(reshape: Instruction, d: int) -> int | None:
    """Return the last of the operand's dimensions that a reshape merges into ``d``, if it does."""
    runs = segments(reshape.operands[0].array.dims, reshape.array.dims) or ()
    return next((old[-1] for old, new in runs if new == (d,)), None)
