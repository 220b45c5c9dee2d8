"""Weights that follow from constants, but take more memory than these, as constants.

``dot(x, f(codes))  ->  dot(x, constant)``: as constant folding does with what takes no more memory.
A product waits for its weights in every call, and computing them takes longer than reading them.
Those in a narrow form that kernels read stay as they are.
"""

from __future__ import annotations

from .....accuracy import LEAST_WEIGHTS
from ....nodes import HloModule, Instruction
from ....patterns.nibbles import nibbles_of
from ....patterns.parts import parts_of
from ....rewrite import constant, map_computations, post_order, rebuild, with_operands
from ...simplify.fold_constants import is_known, value_of

GROWTH = 16
"""Bytes of weights for each byte that they follow from; codes of 2 bits become f32."""


def computed_weights(module: HloModule) -> HloModule:
    """Return an optimized module whose products' known operands are constants."""
    known: dict[Instruction, Instruction] = {}

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode not in ("dot", "convolution"):
            return None
        for o in i.operands:
            if o not in known:
                known[o] = _computed(o)
        return with_operands(i, tuple(known[o] for o in i.operands))

    return map_computations(module, lambda c: rebuild(c, rule))


def _computed(x: Instruction) -> Instruction:
    """Return an operand as a constant; itself if it is not known, narrow, or made of little."""
    if x.opcode in ("constant", "parameter") or _is_narrow(x) or not is_known(x):
        return x
    read = sum(i.array.bytes for i in post_order([x]) if i.opcode == "constant")
    if x.array.size < LEAST_WEIGHTS or x.array.bytes > GROWTH * read:
        return x
    return constant(value_of(x), name=x.name)


def _is_narrow(x: Instruction) -> bool:
    """True for a narrow constant as FuseOps lets products read it."""
    if parts_of(x) is not None or nibbles_of(x) is not None:
        return True
    return x.opcode == "convert" and x.operands[0].opcode == "constant"
