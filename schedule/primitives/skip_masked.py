"""An online softmax that leaves out the parts of rows that a mask hides: skip_masked."""

from __future__ import annotations

from dataclasses import replace

from ...ir.dtypes import f32
from ...ir.loop.affine import bounds, linear
from ...ir.loop.build import (
    add,
    floordiv,
    maximum,
    minimum,
    sub,
)
from ...ir.loop.nodes import (
    THREADS,
    AxisKind,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Load,
    Range,
    Stmt,
    Var,
)
from ...ir.loop.visit import free_vars, substitute, substitute_expr, walk_expr
from ..cursor import (
    LoopRef,
    Path,
    block_of,
    blocks_under,
    edit,
    extent_of,
    find_loop,
    loop_of,
    loops_of,
    named,
    nest,
)
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import constant_extent, not_opaque, only_blocks, plain_loops, writes
from ..softmax.hidden import MaskedParts, shares
from ..softmax.masks import Mask, extreme, mask_of, shown_keys
from ..softmax.parts import part_exponentials
from ..stores import update_of
from ..threads import is_grid

IN_BLOCK = tuple(t for t in THREADS if not is_grid(t))


@primitive
def skip_masked(func: Func, loop: LoopRef) -> Func:
    """Compute only those parts of rows of an online softmax of which a mask shows something.

    ``for p in range(n): ..; for p in range(n): S = S + S_rf[p] * scale[p]``  ->
    ``for p in range(first, end): ..; for p in range(first, end): ..``, the parts between the first
    and the last key that the mask shows to any of the rows here, or to any thread of the block of
    threads, which keep step. A mask is a selection between
    scores and a constant by comparisons of the key with row, constants and elements of inputs
    (causal masks, windows, lengths), of which all must hold. Where the constant is finite, a
    row whose maximum is so close to it that hidden keys count (all that it sees is hidden or -inf)
    gets their share from the constant. What hidden exponentials of 0 are multiplied by is taken to
    be finite: zero times infinity would be NaN. Do this last.

    Refused:
        - a loop that holds no exponentials made by `rescale`, or scores without such a mask
        - a mask that does not hide the first or the last keys of each row
        - results of the loop that are not put together part by part

    Example:
        sch = masked_softmax()
        sch.skip_masked("k_tile")
    """
    asked = f"skip the masked parts of loop `{named(func, loop)}`"
    path = find_loop(func, loop, asked)
    require(
        func,
        asked,
        plain_loops((loop_of(path),)),
        constant_extent(loop_of(path)),
        only_blocks(path),
        not_opaque(blocks_under(path)),
    )
    parts = obtain(func, asked, _parts(func, path))
    ranges = {x.var: (0, (extent_of(x) or 1) - 1) for x in loops_of(path)}
    if bounds(parts.count, ranges)[0] >= parts.whole:
        return func  # no part is hidden
    loops = obtain(func, asked, _readers(func, parts))
    changes = obtain(func, asked, shares(func, parts, loops))

    def shorter(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        body = s.body
        if parts.first != Const(0):
            body = substitute(body, {s.var: add(s.var, parts.first)})
        return replace(s, extent=parts.count, body=body)

    return edit(func, [*changes, *((p, shorter) for p in (path, *loops))])


def _no_mask(block: Block, why: str) -> Reason:
    return Reason(
        f"block `{block.name}` {why}",
        (block,),
        hint="the scores are select(key <= row, x, constant), or the like",
    )


def _parts(func: Func, path: Path) -> MaskedParts | Reason:
    """Return what the loop computes in parts."""
    loop, inside = loop_of(path), blocks_under(path)
    found = [(block_of(p), e) for p in inside if (e := part_exponentials(block_of(p))) is not None]
    if not found:
        why = f"loop `{named(func, LoopRef(loop.var))}` holds no exponentials of parts of rows"
        return Reason(why, (loop,), hint="rescale the exponentials, and merge the loops over parts")
    reader, weights = found[0]
    writers = [p for p in inside if writes(block_of(p), weights.scores.buffer)]
    if len(writers) != 1:
        return _no_mask(reader, "reads scores that several blocks write, or none in the loop")
    block = block_of(writers[0])
    mask = mask_of(block)
    if mask is None:
        return _no_mask(block, "selects nothing by a mask")
    keys = _shown(mask, writers[0], loop)
    if isinstance(keys, Reason):
        return keys
    (begin, stop), length = keys
    whole = extent_of(loop) or 0
    end = maximum(0, minimum(whole, floordiv(add(stop, length - 1), length)))
    from_start = begin == Const(0)
    first = Const(0) if from_start else maximum(0, minimum(end, floordiv(begin, length)))
    outside = {x.var for x in loops_of(path[:-1])}
    for x in walk_expr(sub(end, first)):
        if isinstance(x, Load) and x.buffer in nest(func).writers:
            return _no_mask(block, "has a mask of what is computed")
        if isinstance(x, Var) and x not in outside:
            return _no_mask(block, "has a mask of other things than row and key")
    if mask.fill.value != float("-inf") and block.writes[0].buffer.dtype != f32:
        return _no_mask(block, "has a finite mask and no f32 scores")
    return MaskedParts(
        path,
        first,
        sub(end, first),
        length,
        mask.fill,
        weights.store.buffer,
        weights.largest.buffer,
    )


def _shown(mask: Mask, path: Path, loop: For) -> tuple[tuple[Expr, Expr], int] | Reason:
    """Return between which keys a mask shows some to the rows of a tile, and a part's length."""
    block = block_of(path)
    key = block.axes[-1]
    shown = shown_keys(mask.cond, mask.hides, block.axes, key.var)
    if shown.first is None and shown.end is None:
        return _no_mask(block, "has a mask that shows the first and the last keys of each row")
    above = [x.var for x in loops_of(path)]
    inner = {x.var: extent_of(x) or 0 for x in loops_of(path)[above.index(loop.var) + 1 :]}
    rows = inner | {x.var: extent_of(x) or 0 for x in loops_of(path) if x.thread in IN_BLOCK}
    form = linear(key.value)
    length = form.terms.get(loop.var, 0)
    others = [k for v, k in form.terms.items() if v is not loop.var and v in inner]
    whole = length >= 1 and not form.constant and len(others) + 1 == len(form.terms)
    if not whole or min(others, default=0) < 0:
        return _no_mask(block, f"does not take keys part by part of loop `{loop.var.name}`")
    found: list[Expr] = []
    ends = (shown.first or Const(0), False), (shown.end or Const(key.extent), True)
    for bound, last in ends:
        at = substitute_expr(bound, {a.var: a.value for a in block.axes})
        most = extreme(at, rows, last)
        if most is None or loop.var in free_vars(most):
            return _no_mask(block, "has a mask whose last key is not known for a tile of rows")
        found.append(most)
    return (found[0], found[1]), length


def _readers(func: Func, parts: MaskedParts) -> list[Path] | Reason:
    """Return the loops elsewhere over results of the parts."""
    loop, free = loop_of(parts.path), free_vars(parts.count)
    inside = {block_of(p).name for p in blocks_under(parts.path)}
    part_of: dict[Buffer, int] = {}
    found: dict[Var, Path] = {}
    for name, path in nest(func).blocks.items():
        block = block_of(path)
        if name in inside:
            for r in block.writes:
                at = [n for n, x in enumerate(r.ranges) if _value(x, block) is loop.var]
                part_of[r.buffer] = at[0] if len(at) == 1 else -1
            continue
        own = [r for r in block.reads if r.buffer in part_of]
        if not own:
            continue
        axes = {_var(r.ranges[part_of[r.buffer]]) for r in own if part_of[r.buffer] >= 0}
        axis = next((a for a in block.axes if a.var in axes), None)
        over = [x for x in loops_of(path) if axis is not None and x.var is axis.value]
        if len(axes) != 1 or any(part_of[r.buffer] < 0 for r in own) or not over or axis is None:
            return _not_by_part(block)
        (at_loop,) = over
        here = nest(func).loops[at_loop.var]
        above = {x.var for x in loops_of(here[:-1])}
        plain = at_loop.kind is Kind.SERIAL and extent_of(at_loop) == parts.whole
        if not plain or not free <= above or block.init is not None or loop.var in above:
            return _not_by_part(block)
        found[at_loop.var] = here
        if axis.kind is AxisKind.SPATIAL:
            for r in block.writes:
                places = [n for n, x in enumerate(r.ranges) if _var(x) is axis.var]
                part_of[r.buffer] = places[0] if len(places) == 1 else -1
        elif update_of(block) is None:
            return _not_by_part(block)
    for here in found.values():
        for path in blocks_under(here):
            if not any(r.buffer in part_of for r in block_of(path).reads):
                return _not_by_part(block_of(path))
    return list(found.values())


def _value(x: Range, block: Block) -> Expr | None:
    return next((a.value for a in block.axes if a.var is x.start), None)


def _var(x: Range) -> Var | None:
    return x.start if isinstance(x.start, Var) else None


def _not_by_part(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` does not put results together part by part",
        (block,),
        hint="decompose its reduction, in a serial loop over the parts",
    )
