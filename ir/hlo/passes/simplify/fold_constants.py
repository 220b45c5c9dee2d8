"""Work on constants done now, by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interp.evaluate import evaluate_computation
from ...nodes import HloModule, Instruction
from ...patterns.match import is_local, is_static
from ...rewrite import assemble, constant, map_computations, post_order, rebuild
from .fold_budget import Budget, budget

SMALL = 4096
"""Results up to this many bytes are always worth folding."""

HEAVY = 1 << 16
"""Dots, sorts and their kin are folded if operands and result have at most this many elements."""

CHEAP = frozenset({
    "reshape", "transpose", "slice", "reverse", "concatenate", "pad", "reduce", "bitcast-convert",
    "dynamic-slice", "gather",
})  # fmt: skip
"""Operations beside the element-wise ones that take as long as reading their operands does."""

SLOW = frozenset({"dot", "convolution", "reduce-window", "sort", "dynamic-update-slice"})


def fold_constants(module: HloModule) -> HloModule:
    """op(constants)  ->  constant, where the result takes no more memory than the constants do.

    Operands may be constants, broadcasts of constants and ``iota``; a broadcast or ``iota`` alone
    is left as it is, for it is computed faster than it is read. What would take more memory or
    work than ``fold_budget`` has is left as well.
    """
    left = budget(module)
    return map_computations(module, lambda c: rebuild(c, lambda i: _fold(i, left)))


def _fold(i: Instruction, left: Budget) -> Instruction | None:
    if not is_static(i) or not i.operands or not (is_local(i) or i.opcode in CHEAP | SLOW):
        return None
    leaves = _leaves(i)
    if leaves is None:
        return None
    size = sum(x.array.bytes for x in leaves)
    if i.array.bytes > max(size, SMALL) or not any(x.array.size > 1 for x in leaves):
        return None
    if i.opcode in SLOW and max(x.array.size for x in (i, *i.operands)) > HEAVY:
        return None
    return constant(value_of(i), name=i.name) if left.pays(i) else None


def _leaves(i: Instruction) -> set[Instruction] | None:
    """The constants and iotas that ``i`` is computed from; None if there is anything else."""
    leaves: set[Instruction] = set()
    for operand in i.operands:
        x = operand.operands[0] if operand.opcode == "broadcast" else operand
        if x.opcode not in ("constant", "iota") or not is_static(x):
            return None
        leaves.add(x)
    return leaves


def value_of(i: Instruction) -> np.ndarray[Any, Any]:
    """The value of an array instruction that depends on constants alone."""
    leaf = next((x for x in post_order([i]) if x.opcode == "parameter"), None)
    assert leaf is None, "the value depends on a parameter"
    return np.asarray(evaluate_computation(assemble("fold", (), i), ()))
