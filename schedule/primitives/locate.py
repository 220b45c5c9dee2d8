"""Moving blocks into loops of their consumers or producers: compute_at, reverse_compute_at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.loop.affine import linear
from ...ir.loop.build import add, as_int, both, var
from ...ir.loop.intrinsics import SPREAD
from ...ir.loop.names import called, part_of
from ...ir.loop.nodes import (
    OF_BLOCK,
    AxisKind,
    Block,
    BlockAxis,
    Const,
    Expr,
    For,
    Func,
    Op,
    Region,
    Scope,
    Seq,
    Stmt,
    Var,
)
from ...ir.loop.visit import free_vars, seq, substitute_expr
from ..concurrent import check_loop_kinds
from ..cursor import (
    BlockRef,
    LoopRef,
    Path,
    block_of,
    consumers,
    contains,
    edit,
    extent_of,
    find_block,
    find_loop,
    is_before,
    loop_of,
    loops_of,
    named,
    nest,
    producers,
)
from ..declare import primitive
from ..errors import Reason, require
from ..footprint import Interval, hull, reads_box, union, whole, writes_box
from ..guards import lasting_guards
from ..legality import (
    bound_vars,
    computes_once,
    depth_allows,
    not_an_output,
    not_opaque,
    self_contained,
    sole_writer,
    sound_order,
)

Domain = Mapping[Var, Interval]
"""The values of a block's axes that one iteration of the loops around it needs."""


@primitive
def compute_at(
    func: Func,
    block: BlockRef,
    loop: LoopRef,
    keep_unit_loops: bool = False,
    multiples: tuple[int, ...] = (),
) -> Func:
    """Move a block into a loop of its consumers, to compute what one iteration needs.

    New serial loops, one per axis of the block in the order of its axes, cover what is needed;
    an axis with only one needed value gets no loop, unless ``keep_unit_loops``. A predicate masks
    points outside the block's domain. Elements needed in several iterations are recomputed.
    ``multiples``, one per axis, round up the extents that are computed.

    For a buffer that threads of a GPU share, the block computes what all of them need (see
    ``shared_loop_vars``).

    Refused:
        - a loop that is not around every consumer of the block: ``compute_inline`` serves several
        - an output of the function that would no longer be written completely
        - a block that runs after the loop, or is in it already
        - a reduction whose init is another block

    Example:
        sch = product()
        i, j = sch.get_loops("D")
        sch.compute_at("C", i)
    """
    asked = f"compute block `{block.name}` at loop `{named(func, loop)}`"
    path, target = find_block(func, block, asked), find_loop(func, loop, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _consumers_inside(func, path, target),
        _guards_last(path),
        _one_per_axis(node, multiples),
        depth_allows(target, len(node.axes)),
    )
    users = consumers(func, node)
    domain = _rounded(node, _needed_domain(node, users, target), multiples)
    moved = regenerate(node, domain, keep_unit_loops, lasting_guards(path) or ())
    first = _first_child(target, users)
    new = edit(func, [(path, lambda _: None), (first, lambda s: seq(moved, s))])
    index = nest(new)
    here = index.blocks[node.name]
    feeders = [index.blocks[n] for r in node.reads for n in index.writers.get(r.buffer, ())]
    users = tuple(index.blocks[block_of(u).name] for u in users)
    require(
        func,
        asked,
        _outputs_whole(new, here),
        self_contained(new, _distinct((*feeders, here, *users))),
        check_loop_kinds(new, (*feeders, here, *users)),
    )
    return new


def _one_per_axis(block: Block, multiples: Sequence[int]) -> Reason | None:
    if not multiples or (len(multiples) == len(block.axes) and all(c > 0 for c in multiples)):
        return None
    return Reason(
        f"block `{block.name}` takes {len(block.axes)} positive multiples",
        (block,),
        hint=f"give one for each of the {len(block.axes)} axes, in order",
    )


