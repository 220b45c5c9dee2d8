"""Barriers where threads of a block meet: as few as the order of their accesses needs.

A thread waits for the others before it touches what another one touched since the last barrier, if
one of them writes. That includes buffers of which one takes the other's place in shared memory, and
what an iteration of a loop leaves to the next. Threads of one warp need the warp's barrier only.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

from ....ir.dtypes import index
from ....ir.errors import UnsupportedError
from ....ir.loop.affine import bounds
from ....ir.loop.build import as_int, both, op
from ....ir.loop.intrinsics import WARP
from ....ir.loop.names import called
from ....ir.loop.nodes import (
    OF_BLOCK,
    SHARED_ALIGN,
    Alloc,
    AllReduce,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Let,
    Range,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.printer import show
from ....ir.loop.visit import (
    buffers_written,
    exprs,
    free_vars,
    loads_in,
    loads_under,
    seq,
    substitute_expr,
    walk,
)
from ..passes.launches import BARRIER, WARP_BARRIER, closed, each_launch, opened, thread_loops
from ..passes.layout import elements
from .footprints import BlockThreads, Conflict, ElementAccess
from .products.accumulators import stored_by
from .splits import copies_of, is_split

SHORT = 6  # iterations of a loop that are compared pair by pair
_SYNC = ("barrier", "arrive", "cluster_barrier", "warp_barrier", "commit_async", "wait_async")


@dataclass(frozen=True, slots=True)
class Touch:
    """An access that no barrier of the block parts from the statement's begin (or end).

    ``apart`` says that a barrier of the warp does. ``place`` are the bytes of shared memory.
    """

    access: ElementAccess
    place: tuple[int, int] | None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class SyncSpan:
    """A statement with its barriers: what it touches before the first one and after the last one.

    ``waits`` says that every thread surely comes by one.
    """

    stmt: Stmt
    head: tuple[Touch, ...] = ()
    tail: tuple[Touch, ...] = ()
    waits: bool = False


def place_barriers(func: Func) -> Func:
    """Return the function with a barrier wherever threads of a block might meet."""
    return each_launch(func, lambda s: _in_launch(s, func.name))


def _in_launch(s: Stmt, name: str) -> Stmt:
    indices = {x.thread: (x.var, as_int(x.extent) or 1) for x in thread_loops(s)}
    threads = BlockThreads(tuple(indices.get(f"threadIdx.{d}", (None, 1)) for d in "xyz"))
    if threads.count == 1:
        return s
    loops, body = opened(s)
    allocs = frozenset(x.buffer for x in walk(body) if isinstance(x, Alloc))
    own = frozenset(b for b in allocs if b.scope not in OF_BLOCK)
    ranges = {x.var: (0, (as_int(x.extent) or 1) - 1) for x in loops}
    parts = [buffers_written(copies_of(x)) for x in walk(body) if is_split(x)]
    staged = frozenset[Buffer]().union(*parts)
    read = frozenset(x.buffer for x in loads_under(body))
    inputs = read - buffers_written(body) - allocs
    placer = _Placer(name, threads, buffers_written(body) - own, ranges, staged, inputs)
    return closed(loops, placer.stmt(body, _Context()).stmt)


@dataclass(frozen=True, slots=True)
class _Context:
    """The surroundings of a statement: loops, conditions, named values, bytes of shared memory."""

    loops: tuple[tuple[Var, int], ...] = ()
    guards: tuple[Expr, ...] = ()
    names: tuple[tuple[Var, Expr], ...] = ()
    places: tuple[tuple[Buffer, tuple[int, int]], ...] = ()
    offset: int = 0

    def value(self, e: Expr) -> Expr:
        """Return an expression without the names of ``Let``."""
        return substitute_expr(e, dict(self.names)) if self.names else e


class _Placer:
    """Walks a launch. ``tracked`` are the buffers through which its threads may meet; ``staged``
    those that warps with roles pass on, which wait for each other by other means; ``inputs`` those
    that nothing in the launch changes."""

    def __init__(
        self,
        name: str,
        threads: BlockThreads,
        tracked: frozenset[Buffer],
        ranges: dict[Var, tuple[int, int]],
        staged: frozenset[Buffer],
        inputs: frozenset[Buffer],
    ) -> None:
        self.name, self.threads, self.tracked, self.ranges = name, threads, tracked, ranges
        self.lanes = frozenset(v for v, _ in threads.vars if v is not None)
        self.staged = staged
        self.met: dict[tuple[ElementAccess, ElementAccess, int], Conflict] = {}
        self.same = inputs  # what all threads have the same values in

    def stmt(self, s: Stmt, c: _Context) -> SyncSpan:
        match s:
            case Seq():
                return self.sequence(s, c)
            case For():
                return self.loop(s, c)
            case If():
                return self.branch(s, c)
            case Let(var=var, value=value) if var.dtype == index:
                inner = replace(c, names=(*c.names, (var, c.value(value))))
                return self.under(s, self.stmt(s.body, inner), (value,), c)
            case Let(value=value):
                return self.under(s, self.stmt(s.body, c), (value,), c)
            case Alloc(buffer=b, body=body) if b.scope is Scope.SHARED:
                size = -(-elements(b) * b.dtype.bytes // SHARED_ALIGN) * SHARED_ALIGN
                place = (b, (c.offset, c.offset + size))
                inner = replace(c, places=(*c.places, place), offset=c.offset + size)
                return self.under(s, self.stmt(body, inner), (), c)
            case Alloc(body=body):
                return self.under(s, self.stmt(body, c), (), c)
            case Intrinsic(name="barrier" | "arrive" | "cluster_barrier"):
                self.same |= {r.buffer for r in s.writes}
                return SyncSpan(s, waits=True)
            case _:
                return self.leaf(s, c)

    def under(self, s: Stmt, inner: SyncSpan, also: tuple[Expr, ...], c: _Context) -> SyncSpan:
        """Return ``s`` around a body that is done; it reads ``also`` before."""
        assert isinstance(s, Let | Alloc)
        first = self.loads(also, c)
        new = s if inner.stmt is s.body else replace(s, body=inner.stmt)
        tail = inner.tail if inner.waits else (*first, *inner.tail)
        return SyncSpan(new, (*first, *inner.head), tail, inner.waits)

    def leaf(self, s: Stmt, c: _Context) -> SyncSpan:
        found = list(self.loads(exprs(s), c))
        match s:
            case Store(buffer=b, index=at):
                found += self.touch(b, tuple(Range(i, i) for i in at), True, c, element=True)
            case Intrinsic() if own := stored_by(s, self.thread()):
                for r in own:
                    found += self.touch(r.buffer, r.ranges, True, c)
            case Intrinsic(name=name, writes=writes, reads=reads):
                if name.startswith(("mbarrier_", "tma_")):  # the pipeline has put them in order
                    return SyncSpan(s)
                kept = tuple(r for r in reads if r not in writes or not _of_one_thread(r.buffer))
                for regions, write in ((kept, False), (writes, True)):
                    for r in regions:
                        found += self.touch(r.buffer, r.ranges, write, c)
        return SyncSpan(s, tuple(found), tuple(found))

    def thread(self) -> Expr:
        """This thread's index in threadIdx.x."""
        (x, _), *_ = self.threads.vars
        return Const(0) if x is None else x

    def loads(self, es: tuple[Expr, ...], c: _Context) -> tuple[Touch, ...]:
        found: list[Touch] = []
        for e in es:
            for x in loads_in(e):
                at = tuple(Range(i, i) for i in x.index)
                found += self.touch(x.buffer, at, False, c, element=True)
        return tuple(found)

    def touch(
        self, b: Buffer, at: tuple[Range, ...], write: bool, c: _Context, element: bool = False
    ) -> tuple[Touch, ...]:
        if b not in self.tracked:
            return ()
        sizes = tuple(1 if element else as_int(r.extent) or 1 for r in at)
        starts = tuple(c.value(r.start) for r in at)
        guards = tuple(map(c.value, c.guards))
        access = ElementAccess(b, starts, sizes, write, c.loops, guards)
        return (Touch(access, dict(c.places).get(b)),)

    def sequence(self, s: Seq, c: _Context) -> SyncSpan:
        done: list[Stmt] = []
        head: tuple[Touch, ...] = ()
        pending: tuple[Touch, ...] = ()
        waits = parted = False
        for x in s.stmts:
            span = self.stmt(x, c)
            how = self.meeting(pending, span.head, len(c.loops))
            if how is Conflict.IN_BLOCK:
                done.append(BARRIER)
                pending, waits = (), True
            elif how is Conflict.IN_WARP or span.stmt == WARP_BARRIER:
                done += [WARP_BARRIER] if span.stmt != WARP_BARRIER else []
                pending, parted = _parted(pending), True
            if not waits:
                head += _parted(span.head) if parted else span.head
            done.append(span.stmt)
            pending = span.tail if span.waits else (*pending, *span.tail)
            waits = waits or span.waits
        same = len(done) == len(s.stmts) and all(map(operator.is_, done, s.stmts))
        return SyncSpan(s if same else seq(*done), head, pending, waits)

    def loop(self, s: For, c: _Context) -> SyncSpan:
        low, high = bounds(s.extent, self.ranges)
        self.ranges[s.var] = (0, max(high - 1, 0))
        inner = replace(c, loops=(*c.loops, (s.var, max(high, 1))))
        span = self.stmt(s.body, inner)
        body, head, tail, waits = span.stmt, span.head, span.tail, span.waits
        how = self.carried(s.var, high, span, len(c.loops))
        if how is Conflict.IN_BLOCK:
            body, tail, waits = seq(body, BARRIER), (), True
        elif how is Conflict.IN_WARP:
            body = seq(body, WARP_BARRIER)
            tail = _parted(tail)
        if body is not s.body and not self.is_uniform(s.extent, c):
            self.refuse(f"the loop over {called(s)}, whose extent differs between threads", s)
        first = self.loads((s.extent,), c)
        new = s if body is s.body else replace(s, body=body)
        if waits and low < 1:
            return SyncSpan(new, (*first, *head), (*first, *head, *tail), False)
        return SyncSpan(new, (*first, *head), tail if waits else (*first, *tail), waits)

    def carried(self, var: Var, extent: int, span: SyncSpan, depth: int) -> Conflict:
        """Return who may meet when one iteration of a loop follows on another.

        Iterations of short loops are looked at pair by pair; where each of them waits, neighbors.
        """
        if extent <= 1:
            return Conflict.NONE
        how = self.meeting(span.tail, span.head, depth)
        if how is Conflict.NONE or extent > SHORT:
            return how
        pairs = [(i, j) for j in range(1, extent) for i in range(j)]
        worst = Conflict.NONE
        for i, j in pairs:
            if span.waits and j > i + 1:
                continue
            before, after = (_in_iteration(p, var, n) for p, n in ((span.tail, i), (span.head, j)))
            worst = max(worst, self.meeting(before, after, depth))
            if worst is how:
                break
        return worst

    def branch(self, s: If, c: _Context) -> SyncSpan:
        cond = c.value(s.cond)
        then = self.stmt(s.then, replace(c, guards=(*c.guards, cond)))
        no = replace(c, guards=(*c.guards, op("not", cond)))
        other = SyncSpan(Seq(())) if s.orelse is None else self.stmt(s.orelse, no)
        orelse = None if s.orelse is None else other.stmt
        waits = _waits(then.stmt) or _waits(other.stmt)
        if waits and not self.is_uniform(s.cond, c):
            return self.stmt(self.sunk(replace(s, then=then.stmt, orelse=orelse)), c)
        same = then.stmt is s.then and orelse is s.orelse
        new = s if same else replace(s, then=then.stmt, orelse=orelse)
        first = self.loads((s.cond,), c)
        surely = then.waits and other.waits
        tail = (*then.tail, *other.tail)
        if waits and not surely:
            tail += (*then.head, *other.head)
        return SyncSpan(
            new, (*first, *then.head, *other.head), tail if surely else (*first, *tail), surely
        )

    def sunk(self, s: If) -> Stmt:
        """Return a branch on the thread with its condition at the statements inside: all threads
        reach the places between them."""
        named = any(isinstance(x, Let) and _waits(x) and _loads(x.value) for x in walk(s))
        if named or _loads(s.cond) & buffers_written(s):
            self.refuse(f"a branch on {show(s.cond)}", s)
        then = _under(s.cond, s.then)
        return then if s.orelse is None else seq(then, _under(op("not", s.cond), s.orelse))

    def is_uniform(self, e: Expr, c: _Context) -> bool:
        """True if all threads of a block find the same value."""
        e = c.value(e)
        names = free_vars(e)
        return _loads(e) <= self.same and names <= self.ranges.keys() - self.lanes

    def refuse(self, where: str, s: Stmt) -> None:
        raise UnsupportedError(
            f"there is a barrier inside {where}",
            "a barrier that not all threads of a block reach would hang it",
            f"function {self.name}:\n{show(s)}",
            "let the threads share that work in another way, or put it into a launch of its own",
        )

    def meeting(self, before: tuple[Touch, ...], after: tuple[Touch, ...], depth: int) -> Conflict:
        """Return how far apart the threads are that may meet when ``after`` follows ``before``."""
        worst = Conflict.NONE
        for x in before:
            for y in after:
                found = self.meet(x, y, depth)
                if found is Conflict.IN_WARP and (x.apart or y.apart):
                    continue
                if found is Conflict.IN_BLOCK:
                    return found
                worst = max(worst, found)
        return worst

    def meet(self, x: Touch, y: Touch, depth: int) -> Conflict:
        a, b = x.access, y.access
        if not (a.write or b.write) or (a.buffer is b.buffer and a.buffer in self.staged):
            return Conflict.NONE
        if a.buffer is b.buffer and a.write and b.write and _of_one_thread(a.buffer):
            return Conflict.NONE
        if a.buffer is not b.buffer:
            if x.place is None or y.place is None:
                return Conflict.NONE
            apart = x.place[1] <= y.place[0] or y.place[1] <= x.place[0]
            return Conflict.NONE if apart else self.widest()
        key = a, b, depth
        if key not in self.met:
            self.met[key] = self.narrowed(self.threads.meet(a, b, depth))
        return self.met[key]

    def widest(self) -> Conflict:
        return self.narrowed(Conflict.IN_BLOCK)

    def narrowed(self, how: Conflict) -> Conflict:
        """Return the scope of the barrier that parts threads in conflict.

        It is the warp's for a block of one warp, and the block's if the last warp is not whole.
        """
        if how is Conflict.NONE:
            return how
        if self.threads.count == WARP:
            return Conflict.IN_WARP
        return how if self.threads.count % WARP == 0 else Conflict.IN_BLOCK


