"""Reshaping loops: split, fuse, reorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ...ir.loop.build import add, as_int, both, floordiv, floormod, lt, mul, number_of, var
from ...ir.loop.names import called, parts
from ...ir.loop.names import fused as fused_name
from ...ir.loop.nodes import AxisKind, Block, Const, Expr, For, Func, Op, Stmt, Var
from ...ir.loop.visit import map_expr, map_stmt, substitute_expr, walk_expr
from ..concurrent import check_loop_kinds
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
    loop_of,
    loops_of,
    named,
    nest,
)
from ..declare import primitive
from ..errors import Reason, ScheduleError, obtain, require
from ..legality import (
    bound_vars,
    chain,
    depth_allows,
    no_opaque_reduction,
    only_blocks,
    plain_loops,
    rectangular,
    reduces,
    self_contained,
    sound_order,
)
from ..threads import still_shared

MAX_FACTORS = 16
MAX_EXTENT = 2**62
MAX_INDEX = 500  # nodes of one index expression


@primitive
def split(
    func: Func, loop: LoopRef, factors: tuple[int | None, ...]
) -> tuple[Func, tuple[LoopRef, ...]]:
    """Split a loop into loops of the given extents, outer to inner.

    One factor may be None: it is the least that covers the loop's extent. If the product exceeds
    the extent, the blocks below get a predicate.

    Refused:
        - a product of the factors below the extent: iterations would be missing
        - a loop that is parallel, vectorized or bound: split first, then set its kind
        - factors that do not divide the extent, with statements other than blocks below, which
          cannot have a predicate
        - a loop that drives a reduction axis of an opaque block

    Example:
        sch = chain()
        (i,) = sch.get_loops("B")
        sch.split(i, [None, 4])
    """
    asked = f"split loop `{named(func, loop)}` into {_listed(factors)}"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    below = blocks_under(path)
    require(func, asked, plain_loops((node,)), no_opaque_reduction(below, (node,)))
    extents = _extents(func, asked, node, factors)
    n = extent_of(node)
    tail = n is None or prod(e for e in map(as_int, extents) if e is not None) != n
    require(
        func,
        asked,
        *(depth_allows(p, len(factors) - 1) for p in below),
        only_blocks(path) if tail else None,
    )
    names = [*map(var, parts(node.var.name, len(extents)))]
    value = number_of(names, extents)
    guard = lt(value, node.extent) if tail else None
    body = _bind(func, asked, node.body, {node.var: value}, guard)
    for v, x in zip(reversed(names), reversed(extents), strict=True):
        body = For(v, x, body)
    inner = body
    new = edit(func, [(path, lambda _: inner)])
    require(func, asked, *map(still_shared, blocks_under(nest(new).loops[names[0]])))
    return new, tuple(map(LoopRef, names))


def _listed(factors: Sequence[int | None]) -> str:
    return "[" + ", ".join(map(str, factors)) + "]"


def _extents(func: Func, asked: str, loop: For, factors: Sequence[int | None]) -> tuple[Expr, ...]:
    known = [f for f in factors if f is not None]
    if not 1 <= len(factors) <= MAX_FACTORS or len(factors) - len(known) > 1:
        raise ScheduleError(
            asked,
            f"give 1 to {MAX_FACTORS} factors, at most one of them None",
            nest=func,
            hint="split a loop of the result again",
        )
    if any(f < 1 for f in known):
        raise ScheduleError(
            asked, "every factor is a positive integer or None", nest=func, hint="such as [None, 8]"
        )
    whole, n = prod(known), extent_of(loop)
    if whole > MAX_EXTENT:
        raise ScheduleError(
            asked,
            "the factors' product is too large",
            nest=func,
            hint="let one factor be None: it is then as small as possible",
        )
    if len(known) == len(factors) and (n is None or whole < n):
        raise ScheduleError(
            asked,
            f"{whole} iterations do not cover the loop's extent",
            hint="let one factor be None",
            nest=func,
            blame=(loop,),
        )
    rest = floordiv(add(loop.extent, whole - 1), whole)
    return tuple(rest if f is None else Const(f) for f in factors)


def _bind(
    func: Func, asked: str, s: Stmt, by: Mapping[Var, Expr], guard: Expr | None = None
) -> Stmt:
    """Substitute loop variables in the bindings of blocks, and guard the blocks."""

    def value(e: Expr) -> Expr:
        new = substitute_expr(e, by)
        if new is e:
            return e
        new = _without_zeros(new)
        if sum(1 for _ in walk_expr(new)) > MAX_INDEX:
            raise ScheduleError(
                asked,
                "an index expression would grow too large",
                nest=func,
                hint="fuse and split fewer times: each adds to the index",
            )
        return new

    def go(x: Stmt) -> Stmt:
        if not isinstance(x, Block):
            return map_stmt(x, go, value)
        axes = tuple(a if (v := value(a.value)) is a.value else replace(a, value=v) for a in x.axes)
        old = None if x.predicate is None else value(x.predicate)
        return replace(x, axes=axes, predicate=both(old, guard))

    return go(s)


def _without_zeros(e: Expr) -> Expr:
    """Simplify ``0 * 4 + i`` to ``i``."""
    e = map_expr(e, _without_zeros)
    match e:
        case Op(name="add", args=(Const(value=0), a)) | Op(name="add", args=(a, Const(value=0))):
            return a
        case Op(name="multiply", args=(Const(value=0) as zero, _)):
            return zero
        case _:
            return e


@primitive
def fuse(func: Func, *refs: LoopRef) -> tuple[Func, LoopRef]:
    """Fuse directly nested loops, given outermost first, into one.

    ``for i in range(m): for j in range(n)``  ->  ``for i_j in range(m * n)``.

    Refused:
        - loops with statements between them, or not in the order of the nest: reorder first
        - a spatial and a reduction loop of one block: the fused loop would be neither
        - loops whose extent depends on another one's variable, and loops that are not serial

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.fuse(i, j)
    """
    asked = f"fuse loops {', '.join(f'`{named(func, r)}`' for r in refs)}"
    if not refs:
        raise ScheduleError(
            asked, "no loop was given", nest=func, hint="name one loop or more, outermost first"
        )
    paths = [find_loop(func, r, asked) for r in refs]
    loops = tuple(loop_of(p) for p in paths)
    below = blocks_under(paths[-1])
    linked = chain(paths)
    require(
        func,
        asked,
        linked if isinstance(linked, Reason) else _in_this_order(linked, loops),
        plain_loops(loops),
        rectangular(loops),
        no_opaque_reduction(below, loops),
        *(_one_kind(block_of(p), loops) for p in below),
    )
    if len(loops) == 1:
        return func, refs[0]
    extents = [loop.extent for loop in loops]
    total: Expr = Const(1)
    for e in extents:
        total = mul(total, e)
    if (as_int(total) or 0) > MAX_EXTENT:
        raise ScheduleError(
            asked, "the fused extent is too large", nest=func, hint="fuse fewer of them"
        )
    fused = var(fused_name([loop.var.name for loop in loops]))
    by: dict[Var, Expr] = {x.var: Const(0) for x in loops if extent_of(x) == 1}
    several = [x for x in loops if x.var not in by]
    rest: Expr = fused
    for loop in reversed(several[1:]):
        by[loop.var] = floormod(rest, loop.extent)
        rest = floordiv(rest, loop.extent)
    by.update((x.var, rest) for x in several[:1])
    body = _bind(func, asked, loops[-1].body, by)
    new = edit(func, [(paths[0], lambda _: For(fused, total, body))])
    require(func, asked, *map(still_shared, blocks_under(nest(new).loops[fused])))
    return new, LoopRef(fused)


def _in_this_order(linked: Sequence[For], loops: Sequence[For]) -> Reason | None:
    if len(linked) == len(loops) and all(a is b for a, b in zip(linked, loops, strict=True)):
        return None
    order = ", ".join(f"`{called(x)}`" for x in linked)
    return Reason(
        "they are not directly nested, outermost first",
        tuple(linked),
        hint=f"the nest has {order}; reorder first",
    )


def _one_kind(block: Block, loops: Sequence[For]) -> Reason | None:
    """Require that the fused loop does not drive both spatial and reduction axes of a block."""
    if not reduces(block):
        return None
    reduce = bound_vars(block, AxisKind.REDUCE)
    kinds = {x.var in reduce for x in loops if extent_of(x) != 1}
    if len(kinds) < 2:
        return None
    return Reason(
        f"the fused loop would drive both spatial and reduction axes of block `{block.name}`",
        (*loops, block),
        hint="fuse loops of one kind",
    )


@primitive
def reorder(func: Func, *refs: LoopRef) -> Func:
    """Reorder loops of one perfect nest; the other loops of the nest keep their places.

    Refused:
        - loops that are not nested, or have other statements between them
        - an order in which a value is read before it is written, or that changes the order of
          updates that do not commute
        - loops whose extent depends on another one's variable

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.reorder(k, j)
    """
    asked = f"reorder loops {', '.join(f'`{named(func, r)}`' for r in refs)}"
    if not refs or len({r.var for r in refs}) != len(refs):
        raise ScheduleError(
            asked, "name each loop once", nest=func, hint="such as sch.reorder(k, i, j)"
        )
    paths = [find_loop(func, r, asked) for r in refs]
    linked = obtain(func, asked, chain(paths))
    moved = {r.var for r in refs}
    wanted = iter([loop_of(p) for p in paths])
    order = [next(wanted) if x.var in moved else x for x in linked]
    if all(a is b for a, b in zip(order, linked, strict=True)):
        return func
    bottom = max(paths, key=len)
    top = min(paths, key=len)
    below = blocks_under(bottom)
    above, under = loops_of(top)[:-1], len(loops_of(bottom))
    require(
        func,
        asked,
        rectangular(linked),
        self_contained(func, below) if len(below) > 1 else None,
        *(
            sound_order(block_of(p), (*above, *order, *loops_of(p)[under:]), loops_of(p))
            or _complete(block_of(p))
            for p in below
        ),
    )
    body = linked[-1].body
    for loop in reversed(order):
        body = replace(loop, body=body)
    new = edit(func, [(top, lambda _: body)])
    require(func, asked, check_loop_kinds(new, _chain_paths(new, linked)))
    return new


def _complete(block: Block) -> Reason | None:
    own = {r.buffer for r in block.writes}
    if not reduces(block) and any(r.buffer in own for r in block.reads):
        return Reason(
            f"block `{block.name}` reads what it writes",
            (block,),
            hint="only the loops of reductions can be reordered where a block reads its own result",
        )
    return None


def _chain_paths(func: Func, loops: Sequence[For]) -> list[Path]:
    if all(x.kind.value in ("range", "unroll") for x in loops):
        return []
    return [max((nest(func).loops[x.var] for x in loops), key=len)]


@primitive
def add_unit_loop(func: Func, block: BlockRef) -> tuple[Func, LoopRef]:
    """Put a block into a loop of extent 1, to bind it or to compute other blocks in it.

    Refused:
        - a nest that would become too deep

    Example:
        sch = chain()
        sch.add_unit_loop("B")
    """
    asked = f"put block `{block.name}` into a loop"
    path = find_block(func, block, asked)
    require(func, asked, depth_allows(path, 1))
    unit = var("u")
    return edit(func, [(path, lambda s: For(unit, Const(1), s))]), LoopRef(unit)


@primitive
def tile(
    func: Func, i: LoopRef, j: LoopRef, rows: int, columns: int
) -> tuple[Func, tuple[LoopRef, ...]]:
    """Split two loops and move the inner ones innermost: ``i_tile, j_tile, i_in, j_in``.

    ``i_in`` has the extent ``rows``, ``j_in`` the extent ``columns``.

    Refused:
        - what ``split`` or ``reorder`` refuse: the schedule is then unchanged

    Example:
        sch = product()
        i, j = sch.get_loops("D")
        sch.tile(i, j, 4, 2)
    """
    func, (i0, i1) = split(func, i, (None, rows))
    func, (j0, j1) = split(func, j, (None, columns))
    return reorder(func, i0, j0, i1, j1), (i0, j0, i1, j1)
