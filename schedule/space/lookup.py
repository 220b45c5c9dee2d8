"""Looking things up in a schedule in progress: nodes, extents, which loop drives which axis."""

from __future__ import annotations

from ...ir.loop.nodes import Block, Var
from ...ir.loop.visit import free_vars
from ..cursor import BlockRef, LoopRef, extent_of, loop_of, nest
from ..language.schedule import Schedule


def block_node(sch: Schedule, block: BlockRef | str) -> Block:
    """The block as it stands now."""
    return nest(sch.func).block(block if isinstance(block, str) else block.name)


def extent(sch: Schedule, loop: LoopRef) -> int:
    """The extent of a loop; 0 where it is not a constant."""
    return extent_of(loop_of(nest(sch.func).loops[loop.var])) or 0


def below(sch: Schedule, block: BlockRef | str, at: LoopRef) -> list[LoopRef]:
    """The loops around a block that stand inside ``at``, outermost first."""
    loops = sch.get_loops(block)
    return loops[loops.index(at) + 1 :]


def own_loops(
    sch: Schedule, block: BlockRef | str, inside: LoopRef | None = None
) -> dict[Var, LoopRef]:
    """For each axis of a block, the innermost loop that drives this axis and no other.

    Axes that no such loop (below ``inside``, when given) drives are left out.
    """
    loops = sch.get_loops(block) if inside is None else below(sch, block, inside)
    axes = [(a.var, free_vars(a.value)) for a in block_node(sch, block).axes]
    found: dict[Var, LoopRef] = {}
    for axis, free in axes:
        mine = [x for x in loops if x.var in free and sum(x.var in f for _, f in axes) == 1]
        if mine:
            found[axis] = mine[-1]
    return found
