"""A copy of keys or values that leaves out what a mask hides: copy_shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.loop.affine import bounds, linear
from ...ir.loop.build import as_int, both, compare, point, select, zero_of
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    Buffer,
    Expr,
    Func,
    Load,
    Store,
    Var,
)
from ...ir.loop.visit import free_vars, loads_in, substitute_expr
from ..cursor import BlockRef, block_of, consumers, edit, find_block, nest
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import not_opaque, sole_writer
from ..softmax.masks import extreme, mask_of, shown_keys
from ..softmax.parts import factor, part_exponentials
from ..stores import single_store, update_of


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
    store = obtain(func, asked, _copied(func, node) or _other(node))
    found = obtain(func, asked, _mask_of(func, node, store.buffer))
    new = obtain(func, asked, _with_zeros(func, node, store, found))
    return edit(func, [(path, lambda _: new)])


def _copied(func: Func, node: Block) -> Store | None:
    """Return the store of a block that writes each element of a buffer from the inputs."""
    store = single_store(node)
    if store is None:
        return None
    plain = all(isinstance(e, Var) or as_int(e) == 0 for e in store.index)
    given = all(r.buffer in func.params for r in node.reads)
    spatial = all(a.kind is AxisKind.SPATIAL for a in node.axes)
    return store if plain and given and spatial and store.buffer in func.allocs else None


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
    read = None if update is None else factor(update.term, copy)
    if update is None or update.op != "add" or read is None:
        return _other(node)
    mask = _mask_behind(func, update.store.buffer)
    if mask is not None:
        return _Masked(mask, update.store.index, read)
    others = [x for x in loads_in(update.term) if x.buffer is not copy]
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
        mask = mask_of(rest[0])
        if mask is not None and all(x.buffer is not scores for x in loads_in(mask.cond)):
            return rest[0]
        scores = store.buffer
    return None


def _mask_before(func: Func, weights: Buffer) -> Block | None:
    """Return the block that hides scores by -inf, whose exponentials are weights; else None."""
    block = _only_writer(func, weights)
    found = None if block is None else part_exponentials(block)
    if found is None or not _by_element(found.store, found.scores.buffer):
        return None
    block = _only_writer(func, found.scores.buffer)
    mask = None if block is None else mask_of(block)
    return block if mask is not None and mask.fill.value == float("-inf") else None


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


def _with_zeros(func: Func, node: Block, store: Store, m: _Masked) -> Block | Reason:
    """Return the copy with zeros for what a mask shows to no row."""
    cond = _shown(func, node, store, m)
    if cond is None:
        return _no_mask(m.block)
    reads = [point(x.buffer, x.index) for x in dict.fromkeys(loads_in(cond))]
    value = select(cond, store.value, zero_of(store.buffer.dtype))
    return replace(
        node,
        reads=(*node.reads, *(r for r in reads if r not in node.reads)),
        body=replace(store, value=value),
    )


def _shown(func: Func, node: Block, store: Store, m: _Masked) -> Expr | None:
    """Return the condition, on the axes of the copy, under which a mask may show an element.

    None if the mask does not hide the first or the last keys of every row.
    """
    ranges = {a.var: (0, a.extent - 1) for a in node.axes}
    mask = mask_of(m.block)
    assert mask is not None
    key = m.block.axes[-1].var
    own: dict[Var, Expr] = {
        axis: store.index[n]
        for axis, at in zip(mask.store.index, m.at, strict=True)
        for n, e in enumerate(m.read.index)
        if isinstance(axis, Var) and free_vars(e) and linear(e) == linear(at)
    }
    shown = shown_keys(mask.cond, mask.hides, m.block.axes, key)
    conditions: list[Expr | None] = []
    for bound, last in ((shown.first, False), (shown.end, True)):
        if bound is None or key not in own:
            continue
        rows = {a.var: a.extent for a in m.block.axes if a.var not in own}
        most = extreme(bound, rows, last)
        known = most is not None and all(x.buffer in func.params for x in loads_in(most))
        if most is None or not known:
            return None
        at, here = substitute_expr(most, own), own[key]
        least, largest = bounds(at, ranges)
        all_shown = bounds(here, ranges)[1] < least if last else largest <= 0
        conditions.append(None if all_shown else compare("lt" if last else "ge", here, at))
    return both(*conditions)


def _no_mask(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` has no mask that hides the first or the last keys of every row",
        (block,),
        hint="the scores are select(key <= row, x, constant), or the like",
    )
