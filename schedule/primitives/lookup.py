"""Queries that a trace records, for the names of their results: get_loops."""

from __future__ import annotations

from ...ir.loop.nodes import Func
from ..cursor import BlockRef, LoopRef, find_block, loops_of
from ..declare import primitive


@primitive
def get_loops(func: Func, block: BlockRef) -> tuple[Func, tuple[LoopRef, ...]]:
    """Return the loops around a block, outermost first.

    The trace records the call if it names loops that had no name yet.

    Refused:
        - a block that does not exist

    Example:
        sch = product()
        sch.get_loops("C")
    """
    path = find_block(func, block, f"get the loops of block `{block.name}`")
    return func, tuple(LoopRef(x.var) for x in loops_of(path))
