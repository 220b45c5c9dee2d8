"""Copies of boxes of matrices that one thread starts: by tensor maps, counted by barriers.

A nest ``S[i, j] = A[i + row, j + column]`` of all threads of a block (or 0 where that lies outside
of A) that fills a swizzled buffer is such a copy. Each of the buffer's places has a barrier, whose
phases say that what was started for it has landed. So is ``A[i + row, j + column] = S[i, j]``
(where that lies inside of A); who started it waits until S was read (``bulk_stores``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....ir.dtypes import index, s32
from ....ir.loop.affine import Interval, bounds, linear, loop_range, to_expr
from ....ir.loop.build import (
    add,
    as_int,
    both,
    cast,
    compare,
    conjuncts,
    floordiv,
    floormod,
    number_of,
    point,
    whole_of,
)
from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import (
    CHUNK,
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Load,
    Op,
    Range,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import BULK_COPIES, PIPELINE
from ....ir.loop.simplify import simplify
from ....ir.loop.visit import free_vars, map_stmt, seq, walk
from ....ir.target import Target
from ..passes.rebuild import with_body
from .products.groups import has_group_products
from .products.mbarriers import mbarriers, wait_for_phase

LEAST_STAGES = 3  # one that is used, one behind, and one on its way
MOST_ROWS = 256  # of one copy
PITCH = 16  # bytes that the rows of a matrix are multiples of
_FACTORS = (1, 2, 4, 8, 16)  # by which a condition may be divided: elements of a chunk


def mark_boxes(func: Func, target: Target) -> Func:
    """Return the function in which copies of pipelined loops that may be bulk copies are boxes.

    All copies of such a loop are, or none.
    """
    params = func.params if TABLE["tma_load"].on(target.gpu) else ()

    def stmt(s: Stmt, ranges: Mapping[Var, Interval], threads: tuple[Var, ...], out: bool) -> Stmt:
        if isinstance(s, For):
            ranges = {**ranges, s.var: loop_range(s.extent, ranges)}
            threads = (*threads, s.var) if s.over_threads else threads
        if isinstance(s, Let) and s.var.dtype == index:
            ranges = {**ranges, s.var: bounds(s.value, ranges)}
        if isinstance(s, For) and BULK_COPIES.of(s) and s.kind is not Kind.THREAD:
            return _marked(BULK_COPIES.drop(s), params, ranges, threads)
        out = out or (isinstance(s, For) and bool(BULK_COPIES.of(s)))
        s = BULK_COPIES.drop(s) if isinstance(s, For) else s
        many = prod(ranges[v][1] + 1 for v in threads)
        if out and (made := box_store(s, many, params, ranges)) is not None:
            return made
        return map_stmt(s, lambda c: stmt(c, ranges, threads, out))

    return with_body(func, stmt(func.body, {}, (), False))


def _marked(
    loop: For, params: Sequence[Buffer], ranges: Mapping[Var, Interval], threads: tuple[Var, ...]
) -> For:
    stages = min(bounds(loop.extent, ranges)[1], PIPELINE.of(loop) or 1)
    if stages < (LEAST_STAGES if _is_behind(loop) else 2) or not has_group_products(loop):
        return loop
    many, failed = prod(ranges[v][1] + 1 for v in threads), []

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Alloc | Seq):
            return map_stmt(s, stmt)
        if has_group_products(s) or not any(map(_is_shared, walk(s))):
            return s
        made = box_copy(s, many, params, ranges)
        failed.extend([s] if made is None else [])
        return made or s

    body = stmt(loop.body)
    return loop if failed else replace(loop, body=body)


def _is_shared(s: Stmt) -> bool:
    return isinstance(s, Store) and s.buffer.scope is Scope.SHARED


def _is_behind(loop: For) -> bool:
    """True if the work is copies and products alone, which are waited for an iteration later."""
    others = (x for x in walk(loop.body) if isinstance(x, Store) and not _is_shared(x))
    return next(others, None) is None


def box_copy(
    s: Stmt, threads: int, params: Sequence[Buffer], ranges: Mapping[Var, Interval]
) -> Intrinsic | None:
    """Return the copy that a nest makes, of all ``threads`` together; None if it is none."""
    stores = [x for x in walk(s) if isinstance(x, Store)]
    if len(stores) != 1 or any(isinstance(x, If | Intrinsic) for x in walk(s)):
        return None
    (store,) = stores
    source, cond = _source(store.value)
    if source is None:
        return None
    inner = Load(store.buffer, store.index)
    boxes = _boxes(s, threads, inner, source, cond, params, ranges)
    return None if boxes is None else Intrinsic("copy_box", boxes[:1], boxes[1:])


def box_store(
    s: Stmt, threads: int, params: Sequence[Buffer], ranges: Mapping[Var, Interval]
) -> Intrinsic | None:
    """Return the copy to a matrix that a nest makes, of all threads; None if it is none."""
    inner, cond = s, None
    while isinstance(inner, For | If) and not (isinstance(inner, For) and inner.thread):
        if isinstance(inner, If):
            if inner.orelse is not None:
                return None
            cond = both(cond, inner.cond) if cond is not None else inner.cond
        inner = inner.then if isinstance(inner, If) else inner.body
    if not isinstance(inner, Store) or not isinstance(inner.value, Load):
        return None
    outer = Load(inner.buffer, inner.index)
    if inner.value.buffer.scope is not Scope.SHARED:
        return None
    boxes = _boxes(s, threads, inner.value, outer, cond, params, ranges)
    return None if boxes is None else Intrinsic("copy_box", boxes[1:], boxes[:1])


def _boxes(
    s: Stmt,
    threads: int,
    inner: Load,
    outer: Load,
    cond: Expr | None,
    params: Sequence[Buffer],
    ranges: Mapping[Var, Interval],
) -> tuple[Region, Region] | None:
    """Return the boxes that a nest copies, in shared memory and in a matrix, where ``cond``."""
    loops = [x for x in walk(s) if isinstance(x, For)]
    points = prod((as_int(x.extent) or 0 for x in loops), start=threads)
    inside = {**ranges, **{x.var: (0, (as_int(x.extent) or 1) - 1) for x in loops}}
    to = inner.buffer
    if points != prod(to.shape) or not _fits(to, outer.buffer, params):
        return None
    *lead, row, column = outer.index
    places = zip((row, column), inner.index[-2:], strict=True)
    first = [simplify(e, inside) for e in lead] + [_minus(p, i, inside) for p, i in places]
    edges = [*zip(outer.index, outer.buffer.shape, strict=True)]
    edges = edges[-1:] if lead else edges  # the rows behind are those of the next matrix
    if not all(any(_is_edge(c, edge, inside) for edge in edges) for c in _limits(cond)):
        return None
    own = {x.var for x in loops} | {v for e in inner.index for v in free_vars(e)}
    if any(free_vars(e) & own for e in first):
        return None
    sizes = (*(1 for _ in lead), *to.shape[-2:])
    box = tuple(Range(e, Const(n)) for e, n in zip(first, sizes, strict=True))
    return whole_of(to), Region(outer.buffer, box)


def boxes_of(s: Stmt) -> tuple[Intrinsic, ...]:
    """Return the copies that a sequence of nothing else consists of; none for other statements."""
    parts = s.stmts if isinstance(s, Seq) else (s,)
    found = tuple(x for x in parts if isinstance(x, Intrinsic) and is_box(x))
    return found if len(found) == len(parts) else ()


def is_box(s: Stmt) -> bool:
    """True for such a copy."""
    return isinstance(s, Intrinsic) and s.name == "copy_box"


def _source(e: Expr) -> tuple[Load | None, Expr | None]:
    match e:
        case Load():
            return e, None
        case Op(name="select", args=(cond, Load() as source, Const(value=0))):
            return source, cond
        case _:
            return None, None


def _limits(cond: Expr | None) -> Iterator[tuple[Expr, int] | None]:
    """Yield each part ``e < n`` of a condition as (e, n), and None for any other part."""
    for c in conjuncts(cond):
        match c:
            case Op(name="lt", args=(e, Const(value=int(n)))):
                yield e, n
            case _:
                yield None


def _is_edge(
    limit: tuple[Expr, int] | None, edge: tuple[Expr, int], ranges: Mapping[Var, Interval]
) -> bool:
    """True if two conditions ``e < n`` mean the same: the second's difference is a multiple of the
    first's, with a remainder below the factor."""
    if limit is None:
        return False
    one, two = (linear(_minus(e, n, ranges)) for e, n in (limit, edge))
    for factor in _FACTORS:
        low, high = bounds(to_expr(two - one * factor), ranges)
        if low >= 0 and high < factor:
            return True
    return False


