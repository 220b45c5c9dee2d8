"""Bounds of integer values, as far as they follow from the graph: ``iota < 512`` is decided here.

Frameworks guard every lookup against negative and too large indices. Where the indices are an
``iota`` or a constant the guard is always true, and folding it frees the gather from its mask.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from ...dtypes import DType
from ..nodes import Instruction
from .match import is_static, moves, splat

Interval = tuple[int, int]

DEPTH = 8
"""A bound is looked for in so many instructions above."""


def interval(i: Instruction, depth: int = DEPTH) -> Interval | None:
    """Return the least and greatest value of elements of ``i``; None if nothing is known."""
    if not is_static(i) or not (i.array.dtype.is_int or i.array.dtype.kind == "pred"):
        return None
    if (value := splat(i)) is not None:
        return int(value), int(value)
    own = limits(i.array.dtype)
    if depth == 0 or 0 in i.array.dims:
        return own
    found = _bounds(i, depth - 1)
    if found is None or found[0] < own[0] or found[1] > own[1]:
        return own
    return found


def limits(dtype: DType) -> Interval:
    """Return the least and greatest value of an integer type or of pred."""
    match dtype.kind:
        case "pred":
            return 0, 1
        case "unsigned":
            return 0, (1 << dtype.bits) - 1
        case _:
            return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _bounds(i: Instruction, depth: int) -> Interval | None:
    match i.opcode:
        case "iota":
            return 0, i.array.dims[i.attrs["iota_dimension"]] - 1
        case "constant":
            literal = i.attrs["literal"]
            return int(literal.min()), int(literal.max())
        case "gather" | "dynamic-slice" | "convert":
            return interval(i.operands[0], depth)
        case _ if moves(i):
            return interval(i.operands[0], depth)
        case "pad" | "concatenate":
            return _hull([interval(o, depth) for o in i.operands])
        case "select":
            return _hull([interval(o, depth) for o in i.operands[1:]])
        case "add" | "subtract" | "multiply" | "maximum" | "minimum" | "clamp" | "remainder":
            parts = [interval(o, depth) for o in i.operands]
            known = [p for p in parts if p is not None]
            return _arithmetic(i.opcode, known) if len(known) == len(parts) else None
        case _:
            return None


def _hull(parts: list[Interval | None]) -> Interval | None:
    known = [p for p in parts if p is not None]
    if len(known) < len(parts) or not known:
        return None
    return min(p[0] for p in known), max(p[1] for p in known)


def _arithmetic(opcode: str, parts: list[Interval]) -> Interval | None:
    (a, b), (c, d) = parts[0], parts[1]
    match opcode:
        case "add":
            return a + c, b + d
        case "subtract":
            return a - d, b - c
        case "multiply":
            corners = (a * c, a * d, b * c, b * d)
            return min(corners), max(corners)
        case "maximum":
            return max(a, c), max(b, d)
        case "minimum":
            return min(a, c), min(b, d)
        case "remainder":
            return (0, min(b, d - 1)) if a >= 0 and c > 0 else None
        case _:
            low, high = parts[0], parts[2]
            return min(max(c, low[0]), high[0]), min(max(d, low[1]), high[1])


def decide(compare: Instruction) -> bool | None:
    """Return an integer comparison's result where it is the same for all elements, else None."""
    left, right = compare.operands
    kinds = {left.array.dtype.kind, right.array.dtype.kind}
    if not kinds <= {"signed", "unsigned", "pred"}:
        return None
    direction = compare.attrs["direction"]
    if left is right:
        return direction in ("EQ", "GE", "LE")
    a, b = interval(left), interval(right)
    if a is None or b is None:
        return None
    match direction:
        case "EQ" | "NE":
            apart = a[1] < b[0] or b[1] < a[0]
            return (direction == "NE") if apart else None
        case "LT" | "GE":
            return _ordered(a, b, operator.lt, flip=direction == "GE")
        case _:
            return _ordered(a, b, operator.le, flip=direction == "GT")


def _ordered(
    a: Interval, b: Interval, less: Callable[[int, int], bool], *, flip: bool
) -> bool | None:
    """True if ``less`` holds for all pairs (True) or for none (False); ``flip`` negates."""
    if less(a[1], b[0]):
        return not flip
    if not less(a[0], b[1]):
        return flip
    return None
