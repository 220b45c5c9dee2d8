"""Splitting reductions: decompose_reduction, rfactor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.loop.build import FALSE, point, var, whole_of
from ...ir.loop.names import called
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
    Region,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import (
    free_vars,
    loads_under,
    map_region,
    seq,
    substitute,
    substitute_expr,
)
from ..combiner import Combiner, by_operation, combined_stores, combiner_of
from ..concurrent import check_loop_kinds
from ..cursor import (
    BlockRef,
    LoopRef,
    Path,
    block_of,
    blocks_under,
    consumers,
    contains,
    edit,
    extent_of,
    find_block,
    find_loop,
    fresh_name,
    loop_of,
    loops_of,
    named,
    nest,
    ranges_of,
)
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..guards import starting_guard
from ..legality import (
    bound_vars,
    constant_extent,
    not_opaque,
    plain_loops,
    reduces,
    self_contained,
    visits_once,
)
from ..stores import update_of
from ..threads import is_shared


@primitive
def decompose_reduction(func: Func, block: BlockRef, loop: LoopRef) -> tuple[Func, BlockRef]:
    """Move the init of a reduction into a block of its own before a loop; return that block.

    ``for k: C (init, update)``  ->  ``C_init; for k: C (update)``. The new block is under copies
    of those loops from ``loop`` inward that drive spatial axes.

    Refused:
        - a block without an init
        - a loop inside a reduction loop of the block: the init would run in each iteration
        - a reduction that threads share: do this before ``bind``

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.decompose_reduction("C", k)
    """
    asked = f"decompose the reduction `{block.name}` at loop `{named(func, loop)}`"
    path, target = find_block(func, block, asked), find_loop(func, loop, asked)
    node = block_of(path)
    require(func, asked, not_opaque((path,)), _has_init(node), _around(path, target))
    require(func, asked, _not_shared(path))
    inner = loops_of(path)[len(loops_of(target)) - 1 :]
    require(
        func,
        asked,
        _no_reduction_above(node, loops_of(target)[:-1]),
        visits_once(node, loops_of(path), [x for x in inner if extent_of(x) != 1]),
        _init_guardable(node),
    )
    assert node.init is not None
    node = _units_at_zero(node)
    name = fresh_name(func, f"{node.name}_init")
    start = _init_block(node, name, ranges_of(loops_of(path)))
    clone = _in_fresh_loops(start, _spatial_loops(node, inner, start.predicate))
    update = replace(node, init=None, reads=_with_own(node))
    new = edit(func, [(path, lambda _: update), (target, lambda s: seq(clone, s))])
    require(func, asked, check_loop_kinds(new, (nest(new).blocks[name],)))
    return new, BlockRef(name)


def _units_at_zero(block: Block) -> Block:
    """Bind the block's spatial axes of extent 1 to 0, independent of loops."""
    axes = tuple(
        replace(a, value=Const(0)) if a.extent == 1 and a.kind is AxisKind.SPATIAL else a
        for a in block.axes
    )
    return replace(block, axes=axes)


def _has_init(block: Block) -> Reason | None:
    if block.init is not None and reduces(block):
        return None
    return Reason(
        f"block `{block.name}` is not a reduction with an init",
        (block,),
        hint="decompose a reduction once, while its init is part of it",
    )


def _not_shared(path: Path) -> Reason | None:
    """Require that no threads share the reduction, which would tie its init to its updates."""
    block = block_of(path)
    shared = next((x for x in loops_of(path) if is_shared(block, x)), None)
    if shared is None:
        return None
    return Reason(
        f"the threads of loop `{called(shared)}` share the reduction `{block.name}`",
        (shared, block),
        hint="do this before bind",
    )


def _around(path: Path, target: Path) -> Reason | None:
    loop = loop_of(target)
    if contains(path, loop):
        return None
    names = ", ".join(f"`{called(x)}`" for x in loops_of(path))
    return Reason(
        f"loop `{called(loop)}` is not around the block",
        (loop, path[-1]),
        hint=f"around it: {names}",
    )


