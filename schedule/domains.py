"""The points of a block that one iteration of a loop needs or provides, and the block over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.loop.affine import linear
from ..ir.loop.build import add, as_int, both, var
from ..ir.loop.intrinsics import SPREAD
from ..ir.loop.names import part_of
from ..ir.loop.nodes import (
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
    Stmt,
    Var,
)
from ..ir.loop.visit import free_vars, substitute_expr
from .cursor import Path, block_of, loops_of, nest
from .errors import Reason
from .footprint import Interval, hull, reads_box, union, whole, writes_box

Domain = Mapping[Var, Interval]
"""The values of a block's axes that one iteration of the loops around it needs."""


def rounded_domain(block: Block, domain: Domain, multiples: Sequence[int]) -> Domain:
    """Round the extents of a domain up to multiples of the given numbers."""
    by = dict(zip([a.var for a in block.axes], multiples, strict=False))
    return {
        v: replace(x, high=x.low - 1 + -(-x.extent // by.get(v, 1)) * by.get(v, 1))
        for v, x in domain.items()
    }


def needed_domain(block: Block, users: Sequence[Path], target: Path) -> Domain:
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

    ``low`` has ``n`` values. Empty for other indices, and for an interval that may hold some, but
    not all values of several ``high``.
    """
    extents = {a.var: a.extent for a in block.axes if a.kind is AxisKind.SPATIAL}
    form = linear(e)
    by_step = sorted(form.terms.items(), key=lambda term: term[1])
    if form.constant or len(by_step) != 2 or any(v not in extents for v, _ in by_step):
        return {}
    (low, one), (high, n) = by_step
    assert isinstance(low, Var) and isinstance(high, Var)
    rest = replace(x, start=tuple((d, k) for d, k in x.start if k % n))
    if one != 1 or extents[low] != n:
        return {}
    start = tuple((d, k // n) for d, k in x.start if not k % n)
    if not rest.start and not rest.low % n and not rest.extent % n:
        return {high: Interval(start, rest.low // n, rest.high // n), low: whole(n)}
    if rest.least() < 0 or rest.most() >= n:
        return {}
    return {high: Interval(start, 0, 0), low: rest}


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


def provided_domain(
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
