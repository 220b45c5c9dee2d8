"""Constant folding by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interp.evaluate import evaluate_computation
from ...nodes import HloModule, Instruction
from ...patterns.match import is_local, is_static
from ...rewrite import assemble, constant, map_computations, post_order, rebuild
from .fold_budget import FoldBudget, budget, work

SMALL = 4096
"""Results up to this many bytes are always worth folding."""

HEAVY = 1 << 16
"""``SLOW`` operations are folded if operands and result have at most this many elements."""

PRODUCT = 1 << 30
"""Multiply-adds up to which a dot is folded: NumPy does as many in less than 50 ms."""

_MOVES = frozenset({"reshape", "transpose", "slice", "reverse", "concatenate", "pad"})
CHEAP = _MOVES | {"reduce", "bitcast-convert", "dynamic-slice", "gather"}
"""Operations, other than element-wise ones, that take no longer than reading their operands."""

SLOW = frozenset({"convolution", "reduce-window", "sort", "dynamic-update-slice"})
"""Operations that take longer than that."""

FOLDED = CHEAP | SLOW | {"dot"}


def fold_constants(module: HloModule) -> HloModule:
    """``op(constants)``  ->  ``constant``, if it takes no more memory than the constants

    Operands may be constants, broadcasts of constants and ``iota``, and of a reduction constants
    that are converted, as codes of weights are whose columns are summed. A broadcast or ``iota`` by
    itself, under whatever shape, is not folded, since computing it is faster than reading it, nor
    are codes of 8 bits that become floats, nor anything that exceeds the budget of ``fold_budget``.
    """
    left = budget(module)
    return map_computations(module, lambda c: rebuild(c, lambda i: _fold(i, left)))


def _fold(i: Instruction, left: FoldBudget) -> Instruction | None:
    if not is_static(i) or not i.operands or not (is_local(i) or i.opcode in FOLDED):
        return None
    leaves = None if _decodes(i) or _counts(i) else _leaves(i)
    if leaves is None:
        return None
    size = sum(x.array.bytes for x in leaves)
    if i.array.bytes > max(size, SMALL) or not any(x.array.size > 1 for x in leaves):
        return None
    if i.opcode in SLOW and max(x.array.size for x in (i, *i.operands)) > HEAVY:
        return None
    if i.opcode == "dot" and work(i) > PRODUCT:
        return None
    given = sum(x.array.bytes for x in leaves if x.opcode == "constant")
    return constant(value_of(i), name=i.name) if left.spend(i, given) else None


def _decodes(i: Instruction) -> bool:
    """True for codes of 8 bits that become floats: a product may multiply the codes instead."""
    if i.opcode != "convert" or not i.array.dtype.is_float or i.array.rank < 2:
        return False
    codes = i.operands[0].array.dtype
    return codes.bits == 8 and (codes.is_int or codes.is_float)


def _counts(i: Instruction) -> bool:
    """True for an ``iota`` with dimensions of size 1."""
    if i.opcode != "reshape" or i.operands[0].opcode != "iota" or not is_static(i.operands[0]):
        return False
    line = i.operands[0].array
    return line.rank == 1 and line.size in i.array.dims


def _leaves(i: Instruction) -> set[Instruction] | None:
    """Return the constants and iotas that ``i`` is computed from; None if it needs others."""
    leaves: set[Instruction] = set()
    for operand in i.operands:
        through = operand.opcode == "broadcast" or _counts(operand)
        through |= operand.opcode == "convert" and i.opcode == "reduce"
        x = operand.operands[0] if through else operand
        if x.opcode not in ("constant", "iota") or not is_static(x):
            return None
        leaves.add(x)
    return leaves


def is_known(x: Instruction) -> bool:
    """True if a value follows from constants, by operations that take no longer than reading."""
    return all(
        is_static(i) and (i.opcode in _LEAVES or is_local(i) or i.opcode in CHEAP)
        for i in post_order([x])
    )


_LEAVES = frozenset({"constant", "iota", "broadcast"})


def value_of(i: Instruction) -> np.ndarray[Any, Any]:
    """Return the value of an array instruction that depends on constants only."""
    leaf = next((x for x in post_order([i]) if x.opcode == "parameter"), None)
    assert leaf is None, "the value depends on a parameter"
    return np.asarray(evaluate_computation(assemble("fold", (), i), ()))