def _no_reduction_above(block: Block, loops: Sequence[For]) -> Reason | None:
    reduce = bound_vars(block, AxisKind.REDUCE)
    for loop in loops:
        if loop.var in reduce and extent_of(loop) != 1:
            return Reason(
                f"reduction loop `{called(loop)}` is outside: the init would run in each of its "
                "iterations",
                (loop, block),
                hint=f"decompose at `{called(loop)}` or further out",
            )
    return None


def _init_guardable(block: Block) -> Reason | None:
    """Require that a guard that fails for an element's first term fails for all its terms."""
    if starting_guard(block) != FALSE:
        return None
    return Reason(
        f"the guard of block `{block.name}` is too complex",
        (block,),
        hint="do this before the splits that guard it",
    )


def _spatial_loops(block: Block, loops: Sequence[For], guard: Expr | None) -> tuple[For, ...]:
    """Return the loops that drive spatial axes or occur in the guard."""
    wanted = bound_vars(block, AxisKind.SPATIAL)
    if guard is not None:
        wanted |= free_vars(guard)
    return tuple(x for x in loops if x.var in wanted)


def _init_block(block: Block, name: str, extents: Mapping[Var, int]) -> Block:
    """Return the init as a block over the spatial axes, with the first update's guard."""
    assert block.init is not None
    spatial = tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL)
    axes = tuple(replace(a, var=var(a.var.name)) for a in spatial)
    by: dict[Var, Expr] = {a.var: b.var for a, b in zip(spatial, axes, strict=True)}
    return Block(
        name,
        axes,
        tuple(_substituted(r, by) for r in _init_reads(block)),
        tuple(_substituted(r, by) for r in block.writes),
        substitute(block.init, by),
        predicate=starting_guard(block, extents),
    )


def _init_reads(block: Block) -> tuple[Region, ...]:
    """Return the regions that the init loads, except the block's own results.

    A region is a point if the spatial axes give its index, else the whole buffer.
    """
    assert block.init is not None
    own = {r.buffer for r in block.writes}
    axes = {a.var for a in block.axes if a.kind is AxisKind.SPATIAL}
    found: dict[Region, None] = {}
    for load in loads_under(block.init):
        if load.buffer in own:
            continue
        inside = all(free_vars(e) <= axes for e in load.index)
        found[point(load.buffer, load.index) if inside else whole_of(load.buffer)] = None
    return tuple(found)


def _substituted(r: Region, by: Mapping[Var, Expr]) -> Region:
    return map_region(r, lambda e: substitute_expr(e, by))


def _in_fresh_loops(inside: Stmt, kept: Sequence[For]) -> Stmt:
    """Return a nest under fresh copies of the loops in ``kept``."""
    by: dict[Var, Expr] = {x.var: var(x.var.name) for x in kept}
    body = _rebound(inside, by)
    for x in reversed(kept):
        v = by[x.var]
        assert isinstance(v, Var)
        body = For(v, substitute_expr(x.extent, by), body, x.kind, x.thread, x.notes)
    return body


def _rebound(s: Stmt, by: Mapping[Var, Expr]) -> Stmt:
    """Substitute loop variables in the bindings of a block, or of a loop around one."""
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
    """Return the reads of an update, including what it writes."""
    missing = (w for w in block.writes if all(r.buffer is not w.buffer for r in block.reads))
    return (*missing, *block.reads)


@dataclass(frozen=True, slots=True)
class _RfactorParts:
    """The reduction that rfactor splits."""

    block: Block
    loop: For
    combiner: Combiner
    others: tuple[For, ...]  # the other reduction loops
    inner: tuple[For, ...]  # the loops from the outermost reduction loop inward
    extents: Mapping[Var, int]  # of all loops around the block


