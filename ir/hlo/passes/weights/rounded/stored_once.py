"""Values that products read in bf16 and others in f32, as residuals are: stored once, in bf16."""

from __future__ import annotations

from .....dtypes import bf16, f32
from ....nodes import Computation, Instruction, Shape
from ....patterns import build
from ....rewrite import rebuild, users


def stored_once(computation: Computation) -> Computation:
    """Return a computation in which all readers of a value read what its products do.

    Such values were stored in f32 and in bf16, three times the bytes. The computation itself where
    there are none.
    """
    readers = users(computation)
    twice = {
        v.name
        for v in computation.instructions
        if _is_made(v, computation) and len({*map(_rounds, readers[v])}) == 2
    }

    def rule(i: Instruction) -> Instruction | None:
        if i.name in twice:
            return build.convert(build.convert(i, bf16), f32)
        if _rounds(i) and _widens(i.operands[0]):
            return i.operands[0].operands[0]
        return None

    return rebuild(computation, rule) if twice else computation


def _is_made(v: Instruction, computation: Computation) -> bool:
    """True for an array of f32 that is stored for others in the computation alone."""
    match v:
        case Instruction(opcode="constant" | "parameter"):
            return False
        case Instruction(shape=Shape(dtype=dtype)):
            return dtype == f32 and v is not computation.root
        case _:
            return False


def _rounds(i: Instruction) -> bool:
    return i.opcode == "convert" and i.array.dtype == bf16 and i.operands[0].array.dtype == f32


def _widens(i: Instruction) -> bool:
    return i.opcode == "convert" and i.array.dtype == f32 and i.operands[0].array.dtype == bf16
