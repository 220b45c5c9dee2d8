"""Values that products read in bf16 and others in f32, as residuals are: stored once, in bf16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .....dtypes import bf16, f32
from ....nodes import Computation, Instruction, Shape
from ....patterns import build
from ....rewrite import rebuild, users

VIEWS = frozenset({"reshape", "transpose"})


def stored_once(computation: Computation) -> Computation:
    """Return a computation in which all readers of a value read what its products do.

    Such values were stored in f32 and in bf16, three times the bytes. Those in a tuple, as results
    and what a loop carries, are stored in f32 in any case and stay. The computation itself where
    there are none.
    """
    readers = users(computation)
    twice = {
        v.name
        for v in computation.instructions
        if _is_made(v) and any(map(_rounds, readers[v])) and _is_added(v, computation, readers)
    }

    def rule(i: Instruction) -> Instruction | None:
        if i.name in twice:
            return build.convert(build.convert(i, bf16), f32)
        if _rounds(i) and _widens(i.operands[0]):
            return i.operands[0].operands[0]
        return None

    return rebuild(computation, rule) if twice else computation


def _is_made(v: Instruction) -> bool:
    """True for an array of f32 that the computation makes."""
    match v:
        case Instruction(opcode="constant" | "parameter"):
            return False
        case Instruction(shape=Shape(dtype=dtype)):
            return dtype == f32
        case _:
            return False


def _is_added(
    v: Instruction, computation: Computation, readers: Mapping[Instruction, Sequence[Instruction]]
) -> bool:
    """True if others than products read a value, and none of them stores it as it is."""
    others = [r for r in _beyond_views(v, readers) if not _rounds(r)]
    return (
        bool(others)
        and all(isinstance(r.shape, Shape) and r.opcode not in VIEWS for r in others)
        and v is not computation.root
    )


def _beyond_views(
    v: Instruction, readers: Mapping[Instruction, Sequence[Instruction]]
) -> Iterator[Instruction]:
    """Yield what reads a value or views of it; a view that nothing reads, as a root, itself."""
    for r in readers[v]:
        if r.opcode in VIEWS and readers[r]:
            yield from _beyond_views(r, readers)
        else:
            yield r


def _rounds(i: Instruction) -> bool:
    return i.opcode == "convert" and i.array.dtype == bf16 and i.operands[0].array.dtype == f32


def _widens(i: Instruction) -> bool:
    return i.opcode == "convert" and i.array.dtype == f32 and i.operands[0].array.dtype == bf16