def _fits(to: Buffer, source: Buffer, params: Sequence[Buffer]) -> bool:
    if source not in params or len(source.shape) < 2 or source.dtype != to.dtype:
        return False
    wide = to.shape[-1] * to.dtype.bytes
    rows = to.shape[-2] <= MOST_ROWS and to.shape[-2] % 8 == 0
    whole = bool(to.swizzle) and wide % (to.swizzle * CHUNK) == 0 and prod(to.shape[:-2]) == 1
    return rows and whole and source.shape[-1] * source.dtype.bytes % PITCH == 0


def _minus(a: Expr, b: Expr | int, ranges: Mapping[Var, Interval]) -> Expr:
    left = linear(simplify(a, ranges))
    right = linear(simplify(b if not isinstance(b, int) else Const(b), ranges))
    return to_expr(left - right)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The barriers of the places of some buffers, and the thread that starts copies."""

    bars: Buffer
    one: Expr | None

    @staticmethod
    def of(threads: Sequence[Var]) -> Arrivals:
        """Return new ones; the first of the ``threads`` starts copies."""
        one = both(*(compare("eq", v, 0) for v in threads))
        return Arrivals(mbarriers("arrived", 1), one)

    def by_one(self, s: Stmt) -> Stmt:
        """Return ``s`` by that thread."""
        return s if self.one is None else If(self.one, s)

    def init(self, places: int) -> Stmt:
        """Make the barriers."""
        made = (Intrinsic("mbarrier_init", (self.bar(Const(n)),), (), (1,)) for n in range(places))
        return self.by_one(seq(*made, Intrinsic("fence_mbarrier_init")))

    def bar(self, place: Expr) -> Region:
        """Return the barrier of a place."""
        return point(self.bars, (place,))

    def wait(self, k: Expr, places: int) -> Stmt:
        """Wait until what iteration ``k`` uses has landed."""
        return wait_for_phase(self.bar(floormod(k, places)), floordiv(k, places))

    def start(self, copies: Sequence[Intrinsic], place: Expr) -> Stmt:
        """Start copies to a place of their buffers."""
        sizes = (prod(as_int(x.extent) or 0 for x in c.writes[0].ranges) for c in copies)
        many = sum(n * c.writes[0].buffer.dtype.bytes for n, c in zip(sizes, copies, strict=True))
        expect = Intrinsic("mbarrier_expect", (self.bar(place),), (), (many,))
        return self.by_one(seq(expect, *(s for c in copies for s in self.loads(c, place))))

    def loads(self, copy: Intrinsic, place: Expr) -> Iterator[Stmt]:
        """Yield a copy for each panel of a buffer."""
        for p in panels_of(copy.writes[0], copy.reads[0]):
            reads = (p.whole, p.where, self.bar(place))
            yield p.placed(Intrinsic("tma_load", (p.box,), reads, p.args))


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a box that one bulk copy moves: where it is in shared memory and in the matrix."""

    box: Region
    whole: Region
    where: Region
    args: tuple[int, ...]
    at: tuple[Expr, Expr]  # column and row

    def placed(self, copy: Stmt) -> Stmt:
        """Return the copy behind the stores of its place to registers."""
        b = self.where.buffer
        stores = (Store(b, (Const(n),), cast(e, s32)) for n, e in enumerate(self.at))
        return Alloc(b, seq(*stores, copy))


def panels_of(inner: Region, outer: Region) -> Iterator[Panel]:
    """Yield the panels of a box in shared memory that lies in a matrix."""
    *rows_before, column = (x.start for x in outer.ranges)
    *lead, rows, columns = inner.ranges
    *heights, wide = outer.buffer.shape
    row = number_of(rows_before, heights)
    pattern = inner.buffer.swizzle * CHUNK
    each = pattern // inner.buffer.dtype.bytes
    args = (wide, prod(heights), wide, each, as_int(rows.extent) or 0, pattern)
    whole = whole_of(outer.buffer)
    for first in range(0, as_int(columns.extent) or 0, each):
        at = Buffer("place", (2,), s32, Scope.REGISTER)
        box = Region(inner.buffer, (*lead, rows, Range(Const(first), Const(each))))
        where = whole_of(at)
        yield Panel(box, whole, where, args, (add(column, first), row))
