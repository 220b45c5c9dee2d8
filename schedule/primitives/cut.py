"""Parts of a nest for themselves: cut, duplicate."""

from __future__ import annotations

from dataclasses import replace

from ...ir.loop.build import add
from ...ir.loop.copies import renamed
from ...ir.loop.names import called
from ...ir.loop.nodes import AxisKind, Block, Const, For, Func, Var
from ...ir.loop.visit import free_vars, map_blocks, replace_buffers, seq, substitute
from ..cursor import (
    BlockRef,
    LoopRef,
    Path,
    block_of,
    blocks_under,
    edit,
    extent_of,
    find_block,
    find_loop,
    fresh_name,
    loop_of,
    loops_of,
    named,
)
from ..declare import primitive
from ..errors import Reason, require
from ..legality import (
    computes_once,
    constant_extent,
    not_an_output,
    not_opaque,
    only_blocks,
    plain_loops,
    sole_writer,
)


@primitive
def cut(func: Func, loop: LoopRef, at: int) -> tuple[Func, tuple[LoopRef, LoopRef]]:
    """Run the first ``at`` iterations of a loop, and the others in a loop of their own after it.

    ``for i in range(12): B[i] = ..``  ->  ``for i in range(8): B[i] = ..; for j in range(4):
    B[8 + j] = ..``. The blocks of the second loop are new ones, whose axes begin at 0.

    Refused:
        - no iteration for one of the loops
        - a loop that is not serial, or whose extent is not a constant
        - blocks below of which the loop drives no axis alone, or a reduction

    Example:
        sch = chain()
        (i,) = sch.get_loops("C")
        sch.cut(i, 4)
    """
    asked = f"cut loop `{named(func, loop)}` at {at}"
    path = find_loop(func, loop, asked)
    node, below = loop_of(path), blocks_under(path)
    require(
        func,
        asked,
        plain_loops((node,)),
        constant_extent(node),
        only_blocks(path),
        not_opaque(below),
        _inside(node, at),
        *(_drives_one(block_of(p), node) for p in below),
    )
    n = extent_of(node) or 0
    again = renamed(node)
    assert isinstance(again, For)
    names = {block_of(p).name: fresh_name(func, f"{block_of(p).name}_rest") for p in below}
    first = map_blocks(node.body, lambda b: _with_extent(b, node.var, at))
    second = map_blocks(
        again.body, lambda b: _later(replace(b, name=names[b.name]), again.var, at, n - at)
    )
    parts = seq(For(node.var, Const(at), first), For(again.var, Const(n - at), second))
    return edit(func, [(path, lambda _: parts)]), (LoopRef(node.var), LoopRef(again.var))


def _inside(node: For, at: int) -> Reason | None:
    n = extent_of(node) or 0
    if 0 < at < n:
        return None
    return Reason(f"the loop runs {n} times", (node,), hint=f"cut it at 1 to {n - 1}")


def _drives_one(block: Block, node: For) -> Reason | None:
    """Require that a loop is one spatial axis of a block, and nothing else of it."""
    own = [a for a in block.axes if node.var in free_vars(a.value)]
    guarded = block.predicate is not None and node.var in free_vars(block.predicate)
    whole = len(own) == 1 and own[0].value is node.var and own[0].extent == extent_of(node)
    if whole and own[0].kind is AxisKind.SPATIAL and not guarded:
        return None
    return Reason(
        f"loop `{called(node)}` is not one spatial axis of block `{block.name}`",
        (node, block),
        hint="cut a loop before it is split or fused",
    )


def _with_extent(block: Block, loop: Var, extent: int) -> Block:
    """Return a block with another extent of the axis that a loop drives."""
    axes = tuple(replace(a, extent=extent) if a.value is loop else a for a in block.axes)
    return replace(block, axes=axes)


def _later(block: Block, loop: Var, start: int, extent: int) -> Block:
    """Return a block over ``extent`` values of the axis that a loop drives, from ``start`` on."""
    (own,) = (a for a in block.axes if a.value is loop)
    moved = substitute(block, {own.var: add(own.var, start)})
    assert isinstance(moved, Block)
    return _with_extent(moved, loop, extent)


@primitive
def duplicate(func: Func, block: BlockRef, reader: BlockRef) -> tuple[Func, BlockRef]:
    """Compute a block a second time, for one of its readers, and return the new block.

    ``B = ..; C reads B; D reads B``  ->  ``B = ..; B_again = ..; C reads B; D reads B_again``. The
    new block follows the old one. ``compute_at`` then moves each into the nest of its reader.

    Refused:
        - a reader that does not read what the block writes
        - a block that is in loops with others, or without loops
        - a block that writes an output, or a buffer that others also write

    Example:
        sch = chain()
        sch.duplicate("B", "C")
    """
    asked = f"compute block `{block.name}` again for `{reader.name}`"
    path, user = find_block(func, block, asked), find_block(func, reader, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path, user)),
        computes_once(node),
        sole_writer(func, node),
        not_an_output(func, node),
        _reads(block_of(user), node),
        _alone(path),
    )
    name = fresh_name(func, f"{node.name}_again")
    buffers = {r.buffer: replace(r.buffer, name=f"{r.buffer.name}_again") for r in node.writes}
    outer = path[: path.index(loops_of(path)[0]) + 1]
    copy = map_blocks(renamed(outer[-1]), lambda b: replace(b, name=name))
    copy = replace_buffers(copy, buffers)
    new = edit(
        func,
        [
            (outer, lambda s: seq(s, copy)),
            (user, lambda s: replace_buffers(s, buffers)),
        ],
    )
    new = replace(new, allocs=(*func.allocs, *buffers.values()))
    return new, BlockRef(name)


def _reads(user: Block, node: Block) -> Reason | None:
    made = {r.buffer for r in node.writes}
    if any(r.buffer in made for r in user.reads) and user is not node:
        return None
    return Reason(
        f"block `{user.name}` does not read what `{node.name}` writes",
        (node, user),
        hint="name one of its consumers",
    )


def _alone(path: Path) -> Reason | None:
    """Require that a block has loops, and is the only one in them."""
    loops = loops_of(path)
    if loops and len(blocks_under(path[: path.index(loops[0]) + 1])) == 1:
        return None
    return Reason(
        f"block `{block_of(path).name}` has no nest of its own",
        (path[-1],),
        hint="do this before compute_at and merge",
    )