def _in_iteration(touches: tuple[Touch, ...], var: Var, n: int) -> tuple[Touch, ...]:
    return tuple(replace(t, access=t.access.at(var, n)) for t in touches)


def _of_one_thread(b: Buffer) -> bool:
    """True for tensor memory, in which only one thread's products update sums."""
    return b.scope is Scope.TENSOR


def _parted(touches: tuple[Touch, ...]) -> tuple[Touch, ...]:
    return tuple(replace(t, apart=True) for t in touches)


def _under(cond: Expr, s: Stmt) -> Stmt:
    """Return ``s`` with ``cond`` around each part in which no threads wait for each other."""
    if not _waits(s):
        inside = isinstance(s, If) and s.orelse is None and not _loads(s.cond)
        merged = both(cond, s.cond) if isinstance(s, If) and inside else None
        return If(cond, s) if merged is None or not isinstance(s, If) else If(merged, s.then)
    match s:
        case Seq(stmts=stmts):
            return seq(*(_under(cond, x) for x in stmts))
        case For() | Let() | Alloc():
            return replace(s, body=_under(cond, s.body))
        case If(then=then, orelse=orelse):
            other = None if orelse is None else _under(cond, orelse)
            return replace(s, then=_under(cond, then), orelse=other)
        case _:
            return s


def _loads(e: Expr) -> frozenset[Buffer]:
    return frozenset(x.buffer for x in loads_in(e))


def _waits(s: Stmt) -> bool:
    """True if there is a statement in ``s`` at which threads wait for each other."""
    for x in walk(s):
        if isinstance(x, AllReduce) or (isinstance(x, Intrinsic) and x.name in _SYNC):
            return True
    return False
