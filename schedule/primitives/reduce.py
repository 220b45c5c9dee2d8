"""Taking reductions apart: decompose_reduction, rfactor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.elementwise import identity
from ...ir.loop.build import both, op, var
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Let,
    Load,
    Op,
    Range,
    Region,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.simplify import simplify
from ...ir.loop.visit import (
    exprs,
    free_vars,
    map_region,
    seq,
    substitute,
    substitute_expr,
    walk,
    walk_expr,
)
from ..cursor import (
    BlockRef,
    LoopRef,
    Path,
    block_of,
    blocks_under,
    contains,
    edit,
    extent_of,
    find_block,
    find_loop,
    fresh_name,
    loop_of,
    loops_of,
    nest,
)
from ..errors import Reason, require
from ..footprint import conjuncts
from ..legality import (
    bound_vars,
    constant_extent,
    kinds_hold,
    not_opaque,
    plain_loops,
    reduces,
    update_of,
    visits_once,
)


def decompose_reduction(func: Func, ref: BlockRef, at: LoopRef) -> tuple[Func, BlockRef]:
    """``for k: C (init, update)``  ->  ``C_init; for k: C (update)``.

    The init becomes a block of its own before the loop ``at``, under copies of the loops from
    ``at`` inward that drive spatial axes.
    """
    asked = f"decompose the reduction `{ref.name}` at loop `{at.var.name}`"
    path, target = find_block(func, ref, asked), find_loop(func, at, asked)
    block = block_of(path)
    require(func, asked, not_opaque((path,)), _initialises(block), _around(path, target))
    inner = loops_of(path)[len(loops_of(target)) - 1 :]
    require(
        func,
        asked,
        _no_reduction_above(block, loops_of(target)[:-1]),
        visits_once(block, loops_of(path), [x for x in inner if extent_of(x) != 1]),
        _separate_guards(block, inner) if not _may_start_all(func, block, inner) else None,
    )
    assert block.init is not None
    name = fresh_name(func, f"{block.name}_init")
    start = _init_block(block, name)
    clone = _under_copies(start, _spatial_loops(block, inner))
    update = replace(block, init=None, reads=_with_own(block))
    new = edit(func, [(path, lambda _: update), (target, lambda s: seq(clone, s))])
    require(func, asked, kinds_hold(new, (nest(new).blocks[name],)))
    return new, BlockRef(name)


def _initialises(block: Block) -> Reason | None:
    if block.init is not None and reduces(block):
        return None
    return Reason(f"block `{block.name}` is no reduction with an init", (block,))


def _around(path: Path, target: Path) -> Reason | None:
    loop = loop_of(target)
    if contains(path, loop):
        return None
    names = ", ".join(f"`{x.var.name}`" for x in loops_of(path))
    return Reason(
        f"loop `{loop.var.name}` is not around the block", (loop, path[-1]), f"around it: {names}"
    )


def _no_reduction_above(block: Block, loops: Sequence[For]) -> Reason | None:
    reduce = bound_vars(block, AxisKind.REDUCE)
    for loop in loops:
        if loop.var in reduce and extent_of(loop) != 1:
            return Reason(
                f"reduction loop `{loop.var.name}` is outside: the init would run in each of its "
                "iterations",
                (loop, block),
                f"decompose at `{loop.var.name}` or further out",
            )
    return None


def _spatial_loops(block: Block, loops: Sequence[For]) -> tuple[For, ...]:
    spatial = bound_vars(block, AxisKind.SPATIAL)
    return tuple(x for x in loops if x.var in spatial)


def _separate_guards(block: Block, inner: Sequence[For]) -> Reason | None:
    """No part of the predicate mixes reduction loops with spatial loops that are to be copied."""
    reduce = bound_vars(block, AxisKind.REDUCE)
    spatial = {x.var for x in _spatial_loops(block, inner)}
    for c in conjuncts(block.predicate):
        free = free_vars(c)
        if free & reduce and free & spatial:
            return Reason(f"a guard of block `{block.name}` mixes its axes", (block,))
    return None


def _may_start_all(func: Func, block: Block, inner: Sequence[For]) -> bool:
    """Whether the init may run where the guards would never let an update follow.

    So it is for an intermediate buffer whose every axis in such a guard is one loop's variable and
    covers that loop: the init then writes elements of the buffer that nobody may read.
    """
    if any(w.buffer in func.params for w in block.writes):
        return False
    reduce = bound_vars(block, AxisKind.REDUCE)
    extents = {x.var: extent_of(x) for x in inner}
    mixed = frozenset[Var]().union(
        *(free_vars(c) for c in conjuncts(block.predicate) if free_vars(c) & reduce)
    )
    for a in block.axes:
        if a.kind is AxisKind.SPATIAL and free_vars(a.value) & mixed & extents.keys():
            n = extents.get(a.value) if isinstance(a.value, Var) else None
            if n is None or n > a.extent:
                return False
    return True


def _init_block(block: Block, name: str) -> Block:
    """The init as a block over the spatial axes; guards on reduction loops are dropped."""
    assert block.init is not None
    reduce = bound_vars(block, AxisKind.REDUCE)
    spatial = tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL)
    axes = tuple(replace(a, var=var(a.var.name)) for a in spatial)
    by: dict[Var, Expr] = {a.var: b.var for a, b in zip(spatial, axes, strict=True)}
    loaded = {
        x.buffer
        for s in walk(block.init)
        for e in exprs(s)
        for x in walk_expr(e)
        if isinstance(x, Load)
    }
    own = {r.buffer for r in block.writes}
    return Block(
        name,
        axes,
        tuple(_renamed(r, by) for r in block.reads if r.buffer in loaded - own),
        tuple(_renamed(r, by) for r in block.writes),
        substitute(block.init, by),
        predicate=both(*(c for c in conjuncts(block.predicate) if not free_vars(c) & reduce)),
    )


def _renamed(r: Region, by: Mapping[Var, Expr]) -> Region:
    return map_region(r, lambda e: substitute_expr(e, by))


def _under_copies(inside: Stmt, kept: Sequence[For]) -> Stmt:
    """A nest under fresh copies of the ``kept`` ones of the loops around it."""
    by: dict[Var, Expr] = {x.var: var(x.var.name) for x in kept}
    body = _rebound(inside, by)
    for x in reversed(kept):
        v = by[x.var]
        assert isinstance(v, Var)
        body = For(v, substitute_expr(x.extent, by), body, x.kind, x.thread, x.notes)
    return body


def _rebound(s: Stmt, by: Mapping[Var, Expr]) -> Stmt:
    """A block, or a loop around one, with the loop variables that bind it replaced."""
    if isinstance(s, For):
        return replace(s, body=_rebound(s.body, by))
    assert isinstance(s, Block)
    block, guard = s, s.predicate
    return replace(
        block,
        axes=tuple(replace(a, value=substitute_expr(a.value, by)) for a in block.axes),
        predicate=None if guard is None else substitute_expr(guard, by),
    )


def _with_own(block: Block) -> tuple[Region, ...]:
    """The reads of an update: what it writes included."""
    missing = (w for w in block.writes if all(r.buffer is not w.buffer for r in block.reads))
    return (*missing, *block.reads)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What rfactor needs to know of the reduction it takes apart."""

    block: Block
    loop: For
    store: Store
    name: str  # of the operation
    term: Expr
    others: tuple[For, ...]  # the other reduction loops
    inner: tuple[For, ...]  # the loops from the outermost reduction loop inward


