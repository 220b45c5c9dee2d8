"""Common subexpression elimination, for instructions and computations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ...nodes import Computation, HloModule, Instruction
from ...rewrite import map_computations, rebuild, relink
from ...text.canonical import canonical_text

SMALL_CONSTANT = 1 << 16
"""Constants up to this many bytes are compared by value, larger ones by identity."""

_EFFECTS = frozenset({"custom-call", "infeed", "outfeed", "send", "recv", "send-done", "recv-done"})
_RANDOM = frozenset({"rng", "rng-get-and-update-state"})
_STRUCTURE = frozenset({"parameter", "while", "conditional", "call", "after-all"})
_KEPT = _EFFECTS | _RANDOM | _STRUCTURE
"""Operations with effects or state, and others that are too rarely equal to be compared."""


def cse(module: HloModule) -> HloModule:
    """``a = f(x); b = f(x)``  ->  ``a``; also for equal constants and equal small computations"""
    return map_computations(_share_computations(module), _share_instructions)


def _share_computations(module: HloModule) -> HloModule:
    """Make all calls of computations with equal canonical text call the first of them."""
    first: dict[str, Computation] = {}
    same: dict[Computation, Computation] = {}
    for c in module.computations:
        if len(c.instructions) <= 16 and c is not module.entry:
            original = first.setdefault(canonical_text(c), c)
            if original is not c:
                same[c] = original
    if not same:
        return module
    return map_computations(module, lambda c: rebuild(c, lambda i: relink(i, same)))


def _share_instructions(computation: Computation) -> Computation:
    seen: dict[Hashable, Instruction] = {}

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode in _KEPT:
            return None
        attrs = tuple(sorted((name, _key(value)) for name, value in i.attrs.items()))
        found = seen.setdefault((i.opcode, i.shape, tuple(map(id, i.operands)), attrs), i)
        return None if found is i else found

    return rebuild(computation, rule)


def _key(value: Any) -> Any:
    match value:
        case np.ndarray() if value.nbytes <= SMALL_CONSTANT:
            return (str(value.dtype), value.shape, value.tobytes())
        case np.ndarray() | Computation():
            return id(value)
        case tuple():
            return (type(value), *map(_key, value))
        case _:
            return repr(value)
