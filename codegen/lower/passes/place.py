"""Allocate intermediate buffers around their uses, as large as they must be there.

``place_buffers`` puts each of the function's ``allocs`` around the innermost statement that holds
all its uses, but outside of the loops that carry it from one iteration to the next: those that a
reduction into it runs over. On a CPU it is outside of vector loops, too, whose lanes have an
element each. ``compact`` then shrinks each to the box touched in that statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ....ir.dtypes import index
from ....ir.loop.affine import Interval, bounds, loop_range
from ....ir.loop.build import as_int, sub
from ....ir.loop.moves import Indices, moved
from ....ir.loop.nodes import (
    OF_BLOCK,
    Alloc,
    AxisKind,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Kind,
    Let,
    Op,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.regions import touched
from ....ir.loop.visit import (
    children,
    exprs,
    free_vars,
    loads_in,
    map_stmt,
    own_reads,
    own_writes,
    seq,
    substitute,
    substitute_expr,
    walk,
)
from .rebuild import with_body

Uses: TypeAlias = dict[int, frozenset[Buffer]]
"""What a buffer is replaced by, and the indices there of those in the old one."""


def place_buffers(func: Func) -> Func:
    """Return the function with an ``Alloc`` for each of its intermediate buffers, of full size."""
    if not func.allocs:
        return func
    uses: Uses = {}
    _uses(func.body, uses)
    carried = _carried(func.body)
    nests = [x for x in walk(func.body) if isinstance(x, For)]
    if not any(x.kind is Kind.THREAD for x in nests):
        lanes = {x.var for x in nests if x.kind is Kind.VECTOR}
        carried = {b: carried.get(b, set()) | lanes for b in func.allocs}
    body = _placed(func.body, func.allocs, uses, carried)
    return replace(func, body=body, allocs=())


def _uses(s: Stmt, uses: Uses) -> frozenset[Buffer]:
    """Return the buffers that each statement loads or stores, by the identity of the statement."""
    own = (*own_reads(s), *own_writes(s))
    uses[id(s)] = frozenset(own).union(*(_uses(c, uses) for c in children(s)))
    return uses[id(s)]


def _carried(s: Stmt) -> dict[Buffer, set[Var]]:
    """For each buffer the variables of the loops over which a reduction into it runs."""
    found: dict[Buffer, set[Var]] = {}

    def visit(x: Stmt, values: Mapping[Var, Expr]) -> None:
        if isinstance(x, Let):
            values = {**values, x.var: substitute_expr(x.value, values)}
        if isinstance(x, Block):
            over: set[Var] = set()
            for a in x.axes:
                if a.kind is AxisKind.REDUCE:
                    over |= free_vars(substitute_expr(a.value, values))
            for r in x.writes:
                found.setdefault(r.buffer, set()).update(over)
        for child in children(x):
            visit(child, values)

    visit(s, {})
    return found


def _placed(
    s: Stmt, buffers: Sequence[Buffer], uses: Uses, carried: Mapping[Buffer, set[Var]]
) -> Stmt:
    """Return ``s`` with the buffers, which nothing outside of it uses, made in it or around it."""
    buffers = [b for b in buffers if b in uses[id(s)]]
    if not buffers:
        return s
    match s:
        case For(var=var, body=body):
            inner = [b for b in buffers if var not in carried.get(b, ())]
            result: Stmt = replace(s, body=_placed(body, inner, uses, carried))
        case Let(body=body):
            inner = [b for b in buffers if not _loads(s.value, b)]
            result = replace(s, body=_placed(body, inner, uses, carried))
        case If(cond=cond, then=then, orelse=None):
            inner = [b for b in buffers if not _loads(cond, b)]
            result = replace(s, then=_placed(then, inner, uses, carried))
        case Seq(stmts=stmts):
            return _in_sequence(stmts, buffers, uses, carried)
        case Alloc(body=body):
            return replace(s, body=_placed(body, buffers, uses, carried))
        case _:
            inner, result = [], s
    return _around(result, [b for b in buffers if b not in inner])


def _loads(e: Expr, buffer: Buffer) -> bool:
    return any(x.buffer is buffer for x in loads_in(e))


def _around(s: Stmt, buffers: Sequence[Buffer]) -> Stmt:
    for b in reversed(buffers):
        s = Alloc(b, s)
    return s


def _in_sequence(
    stmts: tuple[Stmt, ...],
    buffers: Sequence[Buffer],
    uses: Uses,
    carried: Mapping[Buffer, set[Var]],
) -> Stmt:
    """Each buffer around the statements from its first use to its last; overlaps are joined.

    Shared memory is scarce: it is held for no longer than needed, whatever else lives on.
    """
    scarce = [b for b in buffers if b.scope is Scope.SHARED]
    if scarce and len(scarce) < len(buffers):
        made = _in_sequence(stmts, scarce, uses, carried)
        _uses(made, uses)
        rest = [b for b in buffers if b not in scarce]
        inner = made.stmts if isinstance(made, Seq) else (made,)
        return _in_sequence(inner, rest, uses, carried)
    spans: list[tuple[int, int, list[Buffer]]] = []
    for b in buffers:
        at = [n for n, x in enumerate(stmts) if b in uses[id(x)]]
        first, last, names = at[0], at[-1], [b]
        for other in [x for x in spans if x[0] <= last and first <= x[1] and last > first]:
            if other[0] == other[1]:
                continue
            spans.remove(other)
            first, last = min(first, other[0]), max(last, other[1])
            names = [*other[2], *names]
        spans.append((first, last, names))
    alone = [b for first, last, names in spans if first == last for b in names]
    result = [_placed(x, alone, uses, carried) for x in stmts]
    for first, last, names in sorted((x for x in spans if x[0] < x[1]), reverse=True):
        result[first : last + 1] = [_around(seq(*result[first : last + 1]), names)]
    return seq(*result)


def compact(func: Func) -> Func:
    """Return each ``Alloc`` shrunk to what its body touches, indices counted from there.

    Of a buffer that a GPU's threads share, to what all of them touch.
    """
    apart: set[Buffer] = set()
    body = _lanes_apart(func.body, apart)
    ranges: dict[Var, Interval] = {v: (0, 2**31) for v in func.symbols}
    return with_body(func, _compacted(body, ranges, (), apart))


def _lanes_apart(s: Stmt, apart: set[Buffer]) -> Stmt:
    """Give each lane of a vector loop an element of the buffers around that need no other place.

    Such buffers are added to ``apart``. Where lanes go on from one row to the next, the box that
    all iterations touch is two rows.
    """
    around, body = [], s
    while isinstance(body, Alloc):
        around.append(body.buffer)
        body = body.body
    if not around or not isinstance(body, For) or body.kind is not Kind.VECTOR:
        return map_stmt(s, lambda c: _lanes_apart(c, apart))
    count, lane = as_int(body.extent) or 0, (body.var,)
    lanes = {b: replace(b, shape=(count,), align=None) for b in _of_lanes(around, body)}
    body = moved(body, {old: (new, lambda _: lane) for old, new in lanes.items()})
    apart.update(lanes.values())
    for buffer in reversed(around):
        body = Alloc(lanes.get(buffer, buffer), body)
    return body


def _of_lanes(around: Sequence[Buffer], loop: For) -> Iterator[Buffer]:
    """Yield the buffers in which each lane of a vector loop stores to one element, once, and of
    which it reads that alone.
    """
    stores: dict[Buffer, list[Stmt]] = {b: [] for b in around if b.scope not in OF_BLOCK}
    loads: dict[Buffer, list[Indices]] = {b: [] for b in stores}
    for x in walk(loop):
        for written in own_writes(x):
            stores.get(written, []).append(x)
        for load in (load for e in exprs(x) for load in loads_in(e)):
            loads.get(load.buffer, []).append(load.index)
    for buffer, found in stores.items():
        match found:
            case [Store(index=at, value=value)] if not _loads(value, buffer):
                varies = any(loop.var in free_vars(e) for e in at)
                if varies and all(read == at for read in loads[buffer]):
                    yield buffer
            case _:
                pass


def _compacted(
    s: Stmt, ranges: dict[Var, Interval], threads: tuple[For, ...], apart: Collection[Buffer]
) -> Stmt:
    match s:
        case For(var=var, extent=extent, body=body):
            ranges[var] = loop_range(extent, ranges)
            if s.over_threads:
                threads = (*threads, s)
        case Let(var=var, value=value) if var.dtype == index:
            ranges[var] = bounds(value, ranges)
        case Alloc(buffer=buffer, body=body) if buffer not in apart:
            s = _shrunk(buffer, body, ranges, threads if buffer.scope in OF_BLOCK else ())
    return map_stmt(s, lambda c: _compacted(c, ranges, threads, apart))


def _shrunk(
    buffer: Buffer, body: Stmt, ranges: Mapping[Var, Interval], threads: tuple[For, ...]
) -> Stmt:
    swept = body
    for loop in threads:
        swept = replace(loop, body=_narrowed(swept, loop))
    outer = {v: r for v, r in ranges.items() if all(v is not x.var for x in threads)}
    region = touched(swept, buffer, outer)
    if region is None:
        return body
    shape = tuple(as_int(r.extent) for r in region.ranges)
    starts = tuple(r.start for r in region.ranges)
    extents = tuple(n for n in shape if n is not None)
    if extents == buffer.shape or len(extents) < len(shape):
        return Alloc(buffer, body)
    small = replace(buffer, shape=extents)
    return Alloc(small, moved(body, {buffer: (small, partial(_shifted, starts))}))


def _narrowed(s: Stmt, loop: For) -> Stmt:
    """Return ``s`` with conditions on a thread as loops over the threads that meet them."""
    if isinstance(s, If) and s.orelse is None:
        match s.cond:
            case Op(name="lt", args=(v, Const() as count)) if v is loop.var:
                some = Var(loop.var.name)
                return For(some, count, substitute(s.then, {loop.var: some}))
    return map_stmt(s, lambda c: _narrowed(c, loop))


def _shifted(starts: Indices, at: Indices) -> Indices:
    return tuple(sub(i, start) for i, start in zip(at, starts, strict=True))