def rfactor(func: Func, ref: LoopRef, factor_axis: int = 0) -> tuple[Func, BlockRef]:
    """``for k: C += f``  ->  ``for k: C_rf[k] += f; for k: C += C_rf[k]``.

    Each iteration of the reduction loop gets a partial result of its own, in a new dimension
    ``factor_axis`` of ``C_rf``; the block of that name stands in the old place and its loop is
    spatial. The old block sums the partial results up right after the reduction's loops.
    """
    asked = f"factor the reduction over loop `{ref.var.name}`"
    path = find_loop(func, ref, asked)
    below = blocks_under(path)
    loop = loop_of(path)
    require(
        func,
        asked,
        not_opaque(below),
        plain_loops((loop,)),
        constant_extent(loop),
        _one_reduction(loop, below),
    )
    mine = next(p for p in below if loop.var in bound_vars(block_of(p), AxisKind.REDUCE))
    parts = _parts(mine, loop)
    require(func, asked, parts if isinstance(parts, Reason) else None)
    assert not isinstance(parts, Reason)
    rank = len(parts.store.index)
    axis = factor_axis + rank + 1 if factor_axis < 0 else factor_axis
    require(
        func,
        asked,
        None if 0 <= axis <= rank else Reason(f"the new buffer has {rank + 1} dimensions"),
        *(constant_extent(x) for x in parts.others),
        visits_once(parts.block, loops_of(mine), [x for x in parts.inner if extent_of(x) != 1]),
        _separate_guards(parts.block, parts.inner),
        _monotone_guards(parts),
    )
    name = fresh_name(func, f"{parts.block.name}_rf")
    shape = list(parts.store.buffer.shape)
    shape.insert(axis, extent_of(loop) or 1)
    partial = Buffer(name, tuple(shape), parts.store.buffer.dtype)
    first, last = _partial_block(parts, name, partial, axis), _final_nest(parts, partial, axis)
    top = nest(func).loops[parts.inner[0].var]
    new = edit(func, [(mine, lambda _: first), (top, lambda s: seq(s, last))])
    new = replace(new, allocs=(*func.allocs, partial))
    require(func, asked, kinds_hold(new, (nest(new).blocks[name],)))
    return new, BlockRef(name)


def _one_reduction(loop: For, below: Sequence[Path]) -> Reason | None:
    blocks = [block_of(p) for p in below]
    over = [b for b in blocks if loop.var in bound_vars(b, AxisKind.REDUCE)]
    if len(over) == 1:
        return None
    why = "is no reduction loop" if not over else "drives several reductions"
    return Reason(f"loop `{loop.var.name}` {why}", (loop, *over))


