"""What a module may ask for at most: a short text can call for any amount of memory and time.

Limits count what a program has, never seconds, so that a module that is taken once is always
taken. What optimization would like to do beyond its budgets is left undone; what the program cannot
do without is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import LimitError
from .nodes import AnyShape, Computation, HloModule, TupleShape
from .rewrite import called

INSTRUCTIONS = 1 << 19
"""Instructions of all computations, each written out with everything that it calls."""

CALL_DEPTH = 100
"""Computations that call one another in a row."""

LEAVES = 1 << 16
"""Arrays in one tuple, those of tuples in it included."""

ARRAY_BYTES = 1 << 46
"""Bytes of one array that is kept in memory, and of all that a program keeps: processors address
47 bits."""


def require_limits(module: HloModule) -> None:
    """Raise ``LimitError`` for a module, well formed, that calls too much or too deep."""
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
                what = f"it brings the module to {total + size} instructions, calls written out"
                raise LimitError(
                    what, f"the limit is {INSTRUCTIONS}", where, "", total + size, INSTRUCTIONS
                )
            if depth > CALL_DEPTH:
                what = f"it calls {depth} computations deep"
                raise LimitError(what, f"the limit is {CALL_DEPTH}", where, "", depth, CALL_DEPTH)
        sizes[c], depths[c] = size, depth
        total += size


def leaf_count(shape: AnyShape, known: dict[int, int]) -> int:
    """Arrays in a shape. ``known`` has the counts of tuples by identity, so that shared ones are
    counted once."""
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
def exhaustion(where: str) -> Iterator[None]:
    """Say ``LimitError`` where Python has no more memory, or no deeper calls."""
    try:
        yield
    except MemoryError as error:
        hint = "a machine with more, or a smaller model"
        raise LimitError(
            "building it takes more memory than there is", str(error), where, hint
        ) from error
    except RecursionError as error:
        why = "an operation of many operands, or text nested deep, makes it so"
        raise LimitError("its code is nested too deep to be compiled", why, where) from error
