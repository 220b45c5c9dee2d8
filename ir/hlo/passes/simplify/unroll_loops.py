"""Short loops of element-wise work, written out: their iterations become one pass over memory."""

from __future__ import annotations

from ...nodes import Computation, HloModule, Instruction
from ...ops.definition import Pattern
from ...ops.registry import definition
from ...patterns.loops import trip_count
from ...patterns.match import is_static
from ...rewrite import map_computations, rebuild
from ..prepare.inline_calls import inline

TRIPS = 8
"""Most iterations of a loop that are written out."""

LARGEST = 512
"""Most instructions that a loop becomes."""

_PLACES = (Pattern.ALIAS, Pattern.BROADCAST, Pattern.ELEMENTWISE, Pattern.INJECTIVE)


def unroll_loops(module: HloModule) -> HloModule:
    """``while (i < 3) x = f(x)``  ->  ``f(f(f(x)))``, where f works on elements alone

    As the rounds of JAX's random bits: each iteration alone writes its state to memory, and copies
    it.
    """
    return map_computations(module, lambda c: rebuild(c, _unrolled))


def _unrolled(i: Instruction) -> Instruction | None:
    if i.opcode != "while" or i.operands[0].opcode != "tuple":
        return None
    trips, body = trip_count(i), i.attrs["body"]
    if trips is None or trips > TRIPS or not _is_pointwise(body):
        return None
    if trips * len(body.instructions) > LARGEST:
        return None
    state = i.operands[0]
    for _ in range(trips):
        state = inline(body, (state,))
    return state


def _is_pointwise(body: Computation) -> bool:
    """True if every instruction computes, makes or places elements of arrays."""
    kinds = ((i, definition(i.opcode)) for i in body.instructions)
    return all(
        op.pattern in _PLACES and not op.side_effect and (op.structure or is_static(i))
        for i, op in kinds
    )