def _parts(path: Path, loop: For) -> _Parts | Reason:
    block = block_of(path)
    update = update_of(block)
    if block.init is None or not isinstance(block.init, Store):
        return Reason(
            f"block `{block.name}` has no init of its own",
            (block,),
            "rfactor before decompose_reduction",
        )
    if update is None:
        return Reason(
            f"block `{block.name}` is no sum, product, maximum or minimum of one value", (block,)
        )
    reduce = bound_vars(block, AxisKind.REDUCE)
    if loop.var in bound_vars(block, AxisKind.SPATIAL):
        return Reason(f"loop `{loop.var.name}` also drives spatial axes", (loop, block))
    loops = loops_of(path)
    first = next(n for n, x in enumerate(loops) if x.var in reduce)
    others = tuple(x for x in loops if x.var in reduce and x is not loop)
    store, name, term = update
    return _Parts(block, loop, store, name, term, others, loops[first:])


def _monotone_guards(parts: _Parts) -> Reason | None:
    """Where a guard fails for the other reduction loops at 0, it fails for all their values."""
    others = {x.var for x in parts.others}
    for c in conjuncts(parts.block.predicate):
        if not free_vars(c) & others:
            continue
        ok = (
            isinstance(c, Op)
            and c.name == "lt"
            and not free_vars(c.args[1])
            and all(
                not isinstance(e, Op)
                or e.name in ("add", "multiply", "floordiv")
                or not free_vars(e) & others
                for e in walk_expr(c.args[0])
            )
        )
        if not ok:
            return Reason(f"a guard of block `{parts.block.name}` is too involved", (parts.block,))
    return None


def _spread(ix: Sequence[Expr], axis: int, at: Expr) -> tuple[Expr, ...]:
    return (*ix[:axis], at, *ix[axis:])


def _point(buffer: Buffer, ix: Sequence[Expr]) -> Region:
    return Region(buffer, tuple(Range(e, Const(1)) for e in ix))


def _partial_block(parts: _Parts, name: str, partial: Buffer, axis: int) -> Block:
    block, loop = parts.block, parts.loop
    spatial = tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL)
    axes = [replace(a, var=var(a.var.name)) for a in spatial]
    by: dict[Var, Expr] = {a.var: b.var for a, b in zip(spatial, axes, strict=True)}
    lane = BlockAxis(var(f"v{loop.var.name}"), extent_of(loop) or 1, AxisKind.SPATIAL, loop.var)
    rest = [
        BlockAxis(var(f"v{x.var.name}"), extent_of(x) or 1, AxisKind.REDUCE, x.var)
        for x in parts.others
    ]
    of_loop: dict[Var, Expr] = {loop.var: lane.var}
    of_loop.update((x.var, a.var) for x, a in zip(parts.others, rest, strict=True))
    for a in block.axes:
        if a.kind is AxisKind.REDUCE:
            by[a.var] = substitute_expr(a.value, of_loop)
    at = _spread([substitute_expr(e, by) for e in parts.store.index], axis, lane.var)
    term = parts.term
    own = _point(partial, at)
    reads = tuple(_renamed(r, by) for r in block.reads if r.buffer is not parts.store.buffer)
    value = op(parts.name, Load(partial, at), term) if rest else term
    dtype = partial.dtype
    zero = identity(parts.name, dtype)
    return replace(
        block,
        name=name,
        axes=(*axes, lane, *rest),
        reads=(own, *reads) if rest else reads,
        writes=(own,),
        body=substitute(_with_store(block.body, Store(partial, at, value)), by),
        init=Store(partial, at, Const(float(zero) if dtype.is_float else zero, dtype))
        if rest
        else None,
    )


def _with_store(body: Stmt, store: Store) -> Stmt:
    """A body of a store under ``Let``s, with another store."""
    return replace(body, body=_with_store(body.body, store)) if isinstance(body, Let) else store


def _final_nest(parts: _Parts, partial: Buffer, axis: int) -> Stmt:
    block, loop = parts.block, parts.loop
    again = var(loop.var.name)
    lane = BlockAxis(var(f"v{loop.var.name}"), extent_of(loop) or 1, AxisKind.REDUCE, again)
    spatial = tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL)
    at = _spread(parts.store.index, axis, lane.var)
    own = Load(parts.store.buffer, parts.store.index)
    by: dict[Var, Expr] = {loop.var: again, **{x.var: Const(0) for x in parts.others}}
    guard = None if block.predicate is None else simplify(substitute_expr(block.predicate, by), {})
    final = replace(
        block,
        axes=(*spatial, lane),
        reads=(*(r for r in _with_own(block) if r.buffer is own.buffer), _point(partial, at)),
        body=replace(parts.store, value=op(parts.name, own, Load(partial, at))),
        predicate=guard,
    )
    inside = For(again, loop.extent, final, Kind.SERIAL)
    return _under_copies(inside, _spatial_loops(block, parts.inner))
