"""Parts that blocks of a cluster pass on: each in the shared memory of the block that made it.

``P[by, i] = ..; cluster_barrier; if by == 0: .. P[k, i] ..``  with P in global memory  ->
``P[i] = ..; cluster_barrier; if by == 0: load_remote(r, P[i], k); .. r ..``  with P in the shared
memory of each block. What is stored by other indices than the block's own stays where it is: the
barrier orders global memory too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir.dtypes import s32
from ....ir.loop.affine import linear
from ....ir.loop.build import as_int, cast, points, whole_of
from ....ir.loop.nodes import (
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
from ....ir.loop.notes import CLUSTER
from ....ir.loop.visit import (
    buffers_read,
    buffers_written,
    exprs_under,
    free_vars,
    loads_in,
    loads_under,
    map_expr,
    map_stmt,
    seq,
    walk,
)
from ..passes.launches import closed, opened
from ..passes.rebuild import with_body

WIDEST = 16  # bytes of one load
_LEAST = 4


def reach_remote(func: Func) -> Func:
    """Return the function whose clusters pass on parts of results by their shared memory."""
    return with_body(func, _around(func.body, ()))


def _around(s: Stmt, made: tuple[Buffer, ...]) -> Stmt:
    """Return what is around launches; ``made`` are the buffers that it makes."""
    match s:
        case Alloc(buffer=b, body=body):
            inner = _around(body, (*made, b))
            used = _uses(inner, b)
            return replace(s, body=inner) if used or inner is body else inner
        case Seq(stmts=stmts):
            outside = {b for b in made if sum(_uses(x, b) for x in stmts) > 1}
            return seq(*(_around(x, tuple(b for b in made if b not in outside)) for x in stmts))
        case For(kind=Kind.THREAD):
            return _launch(s, made)
        case _:
            return s


def _launch(s: For, made: Sequence[Buffer]) -> Stmt:
    loops, body = opened(s)
    ranks = [x.var for x in loops if CLUSTER.of(x) is not None]
    waits = any(isinstance(x, Intrinsic) and x.name == "cluster_barrier" for x in walk(s))
    if len(ranks) != 1 or not waits:
        return s
    for old in (b for b in made if _uses(body, b)):
        at = _own_dimension(body, old, ranks[0])
        if at is not None:
            new = Buffer(old.name, _but(old.shape, at), old.dtype, Scope.SHARED)
            body = Alloc(new, _Parts(old, new, at, ranks[0]).stmt(body))
    return closed(loops, body)


def _uses(s: Stmt, b: Buffer) -> bool:
    return b in buffers_read(s) | buffers_written(s)


def _own_dimension(s: Stmt, b: Buffer, rank: Var) -> int | None:
    """Return the dimension by which each block stores to a part of its own; None without one."""
    if b.dtype.bytes < _LEAST or b.scope is not Scope.GLOBAL or _is_chosen(s, b):
        return None
    stores: list[tuple[Expr, ...]] = []
    for x in walk(s):
        match x:
            case Store(buffer=to, index=index) if to is b:
                stores.append(index)
            case Intrinsic(writes=writes, reads=reads):
                if any(r.buffer is b for r in reads):
                    return None
                boxes = (tuple(y.start for y in r.ranges) for r in writes if r.buffer is b)
                stores += boxes
            case For(extent=extent) if b in {y.buffer for y in loads_in(extent)}:
                return None
            case If(cond=cond) if b in {y.buffer for y in loads_in(cond)}:
                return None
    own = (d for d in range(len(b.shape)) if all(index[d] == rank for index in stores))
    return next(own, None) if stores else None


def _is_chosen(s: Stmt, b: Buffer) -> bool:
    """True if a part is read where a condition holds that is a value."""
    return any(
        isinstance(y, Op) and y.name == "select" and b in {z.buffer for z in loads_in(y)}
        for y in exprs_under(s)
    )


def _but(items: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*items[:at], *items[at + 1 :]) or (1,)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Takes the buffer ``new`` of each block for ``old``, whose dimension ``at`` is the block."""

    old: Buffer
    new: Buffer
    at: int
    rank: Var

    def stmt(self, s: Stmt) -> Stmt:
        """Return a statement on parts in shared memory."""
        if isinstance(s, For) and s.kind is Kind.VECTOR and _uses(s, self.old):
            return self.lanes(s)
        s = map_stmt(s, self.stmt)
        match s:
            case Store() | Let():
                s, fetched = self.fetched(s, None, 1)
                s = self.stored(s)
                return _with(fetched, s)
            case Intrinsic(writes=writes) if any(r.buffer is self.old for r in writes):
                return replace(s, writes=tuple(map(self.region, writes)))
            case _:
                return s

    def lanes(self, s: For) -> Stmt:
        """Return a vector loop behind loads of what its lanes need; else lanes one by one."""
        lanes = as_int(s.extent) or 1
        loads = [*loads_under(s.body)]
        loads = [y for y in loads if y.buffer is self.old and y.index[self.at] != self.rank]
        fits = all(self.is_row(y, s.var) for y in loads) and self.old not in buffers_written(s.body)
        if not fits or (lanes * self.old.dtype.bytes) % _LEAST or not isinstance(s.body, Store):
            return self.stmt(replace(s, kind=Kind.SERIAL))
        body, fetched = self.fetched(s.body, s.var, lanes)
        return _with(fetched, replace(s, body=body))

    def is_row(self, load: Load, lane: Var) -> bool:
        """True if the lanes of a load are neighbors, in one block's part."""
        *outer, last = range(len(self.old.shape))
        if last == self.at or any(lane in free_vars(load.index[d]) for d in outer):
            return False
        return linear(load.index[last]).terms.get(lane, 0) == 1

    def fetched(self, s: Stmt, lane: Var | None, lanes: int) -> tuple[Stmt, list[_Fetch]]:
        """Return a statement with its loads of other blocks' parts from registers, and these."""
        found: list[_Fetch] = []

        def expr(e: Expr) -> Expr:
            e = map_expr(e, expr)
            if not isinstance(e, Load) or e.buffer is not self.old:
                return e
            index = _but_expr(e.index, self.at)
            if e.index[self.at] == self.rank:
                return Load(self.new, index)
            to = Buffer(f"{self.old.name}_remote", (lanes,), self.old.dtype, Scope.REGISTER)
            found.append(_Fetch(to, self.new, _first(index, lane), e.index[self.at]))
            return Load(to, (Const(0) if lane is None else lane,))

        return map_stmt(s, lambda x: x, expr), found

    def stored(self, s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer is self.old:
            return replace(s, buffer=self.new, index=_but_expr(s.index, self.at))
        return s

    def region(self, r: Region) -> Region:
        if r.buffer is not self.old:
            return r
        ranges = (*r.ranges[: self.at], *r.ranges[self.at + 1 :])
        return Region(self.new, ranges or points((Const(0),)))


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A load of neighbors from the part of the block of a rank, into registers."""

    to: Buffer
    of: Buffer
    first: tuple[Expr, ...]
    rank: Expr

    def stmt(self) -> Stmt:
        """Return the loads, of up to 16 bytes each."""
        lanes, size = self.to.shape[0], self.to.dtype.bytes
        each = max(n for n in (4, 2, 1) if lanes % n == 0 and n * size <= WIDEST)
        rank = Buffer("rank", (1,), s32, Scope.REGISTER)
        own, zero = whole_of(rank), Const(0)
        loads = [Store(rank, (zero,), cast(self.rank, s32))]
        parts: list[Stmt] = [*loads]
        for n in range(0, lanes, each):
            to = Region(self.to, (Range(Const(n), Const(each)),))
            *outer, last = self.first
            start = last if n == 0 else Op("add", (last, Const(n)), last.dtype)
            box = (*(Range(x, Const(1)) for x in outer), Range(start, Const(each)))
            parts.append(Intrinsic("load_remote", (to,), (Region(self.of, box), own)))
        return Alloc(rank, seq(*parts))


def _with(fetched: Sequence[_Fetch], s: Stmt) -> Stmt:
    """Return a statement behind the loads that it needs."""
    result = seq(*(f.stmt() for f in fetched), s) if fetched else s
    for f in fetched:
        result = Alloc(f.to, result)
    return result


def _but_expr(items: tuple[Expr, ...], at: int) -> tuple[Expr, ...]:
    return (*items[:at], *items[at + 1 :]) or (Const(0),)


def _first(index: tuple[Expr, ...], lane: Var | None) -> tuple[Expr, ...]:
    by: Mapping[Var, Expr] = {} if lane is None else {lane: Const(0)}

    def expr(e: Expr) -> Expr:
        return by.get(e, e) if isinstance(e, Var) else map_expr(e, expr)

    return tuple(map(expr, index))
