"""Where a NaN shows: which results of a computation are NaN if values inside it are."""

from __future__ import annotations

from collections.abc import Collection

from ..nodes import Computation, Instruction, Shape
from ..ops.registry import definition
from ..rewrite import called

LEAVES = ("parameter", "constant")


def has_nan(i: Instruction) -> bool:
    """True if a result is an array of floats that are NaN where they should be."""
    return isinstance(i.shape, Shape) and i.array.dtype.is_float and i.array.dtype.bits >= 16


def carries_nan(i: Instruction, operand: int) -> bool:
    """True if every element of a result that depends on a NaN of an operand is NaN."""
    op = definition(i.opcode)
    if not has_nan(i) or not (op.keeps_nan or operand in op.carries_nan(i)):
        return False
    inner = [x for c in called(i) for x in c.instructions if x.opcode not in LEAVES]
    return all(carries_nan(x, n) for x in inner for n in range(len(x.operands)))


def outputs(computation: Computation) -> tuple[Instruction, ...]:
    """Return the parts of a root that is a tuple, else the root."""
    root = computation.root
    return root.operands if root.opcode == "tuple" else (root,)


def shown(computation: Computation, marked: Collection[Instruction]) -> tuple[int, ...] | None:
    """Return the outputs, by number, that depend on marked instructions, of which some elements may
    be NaN by mistake.

    All elements that are wrong then are NaN. None if that is not sure: a comparison with NaN is
    false, say.
    """
    reached, made = set(marked), outputs(computation)
    for i in computation.instructions:
        hit = [n for n, o in enumerate(i.operands) if o in reached]
        if not hit or (i is computation.root and i not in made):
            continue
        if not all(carries_nan(i, n) for n in hit):
            return None
        reached.add(i)
    return tuple(n for n, o in enumerate(made) if o in reached)
