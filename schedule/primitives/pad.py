"""Making an intermediate buffer larger than what is read of it: pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.loop.affine import bounds
from ...ir.loop.build import both, lt, select, zero_of
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Store,
    Var,
)
from ...ir.loop.visit import loads_in
from ..cursor import BlockRef, Path, block_of, edit, find_block, loops_of, with_buffer
from ..declare import primitive
from ..domains import regenerate
from ..errors import Reason, require
from ..legality import computes_once, has_region, not_a_parameter, not_opaque, sole_writer
from ..stores import single_store

MOST = 1 << 20  # of one multiple


@primitive
def pad(func: Func, block: BlockRef, multiples: tuple[int, ...]) -> Func:
    """Round up the extents of a block and of the intermediate buffer that it writes.

    ``for i in 77: S[i] = f(x[i])``  ->  ``for i in 80: S[i] = select(i < 77, f(x[i]), 0)``.
    ``multiples`` has one number for each axis of the block, in order. Where all that the block
    reads is there, as of a padded buffer, values beyond are computed like the others. Nobody reads
    them: whole tiles need no guards.

    Refused:
        - multiples that are not one positive integer for each axis
        - a parameter of the function: ``cache_write`` makes a buffer that can be padded
        - a reduction, a block that does not store each point at its own axes in order, and one
          whose loops were split, reordered, bound or joined with others

    Example:
        sch = chain()
        sch.pad("B", [5])
    """
    asked = f"pad what block `{block.name}` writes"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        has_region(node.writes, 0, node, "writes"),
        not_a_parameter(func, node.writes[0].buffer, node),
        sole_writer(func, node),
        _valid(node, multiples),
        _plain(path),
    )
    store = single_store(node)
    assert store is not None
    old = store.buffer
    sizes = [-(-a.extent // n) * n for a, n in zip(node.axes, multiples, strict=True)]
    new = replace(old, shape=_shape(node, old, store, sizes))
    axes = tuple(replace(a, extent=n) for a, n in zip(node.axes, sizes, strict=True))
    body = replace(store, value=_inside(store.value, node.axes, axes))
    moved = regenerate(replace(node, axes=axes, body=body), {})
    top = path[: len(path) - len(loops_of(path))]
    made = edit(func, [(top, lambda _: moved)])
    return with_buffer(made, old, new)


def _shape(block: Block, buffer: Buffer, store: Store, sizes: Sequence[int]) -> tuple[int, ...]:
    by = {a.var: n for a, n in zip(block.axes, sizes, strict=True)}
    pairs = zip(store.index, buffer.shape, strict=True)
    return tuple(by.get(e, n) if isinstance(e, Var) else n for e, n in pairs)


def _inside(e: Expr, old: Sequence[BlockAxis], new: Sequence[BlockAxis]) -> Expr:
    """Return a value that is 0 beyond the old extents, if it reads what is not there."""
    ranges = {a.var: (0, a.extent - 1) for a in new}
    there = all(
        low >= 0 and high < n
        for x in loads_in(e)
        for (low, high), n in (
            (bounds(i, ranges), n) for i, n in zip(x.index, x.buffer.shape, strict=True)
        )
    )
    if there:
        return e
    limits = (lt(a.var, a.extent) for a, b in zip(old, new, strict=True) if a.extent < b.extent)
    cond = both(*limits)
    if cond is None:  # every extent is a multiple already
        return e
    zero = zero_of(e.dtype)
    return select(cond, e, zero)


def _valid(block: Block, multiples: Sequence[int]) -> Reason | None:
    if len(multiples) == len(block.axes) and all(0 < n <= MOST for n in multiples):
        return None
    return Reason(
        f"block `{block.name}` takes {len(block.axes)} positive multiples",
        (block,),
        hint=f"give one for each of the {len(block.axes)} axes, in order, up to {MOST}",
    )


def _plain(path: Path) -> Reason | None:
    """Require a block as it is made: a loop for each axis, and its points in order."""
    block, loops = block_of(path), loops_of(path)
    store = single_store(block)
    spatial = all(a.kind is AxisKind.SPATIAL for a in block.axes)
    if store is None or not spatial or block.init is not None:
        return Reason(
            f"block `{block.name}` is not one store for each point",
            (block,),
            hint="cache_write makes a copy, which can be padded",
        )
    wide = [a for a in block.axes if a.value != Const(0)]
    own = [x.var for x in loops] == [a.value for a in wide]
    whole = all(x.extent == Const(a.extent) for x, a in zip(loops, wide, strict=False))
    at = [e for e in store.index if e != Const(0)]
    straight = at == [a.var for a in block.axes if a.var in at]
    nested = all(isinstance(s, For) for s in path[-1 - len(loops) : -1])
    if own and whole and straight and nested and block.predicate is None:
        return None
    return Reason(
        f"block `{block.name}` is not in a loop for each of its axes",
        (block, *loops),
        hint="pad before other primitives change its loops",
    )
