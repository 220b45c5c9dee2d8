"""Queries on a schedule in progress: nodes, extents, the loops that drive an axis."""

from __future__ import annotations

from ...ir.loop.nodes import Block, Buffer, Var
from ...ir.loop.visit import free_vars
from ..cursor import BlockRef, LoopRef, extent_of, loop_of, nest
from ..language.schedule import Schedule


def block_node(sch: Schedule, block: BlockRef | str) -> Block:
    """Return the current node of a block."""
    return nest(sch.func).block(block if isinstance(block, str) else block.name)


def read_number(sch: Schedule, block: BlockRef | str, buffer: Buffer) -> int:
    """Return which of a block's reads is of a buffer: the index that ``cache_read`` takes."""
    return [r.buffer for r in block_node(sch, block).reads].index(buffer)


def extent(sch: Schedule, loop: LoopRef) -> int:
    """Return the extent of a loop; 0 if it is not a constant."""
    return extent_of(loop_of(nest(sch.func).loops[loop.var])) or 0


def below(sch: Schedule, block: BlockRef | str, at: LoopRef) -> list[LoopRef]:
    """Return the loops around a block that are inside ``at``, outermost first."""
    loops = sch.get_loops(block)
    return loops[loops.index(at) + 1 :]


def own_loops(
    sch: Schedule, block: BlockRef | str, inside: LoopRef | None = None
) -> dict[Var, LoopRef]:
    """Map each axis of a block to the innermost loop that drives this axis only.

    Axes without such a loop (below ``inside``, if given) are left out.
    """
    loops = sch.get_loops(block) if inside is None else below(sch, block, inside)
    axes = [(a.var, free_vars(a.value)) for a in block_node(sch, block).axes]
    found: dict[Var, LoopRef] = {}
    for axis, free in axes:
        mine = [x for x in loops if x.var in free and sum(x.var in f for _, f in axes) == 1]
        if mine:
            found[axis] = mine[-1]
    return found