def _rounded(block: Block, domain: Domain, multiples: Sequence[int]) -> Domain:
    """Round the extents of a domain up to multiples of the given numbers."""
    by = dict(zip([a.var for a in block.axes], multiples, strict=False))
    return {
        v: replace(x, high=x.low - 1 + -(-x.extent // by.get(v, 1)) * by.get(v, 1))
        for v, x in domain.items()
    }


def _outputs_whole(func: Func, path: Path) -> Reason | None:
    """Require that a moved block still writes every element of the function's outputs."""
    for r in block_of(path).writes:
        if r.buffer in func.params:
            box = writes_box(path, 0, r)
            shape = r.buffer.shape
            if box is None or any(x != whole(n) for x, n in zip(box, shape, strict=True)):
                return not_an_output(func, block_of(path))
    return None


def _guards_last(path: Path) -> Reason | None:
    if lasting_guards(path) is not None:
        return None
    block = block_of(path)
    return Reason(
        f"the guard of block `{block.name}` cannot be kept under other loops",
        (block,),
        hint="move it before it is guarded: compute_at first, then split",
    )


def _distinct(paths: Sequence[Path]) -> list[Path]:
    return list({id(p[-1]): p for p in paths}.values())


def _consumers_inside(func: Func, path: Path, target: Path) -> Reason | None:
    block, loop = block_of(path), loop_of(target)
    if contains(path, loop):
        return Reason(
            f"the block is already inside loop `{named(func, loop)}`",
            (loop, block),
            hint="choose a loop of its consumers that is not around it",
        )
    users = consumers(func, block)
    outside = [u for u in users if not contains(u, loop)]
    if not users or len(outside) == len(users):
        return Reason(
            f"loop `{named(func, loop)}` is not around a consumer of `{block.name}`",
            (block, loop),
            hint=_loops_around(users),
        )
    if outside:
        return Reason(
            f"its consumer `{block_of(outside[0]).name}` is outside loop `{named(func, loop)}`",
            (block, loop, block_of(outside[0])),
            hint=_loops_around(users),
        )
    if not is_before(path, target):
        return Reason(
            f"loop `{named(func, loop)}` runs before the block",
            (loop, block),
            hint="choose a loop that comes after it",
        )
    return None


def _loops_around(users: Sequence[Path]) -> str:
    if not users:
        return "nothing reads what the block writes"
    shared = [x for x in loops_of(users[0]) if all(contains(u, x) for u in users)]
    names = ", ".join(f"`{called(x)}`" for x in shared)
    if not names:
        return "compute_inline inlines it into each of its consumers"
    return f"loops around all its consumers: {names}"


def _first_child(target: Path, users: Sequence[Path]) -> Path:
    """Return the path of the first statement in the target's body that contains a user."""
    depth = len(target)
    body = loop_of(target).body
    if not isinstance(body, Seq):
        return (*target, body)
    kids = {id(u[depth + 1]) for u in users}
    child = next(s for s in body.stmts if id(s) in kids)
    return (*target, body, child)


def _needed_domain(block: Block, users: Sequence[Path], target: Path) -> Domain:
    """Return the values of each axis that the users need in one iteration of ``target``.

    Axes that are needed completely are left out.
    """
    found: dict[Var, Interval | None] = {}
    for region in block.writes:
        moving = shared_loop_vars(region.buffer.scope, target)
        boxes = [
            b for u in users if (b := reads_box(u, len(target), region.buffer, moving)) is not None
        ]
        if not boxes:
            continue
        need = hull(boxes, region.buffer)
        here = axes_from_box(block, [(r.start, as_int(r.extent)) for r in region.ranges], need)
        for a in block.axes:
            x = here.get(a.var)
            if a.var in found:
                old = found[a.var]
                x = None if x is None or old is None else union(old, x)
            found[a.var] = x
    return {v: x for v, x in found.items() if x is not None}


def shared_loop_vars(scope: Scope, path: Path) -> frozenset[Var]:
    """Return the loops on a path whose threads share memory of a scope.

    All threads of a block share shared and tensor memory, those of ``threadIdx.x`` a warp's tiles;
    other scopes are private to each thread.
    """
    of_block = dict.fromkeys(OF_BLOCK, "threadIdx")
    indices = {**of_block, **dict.fromkeys(SPREAD, "threadIdx.x")}.get(scope)
    if indices is None:
        return frozenset()
    return frozenset(x.var for x in loops_of(path) if x.thread.startswith(indices))


def axes_from_box(
    block: Block, index: Sequence[tuple[Expr, int | None]], box: Sequence[Interval]
) -> dict[Var, Interval]:
    """Return the values of spatial axes for which an index over the axes may be in a box."""
    spatial = {a.var for a in block.axes if a.kind is AxisKind.SPATIAL}
    found: dict[Var, Interval] = {}
    for (start, length), x in zip(index, box, strict=True):
        match start:
            case Var() as v if length == 1:
                pass
            case Op(name="floordiv", args=(Var() as v, Const(value=int(c)))) if length == 1:
                x = _times(x, c)
            case _:
                found.update(_digits_from(start, x, block) if length == 1 else {})
                continue
        if v in spatial and (v not in found or x.extent < found[v].extent):
            found[v] = x
    return found


def _digits_from(e: Expr, x: Interval, block: Block) -> dict[Var, Interval]:
    """Return the values of two axes for which ``high * n + low`` may be in an interval.

    ``low`` has ``n`` values. Empty for other indices, and for an interval that may hold values of
    several ``high``.
    """
    extents = {a.var: a.extent for a in block.axes if a.kind is AxisKind.SPATIAL}
    form = linear(e)
    by_step = sorted(form.terms.items(), key=lambda term: term[1])
    if form.constant or len(by_step) != 2 or any(v not in extents for v, _ in by_step):
        return {}
    (low, one), (high, n) = by_step
    assert isinstance(low, Var) and isinstance(high, Var)
    rest = replace(x, start=tuple((d, k) for d, k in x.start if k % n))
    if one != 1 or extents[low] != n or rest.least() < 0 or rest.most() >= n:
        return {}
    return {high: Interval(tuple((d, k // n) for d, k in x.start if not k % n), 0, 0), low: rest}


def _times(x: Interval, c: int) -> Interval:
    """Return the interval of values whose quotient by ``c`` is in ``x``."""
    return Interval(tuple((d, k * c) for d, k in x.start), x.low * c, x.high * c + c - 1)


def regenerate(
    block: Block,
    domain: Domain,
    keep_unit_loops: bool = False,
    lasting: Sequence[Expr] = (),
) -> Stmt:
    """Return a block under new loops over ``domain``; axes not in it get their whole extent.

    ``lasting`` are conditions on the axes that always guard the block.
    """
    guarded = {v for c in lasting for v in free_vars(c)}
    axes: list[BlockAxis] = []
    loops: list[tuple[Var, int]] = []
    guards: list[Expr | None] = []
    for a in block.axes:
        x = domain.get(a.var, whole(a.extent))
        if x.extent >= a.extent:
            x = whole(a.extent)
        n = x.extent if a.extent else 0  # an empty axis needs a loop that never runs
        value = x.base()
        if n != 1 or keep_unit_loops or a.var in guarded:
            name = a.var.name.removeprefix("v") or a.var.name
            v = var(name if n == a.extent else part_of(name))
            loops.append((v, n))
            value = add(value, v) if value != Const(0) else v
        axes.append(replace(a, value=value))
        guards.append(x.guard(value, a.extent))
    values: dict[Var, Expr] = {a.var: a.value for a in axes}
    guards += [substitute_expr(c, values) for c in lasting]
    body: Stmt = replace(block, axes=tuple(axes), predicate=both(*guards))
    for v, n in reversed(loops):
        body = For(v, Const(n), body)
    return body


@primitive
def reverse_compute_at(
    func: Func, block: BlockRef, loop: LoopRef, keep_unit_loops: bool = False
) -> Func:
    """Move a block into a loop of its producer, after it, to consume what one iteration writes.

    The block's axes that index what the producer writes cover what one iteration wrote; the
    others have their whole extent.

    Refused:
        - a reduction loop of the producer: the result is not final there
        - a loop that is not around a producer of the block, or already around the block
        - a producer that does not write a box of the block's domain in one iteration

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.reverse_compute_at("D", i)
    """
    asked = f"compute block `{block.name}` after its producer at loop `{named(func, loop)}`"
    path, target = find_block(func, block, asked), find_loop(func, loop, asked)
    node, host = block_of(path), loop_of(target)
    feeders = producers(func, node)
    inside = [p for p in feeders if contains(p, host)]
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _after_producer(path, target, feeders),
        _guards_last(path),
        _finished(inside, target, path),
        depth_allows(target, len(node.axes)),
    )
    domain = _provided_domain(func, node, inside, len(target))
    require(func, asked, domain if isinstance(domain, Reason) else None)
    assert not isinstance(domain, Reason)
    moved = regenerate(node, domain, keep_unit_loops, lasting_guards(path) or ())
    last = _last_child(target, inside)
    new = edit(func, [(path, lambda _: None), (last, lambda s: seq(s, moved))])
    index = nest(new)
    here = index.blocks[node.name]
    again = [index.blocks[block_of(p).name] for p in feeders]
    users = [index.blocks[block_of(u).name] for u in consumers(func, node)]
    require(
        func,
        asked,
        self_contained(new, _distinct((*again, here, *users))),
        sound_order(block_of(here), loops_of(here)),
        check_loop_kinds(new, (*again, here, *users)),
    )
    return new


def _loops_of(feeders: Sequence[Path]) -> str:
    if not feeders:
        return "no block writes what this one reads"
    names = dict.fromkeys(f"`{called(x)}`" for p in feeders for x in loops_of(p))
    return f"loops around its producers: {', '.join(names) or 'none'}"


def _after_producer(path: Path, target: Path, feeders: Sequence[Path]) -> Reason | None:
    block, loop = block_of(path), loop_of(target)
    inside = [p for p in feeders if contains(p, loop)]
    if contains(path, loop):
        return Reason(
            f"the block is already inside loop `{called(loop)}`",
            (loop, block),
            hint="choose a loop of its producer that is not around it",
        )
    if not inside:
        return Reason(
            f"loop `{called(loop)}` is not around a producer of `{block.name}`",
            (loop, block),
            hint=_loops_of(feeders),
        )
    if not is_before(target, path):
        return Reason(
            f"loop `{called(loop)}` runs after the block",
            (loop, block),
            hint="choose a loop that comes before it",
        )
    return None


def _finished(inside: Sequence[Path], target: Path, path: Path) -> Reason | None:
    """Require that the producers' results are final after each iteration of the target loop."""
    for producer in inside:
        block = block_of(producer)
        reduce = bound_vars(block, AxisKind.REDUCE)
        for loop in loops_of(target):
            if loop.var in reduce and extent_of(loop) != 1 and not contains(path, loop):
                return Reason(
                    f"loop `{called(loop)}` is a reduction loop of `{block.name}`: there the "
                    "result is not final",
                    (loop, block, path[-1]),
                    hint=f"move it to a loop outside `{called(loop)}`, or reorder first",
                )
    return None


def _last_child(target: Path, inside: Sequence[Path]) -> Path:
    depth = len(target)
    body = loop_of(target).body
    if not isinstance(body, Seq):
        return (*target, body)
    kids = {id(p[depth + 1]) for p in inside}
    child = [s for s in body.stmts if id(s) in kids][-1]
    return (*target, body, child)


def _provided_domain(
    func: Func, block: Block, inside: Sequence[Path], depth: int
) -> Domain | Reason:
    """Return the values of the block's axes that one iteration provides.

    They follow from one access to one producer, so that all iterations together cover every point
    of the block.
    """
    for producer in inside:
        feeder = block_of(producer)
        for region in block.reads:
            out = next((r for r in feeder.writes if r.buffer is region.buffer), None)
            box = None if out is None else writes_box(producer, depth, out)
            if out is None or box is None:
                continue
            every = _all_writes(func, producer, out)
            covered = (
                _covers_axis(block, r.start, feeder, w.start, x)
                for r, w, x in zip(region.ranges, out.ranges, every, strict=True)
            )
            kept = [
                (r.start if whole_axis else Const(0), as_int(r.extent))
                for r, whole_axis in zip(region.ranges, covered, strict=True)
            ]
            return axes_from_box(block, kept, box)
    names = ", ".join(f"`{block_of(p).name}`" for p in inside)
    return Reason(
        f"{names} does not write a box that `{block.name}` could cover in one iteration",
        (*map(block_of, inside), block),
        hint="choose a loop further out, or compute_at the producer inside the block",
    )


def _all_writes(func: Func, producer: Path, region: Region) -> Sequence[Interval | None]:
    """Return the elements that all instances of a producer write, by dimension; None if unknown.

    Where no other block writes the buffer, they are all that have a value.
    """
    shape = region.buffer.shape
    if nest(func).writers[region.buffer] == (block_of(producer).name,):
        return [whole(n) for n in shape]
    return writes_box(producer, 0, region) or [None for _ in shape]


def _covers_axis(
    block: Block, start: Expr, feeder: Block, written: Expr, every: Interval | None
) -> bool:
    """True if some instance of the feeder writes every value of the axis ``start``.

    ``every`` is the interval of what all its instances write.
    """
    extent = {a.var: a.extent for a in block.axes}
    over = {a.var: a.extent for a in feeder.axes}
    if not isinstance(start, Var) or not isinstance(written, Var) or every is None:
        return False
    n = extent.get(start, 0)
    return n <= over.get(written, -1) and every.contains(whole(n))