@primitive
def rfactor(func: Func, loop: LoopRef, factor_axis: int = 0) -> tuple[Func, BlockRef]:
    """Give each iteration of a reduction loop a partial result; return the block of those.

    ``for k: C += f``  ->  ``for k: C_rf[k] += f; for k: C += C_rf[k]``. The partial results have a
    new dimension ``factor_axis``; their block replaces the old one, and its loop is spatial. The
    old block combines them right after the reduction's loops. Several values that are reduced
    together, as a maximum and its place, have partial results each.

    Refused:
        - a loop that is not a reduction loop, or one of several blocks
        - a reduction that is not a sum, product, maximum or minimum, and of which it is not known
          how to combine two partial results
        - a loop inside of another reduction loop, if the terms must stay in order
        - a reduction whose init is a block of its own already, and one that threads share

    Example:
        sch = row_sums()
        i, k = sch.get_loops("S")
        sch.rfactor(k)
    """
    asked = f"factor the reduction over loop `{named(func, loop)}`"
    path = find_loop(func, loop, asked)
    below = blocks_under(path)
    node = loop_of(path)
    require(
        func,
        asked,
        not_opaque(below),
        plain_loops((node,)),
        constant_extent(node),
        _one_reduction(node, below),
    )
    mine = next(p for p in below if node.var in bound_vars(block_of(p), AxisKind.REDUCE))
    require(func, asked, _not_shared(mine))
    parts = obtain(func, asked, _parts(mine, node))
    rank = len(parts.combiner.index)
    axis = factor_axis + rank + 1 if factor_axis < 0 else factor_axis
    require(
        func,
        asked,
        _has_axis(rank + 1, axis),
        *(constant_extent(x) for x in parts.others),
        visits_once(parts.block, loops_of(mine), [x for x in parts.inner if extent_of(x) != 1]),
        _init_guardable(parts.block),
    )
    name = fresh_name(func, f"{parts.block.name}_rf")
    new = _factored(func, mine, replace(parts, block=_units_at_zero(parts.block)), name, axis)
    index = nest(new)
    users = consumers(new, index.block(parts.block.name))
    final = (index.blocks[parts.block.name], *users)
    kinds = check_loop_kinds(new, (index.blocks[name], *final))
    require(func, asked, self_contained(new, final), kinds)
    return new, BlockRef(name)


def _has_axis(rank: int, axis: int) -> Reason | None:
    if 0 <= axis < rank:
        return None
    why = f"the new buffer has {rank} dimensions"
    return Reason(why, hint=f"factor_axis is {-rank} to {rank - 1}")


def _factored(func: Func, mine: Path, parts: _RfactorParts, name: str, axis: int) -> Func:
    """Return ``func`` with the block of partial results, and the nest that combines them."""
    names: list[str] = []
    partial: list[Buffer] = []
    for old in parts.combiner.buffers:
        shape = list(old.shape)
        shape.insert(axis, extent_of(parts.loop) or 1)
        names.append(name if not names else fresh_name(func, f"{name}_{len(names)}"))
        partial.append(Buffer(names[-1], tuple(shape), old.dtype))
    first, last = _partial_block(parts, name, partial, axis), _final_nest(parts, partial, axis)
    top = nest(func).loops[parts.inner[0].var]
    new = edit(func, [(mine, lambda _: first), (top, lambda s: seq(s, last))])
    return replace(new, allocs=(*func.allocs, *partial))


def _one_reduction(loop: For, below: Sequence[Path]) -> Reason | None:
    blocks = [block_of(p) for p in below]
    over = [b for b in blocks if loop.var in bound_vars(b, AxisKind.REDUCE)]
    if len(over) == 1:
        return None
    why = "is not a reduction loop" if not over else "drives several reductions"
    found = {v.name: None for b in blocks for v in bound_vars(b, AxisKind.REDUCE)}
    names = ", ".join(f"`{n}`" for n in sorted(found))
    return Reason(
        f"loop `{called(loop)}` {why}",
        (loop, *over),
        hint=f"reduction loops: {names or 'none'}",
    )


