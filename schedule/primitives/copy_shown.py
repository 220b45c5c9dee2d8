"""A copy of keys or values that leaves out what a mask hides: copy_shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.loop.affine import bounds, linear
from ...ir.loop.build import as_int, both, compare, point, select
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Op,
    Store,
    Var,
)
from ...ir.loop.visit import free_vars, loads_in, substitute_expr
from ..cursor import BlockRef, block_of, consumers, edit, find_block, nest
from ..declare import primitive
from ..errors import Reason, require
from ..legality import not_opaque, single_store, sole_writer, update_of
from ..softmax.masks import extreme, masked, shown_keys
from ..softmax.parts import factor


@dataclass(frozen=True, slots=True)
class _Masked:
    """A block that masks scores, and what is at their index in a product that reads the copy.

    ``at`` is in the order of the dimensions of the scores; ``read`` is what is read of the copy.
    """

    block: Block
    at: Sequence[Expr]
    read: Load


@primitive
def copy_shown(func: Func, block: BlockRef) -> Func:
    """Copy only those keys of an attention that a mask may show, and zeros for the others.

    ``K_cache[k] = K[k]``  ->  ``K_cache[k] = select(k < end, K[k], 0)``. The block copies the keys
    for a product of scores that a mask replaces by a constant, or the values for one with
    exponentials that `rescale` made, of scores that a mask of -inf hides. A mask is as for
    `skip_masked`; between the first and the last key that it shows to any of the rows all are
    copied. What hidden exponentials of 0 are multiplied by is taken to be finite.

    Refused:
        - a block that does not copy an input, or that others write with
        - a copy that is read for other things than scores and their exponentials
        - a mask that does not hide the first or the last keys of each row, or that depends on what
          is computed

    Example:
        sch = masked_scores()
        copy = sch.cache_read("Y", 2)
        sch.copy_shown(copy)
    """
    asked = f"copy what is shown by block `{block.name}`"
    path = find_block(func, block, asked)
    node = block_of(path)
    require(func, asked, not_opaque((path,)), sole_writer(func, node))
    store = single_store(node)
    require(func, asked, None if store is not None and _copies(func, node, store) else _other(node))
    assert store is not None
    found = _mask_of(func, node, store.buffer)
    require(func, asked, found if isinstance(found, Reason) else None)
    assert isinstance(found, _Masked)
    cond = _shown(func, node, store, found)
    require(func, asked, cond if isinstance(cond, Reason) else None)
    assert isinstance(cond, Expr)
    zero = Const(0.0 if store.buffer.dtype.is_float else 0, store.buffer.dtype)
    loads = dict.fromkeys(loads_in(cond))
    reads = [point(x.buffer, x.index) for x in loads]
    new = replace(
        node,
        reads=(*node.reads, *(r for r in reads if r not in node.reads)),
        body=replace(store, value=select(cond, store.value, zero)),
    )
    return edit(func, [(path, lambda _: new)])


def _copies(func: Func, node: Block, store: Store) -> bool:
    """True if a block writes each element of a buffer at its axes, from inputs of the function."""
    plain = all(isinstance(e, Var) or as_int(e) == 0 for e in store.index)
    given = all(r.buffer in func.params for r in node.reads)
    spatial = all(a.kind is AxisKind.SPATIAL for a in node.axes)
    return plain and given and spatial and store.buffer in func.allocs


def _other(node: Block) -> Reason:
    return Reason(
        f"block `{node.name}` is not a copy of keys or values for scores that a mask hides",
        (node,),
        hint="cache_read what the products read, and rescale the exponentials",
    )


def _mask_of(func: Func, node: Block, copy: Buffer) -> _Masked | Reason:
    """Return the block that masks the scores for which a copy is read."""
    readers = [block_of(p) for p in consumers(func, node)]
    product = readers[0] if len(readers) == 1 else None
    update = None if product is None else update_of(product)
    read = None if update is None else factor(update[2], copy)
    if update is None or update[1] != "add" or read is None:
        return _other(node)
    mask = _mask_behind(func, update[0].buffer)
    if mask is not None:
        return _Masked(mask, update[0].index, read)
    others = [x for x in loads_in(update[2]) if x.buffer is not copy]
    for x in others:
        mask = _mask_before(func, x.buffer)
        if mask is not None:
            return _Masked(mask, x.index, read)
    return _other(node)


def _mask_behind(func: Func, scores: Buffer) -> Block | None:
    """Return the block that masks scores, with element-wise work in between."""
    for _ in range(len(func.allocs)):
        if scores in func.params:
            return None
        own = {n for n in nest(func).writers.get(scores, ())}
        users = [p for n in own for p in consumers(func, block_of(nest(func).blocks[n]))]
        blocks = {block_of(p).name: block_of(p) for p in users}
        rest = [b for name, b in blocks.items() if name not in own]
        store = single_store(rest[0]) if len(rest) == 1 else None
        if store is None or not _by_element(store, scores):
            return None
        found = masked(store.value)
        if found is not None and all(x.buffer is not scores for x in loads_in(found[0])):
            return rest[0]
        scores = store.buffer
    return None


def _mask_before(func: Func, weights: Buffer) -> Block | None:
    """Return the block that hides scores by -inf, whose exponentials are weights; else None."""
    block = _only_writer(func, weights)
    store = None if block is None else single_store(block)
    match store:
        case Store(
            value=Op(
                name="exponential",
                args=(
                    Op(
                        name="subtract",
                        args=(Load(buffer=scores), Op(name="select", args=(_, Const(), Load()))),
                    ),
                ),
            )
        ) if _by_element(store, scores):
            mask = _only_writer(func, scores)
            found = None if mask is None else single_store(mask)
            hides = None if found is None else masked(found.value)
            return mask if hides is not None and hides[1].value == float("-inf") else None
        case _:
            return None


def _only_writer(func: Func, buffer: Buffer) -> Block | None:
    names = nest(func).writers.get(buffer, ())
    return block_of(nest(func).blocks[names[0]]) if len(names) == 1 else None


def _by_element(store: Store, buffer: Buffer) -> bool:
    """True if a store reads a buffer, if at all, at the index at which it writes."""
    found = [x.index for x in loads_in(store.value) if x.buffer is buffer]
    if any(len(at) != len(store.index) for at in found):
        return False
    pairs = [p for at in found for p in zip(at, store.index, strict=True)]
    return all(a == b or as_int(a) == 0 or as_int(b) == 0 for a, b in pairs)


def _shown(func: Func, node: Block, store: Store, m: _Masked) -> Expr | Reason:
    """Return the condition, on the axes of the copy, under which a mask may show an element."""
    ranges = {a.var: (0, a.extent - 1) for a in node.axes}
    mask = single_store(m.block)
    found = None if mask is None else masked(mask.value)
    assert mask is not None and found is not None
    cond, _, hides = found
    key = m.block.axes[-1].var
    own: dict[Var, Expr] = {
        axis: store.index[n]
        for axis, at in zip(mask.index, m.at, strict=True)
        for n, e in enumerate(m.read.index)
        if isinstance(axis, Var) and free_vars(e) and linear(e) == linear(at)
    }
    shown = shown_keys(cond, hides, m.block.axes, key)
    conditions: list[Expr | None] = []
    for bound, last in ((shown.first, False), (shown.end, True)):
        if bound is None or key not in own:
            continue
        rows = {a.var: a.extent for a in m.block.axes if a.var not in own}
        most = extreme(bound, rows, last)
        known = most is not None and all(x.buffer in func.params for x in loads_in(most))
        if most is None or not known:
            return _no_mask(m.block)
        at, here = substitute_expr(most, own), own[key]
        least, largest = bounds(at, ranges)
        all_shown = bounds(here, ranges)[1] < least if last else largest <= 0
        conditions.append(None if all_shown else compare("lt" if last else "ge", here, at))
    whole = both(*conditions)
    return _no_mask(m.block) if whole is None else whole


def _no_mask(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` has no mask that hides the first or the last keys of every row",
        (block,),
        hint="the scores are select(key <= row, x, constant), or the like",
    )
