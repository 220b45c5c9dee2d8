"""FuseOps, before products: those of each block of the terms, scaled, and summed up.

The kernel keeps the sums of one block in registers, scales them there and adds them to those of the
blocks before.
"""

from __future__ import annotations

from ...dtypes import s32
from ..nodes import Instruction
from ..ops.definition import Pattern
from ..passes.canonical.dot import is_canonical, is_sum_over
from .anchors import grow_epilogue
from .kinds import dims, is_decoding, pattern
from .state import State

KIND = "blocked"
"""The name of such sums among the groups that only some targets take."""


def fuse_blocked(state: State) -> None:
    """Start a group for each sum over the batches of a product, with what scales it."""
    for i in reversed(state.computation.instructions):
        if not _sums_batches(i) or not state.is_free_to_join(i):
            continue
        inside = _scaled_product(state, i)
        if not inside:
            continue
        g = state.start("dot", i)
        for m in inside:
            state.take_inside(g, m)
        grow_epilogue(state, g)


def _sums_batches(i: Instruction) -> bool:
    """True for a sum over the first of three dimensions."""
    return is_sum_over(i, (0,)) and len(dims(i.operands[0])) == 3


def _scaled_product(state: State, total: Instruction) -> list[Instruction]:
    """Return the element-wise work that a sum takes and its product; empty if it is not that."""
    found: list[Instruction] = []
    waiting = [total.operands[0]]
    products = 0
    while waiting:
        i = waiting.pop(0)
        inside = all(u is total or u in found for u in state.users[i])
        if i in found or i in state.clones or not inside or not state.is_free_to_join(i):
            continue
        if is_canonical(i) and _multiplies_codes(i):
            products += 1
            found.append(i)
        elif pattern(i) is Pattern.ELEMENTWISE:
            found.append(i)
            waiting += i.operands
    return found if products == 1 else []


def _multiplies_codes(i: Instruction) -> bool:
    """True for a product with a narrow constant."""
    weights = i.operands[1]
    return is_decoding(weights) or (weights.opcode == "constant" and i.array.dtype == s32)
