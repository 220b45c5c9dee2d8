"""The least and the largest values that arithmetic on sizes can give, whatever values decide them.

Shapes are fixed at their bounds, so that a shape made of such sizes needs no more than these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import pred
from ...hlo.interp.evaluate import evaluate_computation
from ...hlo.meaning.values import simple_op
from ...hlo.nodes import Computation, Instruction, Shape
from ...hlo.rewrite import constant, with_operands
from .graph import MAX_KNOWN, Graph
from .term import Term

Extremes: TypeAlias = "tuple[Array, Array]"

_RISING = frozenset(
    {
        "add",
        "broadcast",
        "concatenate",
        "convert",
        "maximum",
        "minimum",
        "reshape",
        "slice",
        "transpose",
    }
)
"""Operations whose results never fall where an operand rises."""
_OTHERS = frozenset({"compare", "divide", "multiply", "reduce", "select", "subtract"})


def extremes(x: Term) -> Extremes | None:
    """Return the least and the largest elements that an array of sizes can have; None where more
    than sizes and constants decide them."""
    assert isinstance(x.site, Graph)
    return _extremes(x.site, x.value, {})


def _extremes(
    graph: Graph, i: Instruction, seen: dict[Instruction, Extremes | None]
) -> Extremes | None:
    if i not in seen:
        seen[i] = None if not _is_small(i) else _found(graph, i, seen)
    return seen[i]


def _is_small(i: Instruction) -> bool:
    match i.shape:
        case Shape(dtype=dtype, dynamic=()) as shape:
            return (dtype.is_int or dtype == pred) and shape.size <= MAX_KNOWN
        case _:
            return False


def _found(
    graph: Graph, i: Instruction, seen: dict[Instruction, Extremes | None]
) -> Extremes | None:
    if (known := graph.known(i)) is not None:
        return known, known
    if i.opcode == "get-dimension-size":
        (axis,) = i.attrs["dimensions"]
        return np.asarray(0, np.int32), np.asarray(i.operands[0].array.dims[axis], np.int32)
    if i.opcode not in _RISING | _OTHERS:
        return None
    given = [_extremes(graph, o, seen) for o in i.operands]
    low, high = ([e[k] for e in given if e is not None] for k in (0, 1))
    if len(low) < len(given):
        return None
    opcode = i.opcode if i.opcode != "reduce" else simple_op(i.attrs["to_apply"])
    match opcode:
        case "compare":
            return _compared(i.attrs["direction"], low, high)
        case "select":
            return _either(low, high)
        case "subtract":
            (low[1], high[1]) = (high[1], low[1])
        case "multiply" | "divide":
            least = 1 if opcode == "divide" else 0
            fixed = opcode == "multiply" or np.array_equal(low[1], high[1])
            if not fixed or (low[0] < 0).any() or (low[1] < least).any():
                return None
        case _ if opcode not in _RISING:
            return None
    return _applied(i, low), _applied(i, high)


def _compared(direction: str, low: Sequence[Array], high: Sequence[Array]) -> Extremes:
    """True in the first array where a comparison surely holds, in the second where it may."""
    (a, b), (most_a, most_b) = low, high
    match direction:
        case "LT":
            return most_a < b, a < most_b
        case "LE":
            return most_a <= b, a <= most_b
        case "GT" | "GE":
            turned = {"GT": "LT", "GE": "LE"}[direction]
            return _compared(turned, low[::-1], high[::-1])
    same = (a == most_a) & (b == most_b) & (a == b)
    meet = (most_a >= b) & (most_b >= a)
    return (same, meet) if direction == "EQ" else (~meet, ~same)


def _either(low: Sequence[Array], high: Sequence[Array]) -> Extremes:
    """The extremes of a choice: of both sides where it is open."""
    surely, maybe = low[0], high[0]
    least, most = np.minimum(low[1], low[2]), np.maximum(high[1], high[2])
    known = surely == maybe
    return (
        np.where(known, np.where(surely, low[1], low[2]), least),
        np.where(known, np.where(surely, high[1], high[2]), most),
    )


def _applied(i: Instruction, operands: Sequence[Array]) -> Array:
    inside = tuple(constant(o) for o in operands)
    again = with_operands(i, inside)
    whole = Computation("extreme", (), (*inside, again), again)
    return np.asarray(evaluate_computation(whole, []))