def _parts(path: Path, loop: For) -> _RfactorParts | Reason:
    block = block_of(path)
    if block.init is None:
        return Reason(
            f"block `{block.name}` has no init of its own",
            (block,),
            hint="rfactor before decompose_reduction",
        )
    how = _combiner(block)
    if how is None:
        return Reason(
            f"it is not known how to combine two partial results of block `{block.name}`",
            (block,),
            hint="sums, products, maxima, minima and associative combinations of several values "
            "have partial results",
        )
    reduce = bound_vars(block, AxisKind.REDUCE)
    if loop.var in bound_vars(block, AxisKind.SPATIAL):
        return Reason(
            f"loop `{called(loop)}` also drives spatial axes",
            (loop, block),
            hint="split off a loop of the reduction alone",
        )
    loops = loops_of(path)
    over = [x for x in loops if x.var in reduce]
    if not how.commutes and loop is not over[0]:
        return Reason(
            f"the terms of block `{block.name}` must stay in order, and `{called(over[0])}` is "
            f"outside of `{called(loop)}`",
            (over[0], loop, block),
            hint=f"split so that `{called(loop)}` is the outermost reduction loop",
        )
    others = tuple(x for x in over if x is not loop)
    return _RfactorParts(block, loop, how, others, loops[loops.index(over[0]) :], ranges_of(loops))


def _combiner(block: Block) -> Combiner | None:
    """Return the combiner of a reduction; terms of a single operation may name the ``Let``s."""
    update = update_of(block)
    if update is None:
        return combiner_of(block)
    store, name, term = update
    return (
        by_operation(name, store, term, block.init.value) if isinstance(block.init, Store) else None
    )


def _with_axis(ix: Sequence[Expr], axis: int, at: Expr) -> tuple[Expr, ...]:
    return (*ix[:axis], at, *ix[axis:])


def _partial_block(parts: _RfactorParts, name: str, partial: Sequence[Buffer], axis: int) -> Block:
    block, loop, how = parts.block, parts.loop, parts.combiner
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
    at = _with_axis([substitute_expr(e, by) for e in how.index], axis, lane.var)
    own = tuple(point(b, at) for b in partial)
    reads = tuple(_substituted(r, by) for r in block.reads if r.buffer not in how.buffers)
    places = [(b, at) for b in partial]
    body = seq(*(Store(*place, e) for place, e in zip(places, how.terms, strict=True)))
    if rest:
        body = combined_stores(how, [Load(*x) for x in places], how.terms, places)
    zeros = seq(*(Store(*place, e) for place, e in zip(places, how.neutral, strict=True)))
    return replace(
        block,
        name=name,
        axes=(*axes, lane, *rest),
        reads=(*own, *reads) if rest else reads,
        writes=own,
        body=substitute(_with_stores(block, body), by),
        init=zeros if rest else None,
    )


def _with_stores(block: Block, stores: Stmt) -> Stmt:
    """Return other stores under the ``Let``s that the term of a single operation may name."""
    return _with_store(block.body, stores) if update_of(block) is not None else stores


def _with_store(body: Stmt, store: Stmt) -> Stmt:
    """Replace the store in a body of a store under ``Let``s."""
    return replace(body, body=_with_store(body.body, store)) if isinstance(body, Let) else store


def _final_nest(parts: _RfactorParts, partial: Sequence[Buffer], axis: int) -> Stmt:
    block, loop, how = parts.block, parts.loop, parts.combiner
    again = var(loop.var.name)
    lane = BlockAxis(var(f"v{loop.var.name}"), extent_of(loop) or 1, AxisKind.REDUCE, again)
    spatial = tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL)
    at = _with_axis(how.index, axis, lane.var)
    places = [(b, how.index) for b in how.buffers]
    guard = starting_guard(block, parts.extents, [x.var for x in parts.others])
    final = replace(
        block,
        axes=(*spatial, lane),
        reads=(
            *(r for r in _with_own(block) if r.buffer in how.buffers),
            *_init_reads(block),
            *(point(b, at) for b in partial),
        ),
        body=combined_stores(
            how, [Load(*x) for x in places], [Load(b, at) for b in partial], places
        ),
        predicate=None if guard is None else substitute_expr(guard, {loop.var: again}),
    )
    inside = For(again, loop.extent, final, Kind.SERIAL)
    kept = _spatial_loops(block, [x for x in parts.inner if x is not loop], guard)
    return _in_fresh_loops(inside, kept)
