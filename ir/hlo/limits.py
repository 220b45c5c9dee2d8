"""Limits on modules, because a short text can demand any amount of memory and time.

Limits count parts of the program, never seconds, so that a module is either always accepted or
never. An optimization that exceeds its budget is skipped; a program that exceeds a limit is refused
with ``LimitError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import LimitError
from .nodes import AnyShape, Computation, HloModule, TupleShape
from .rewrite import called

INSTRUCTIONS = 1 << 19
"""Instructions of all computations, counting callees once per call."""

CALL_DEPTH = 100
"""Depth of nested calls of computations."""

LEAVES = 1 << 16
"""Arrays in one tuple, including those of nested tuples."""

ARRAY_BYTES = 1 << 46
"""Bytes of one array in memory, and of all that a program keeps: processors address 47 bits."""


def require_limits(module: HloModule) -> None:
    """Raise ``LimitError`` for a verified module with too many instructions or too deep calls."""
    sizes: dict[Computation, int] = {}
    depths: dict[Computation, int] = {}
    total = 0
    for c in module.computations:
        size = depth = 0
        for i in c.instructions:
            callees = called(i)
            size += 1 + sum(sizes[callee] for callee in callees)
            depth = max([depth, *(1 + depths[callee] for callee in callees)])
            where = f"`{i.name}` in `{c.name}`"
            if total + size > INSTRUCTIONS:
                what = f"it brings the module to {total + size} instructions, with calls inlined"
                raise LimitError(
                    what, f"the limit is {INSTRUCTIONS}", where, "", total + size, INSTRUCTIONS
                )
            if depth > CALL_DEPTH:
                what = f"it calls {depth} computations deep"
                raise LimitError(what, f"the limit is {CALL_DEPTH}", where, "", depth, CALL_DEPTH)
        sizes[c], depths[c] = size, depth
        total += size


def leaf_count(shape: AnyShape, known: dict[int, int]) -> int:
    """Return the number of arrays in a shape. ``known`` caches the counts of tuples by ``id``, so
    that a shared tuple is visited once."""
    if not isinstance(shape, TupleShape):
        return 1
    if (found := known.get(id(shape))) is None:
        found = known[id(shape)] = sum(leaf_count(e, known) for e in shape.elements)
    return found


def require_bytes(nbytes: int, what: str, where: str) -> None:
    """Raise ``LimitError`` for memory beyond ``ARRAY_BYTES``."""
    if nbytes > ARRAY_BYTES:
        why = f"the limit is {ARRAY_BYTES}"
        raise LimitError(f"{what} takes {nbytes} bytes", why, where, "", nbytes, ARRAY_BYTES)


@contextmanager
def exhaustion_as_limit(where: str) -> Iterator[None]:
    """Raise ``LimitError`` in place of a ``MemoryError`` or ``RecursionError`` in the block."""
    try:
        yield
    except MemoryError as error:
        hint = "a machine with more, or a smaller model"
        raise LimitError(
            "building it takes more memory than there is", str(error), where, hint
        ) from error
    except RecursionError as error:
        why = "an operation with many operands or deeply nested text causes this"
        raise LimitError("its code is nested too deep to be compiled", why, where) from error
