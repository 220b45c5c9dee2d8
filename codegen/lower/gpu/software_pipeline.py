"""Software pipelines: the copies for later iterations of a loop are made while it computes.

``for k: S = copy(k); use(S)`` with a note ``pipeline=n``. Where copies are asynchronous, n places:
``copy 0 .. n-2; for k: wait for copy k; barrier; start copy k + n - 1; use(S[k % n])``. Else two
places, and the next copy is on its way in registers while the loop computes: ``copy 0; for k:
barrier; r = load(k + 1); use(S[k % 2]); S[(k + 1) % 2] = r``. So are copies beside asynchronous
ones that cannot be such. Products of warp groups read their places until the iteration after, so
copies begin one iteration later, behind them: ``use(S[k % n]); start copy k + n - 2; wait for the
products of k - 1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....ir.dtypes import index
from ....ir.errors import UnsupportedError
from ....ir.loop.affine import Interval, bounds, loop_range
from ....ir.loop.build import add, as_int, floormod, lt, mul
from ....ir.loop.copies import renamed
from ....ir.loop.names import called
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
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import PIPELINE, PRODUCERS
from ....ir.loop.printer import show
from ....ir.loop.visit import buffers_read, buffers_written, map_stmt, seq, substitute
from ....ir.target import Target
from ..passes.launches import BARRIER
from ..passes.rebuild import with_body
from .async_copies import COMMIT, Copies, is_async, noted
from .bulk_copies import Arrivals, is_box
from .places import at_place
from .products.groups import OF_GROUPS, Grouping, grouping_of, only_products

LONGEST = 2**40  # iterations; more of them means that nothing is known
STAGED_BYTES = 128  # of a thread's registers that the next copies may take on their way


def pipeline_loops(func: Func, target: Target) -> Func:
    """Return the function with its noted loops pipelined."""
    copies = Copies(noted(func, target))

    def stmt(
        s: Stmt, ranges: Mapping[Var, Interval], threads: tuple[Var, ...], number: Expr
    ) -> Stmt:
        if isinstance(s, For):
            ranges = {**ranges, s.var: loop_range(s.extent, ranges)}
            threads = (*threads, s.var) if s.over_threads else threads
            if s.kind is not Kind.THREAD:
                number = add(mul(number, s.extent), s.var)
        s = map_stmt(s, lambda c: stmt(c, ranges, threads, number))
        if isinstance(s, For) and PIPELINE.of(s):
            return _Pipeline.of(s, func.name, copies, ranges, number).result(threads)
        return s

    return with_body(func, stmt(func.body, {}, (), Const(0)))


@dataclass(frozen=True)
class _Pipeline:
    """One loop taken apart. ``ahead`` are the copies, ``rest`` what is done with them, ``number``
    is how many iterations were before, those of the loops around included.
    """

    loop: For
    count: Expr  # of iterations
    stages: int
    staged: Mapping[Buffer, Buffer]
    ahead: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]
    kept: tuple[Buffer, ...]  # buffers of an iteration that stay as they are
    number: Expr

    @property
    def grouped(self) -> bool:
        """True if the work is asynchronous products alone, which are waited for later."""
        return all(map(only_products, self.rest))

    @property
    def groups(self) -> Grouping:
        """How these products are grouped."""
        return grouping_of(seq(*self.rest)) or OF_GROUPS

    @property
    def behind(self) -> int:
        """Iterations whose products may be under way while the next ones begin."""
        return int(self.grouped and self.stages > 2)

    @staticmethod
    def of(
        loop: For, name: str, copies: Copies, ranges: Mapping[Var, Interval], number: Expr
    ) -> _Pipeline:
        allocs, stmts = _straight(loop.body)
        stages, most = PIPELINE.of(loop) or 1, bounds(loop.extent, ranges)[1]
        ahead = _ahead(allocs, stmts)
        if not ahead or most > LONGEST or stages < 2:
            raise UnsupportedError(
                f"loop {called(loop)} cannot be pipelined",
                "nothing in it can run ahead" if most <= LONGEST else "its extent has no bound",
                f"function {name}:\n{show(loop)}",
                "a copy can run ahead if it fills a shared buffer from what the loop "
                "does not write",
            )
        made = [copies.stmt(s, ranges) for s in ahead]
        late = any(is_async(s) or is_box(s) for s in made)
        stages = max(min(stages if late else 2, most), 1)
        mine = frozenset[Buffer]().union(*map(buffers_written, ahead)) & set(allocs)
        staged = {b: _staged(b, stages) for b in allocs if b in mine}
        rest = tuple(s for s in stmts if all(s is not x for x in ahead))
        kept = tuple(b for b in allocs if b not in mine)
        return _Pipeline(loop, loop.extent, stages, staged, tuple(made), rest, kept, number)

    def result(self, threads: Sequence[Var]) -> Stmt:
        """Return the loop and what comes before it, in a launch of these indices of threads."""
        if self.stages < 2:
            return PRODUCERS.drop(PIPELINE.drop(self.loop))
        if PRODUCERS.of(self.loop):
            body: Stmt = self.by_roles()
        elif all(map(is_box, self.ahead)):
            body = self.by_bulk(Arrivals.of(threads))
        elif any(map(is_async, self.ahead)):
            body = self.by_async()
        else:
            body = self.by_registers()
        for b in reversed([*self.staged.values()]):
            body = Alloc(b, body)
        return body

    def by_roles(self) -> Stmt:
        """Return the copies of an iteration, marked as such, and its work: see ``roles``."""
        once = For(Var("copies"), Const(1), self.copy(self.loop.var, self.place()))
        work = self.products() if self.grouped else (self.use(),)
        for b in reversed(self.kept):
            work = (Alloc(b, seq(*work)),)
        return replace(PIPELINE.drop(self.loop), body=seq(once, *work))

    def by_async(self) -> Stmt:
        var, ahead = self.loop.var, self.stages - 1 - self.behind
        first = Var(f"{var.name}_first")
        begin = For(first, Const(ahead), seq(self.copy(first, first), COMMIT))
        if as_int(self.count) is None:  # it may end before
            there = If(lt(first, self.count), self.copy(first, first))
            begin = For(first, Const(ahead), seq(there, COMMIT))
        wait = Intrinsic("wait_async", args=(ahead - 1,))
        held, early, late = self.later(ahead)
        if not self.grouped:
            body = self.main(wait, BARRIER, *early, COMMIT, self.use(), *late, held=held)
            return seq(begin, body)
        work = self.products(*early, COMMIT)
        body = self.main(wait, BARRIER, *work, *late, held=held)
        return seq(begin, body, self.groups.wait(0))

    def by_bulk(self, arrivals: Arrivals) -> Stmt:
        """Return the loop with bulk copies, which one thread starts and mbarriers count."""
        var, n = self.loop.var, self.stages
        ahead = n - 1 - self.behind

        def start(k: Expr, place: Expr) -> Stmt:
            copies = [self.at(s, k, place) for s in self.ahead]
            return arrivals.start([s for s in copies if isinstance(s, Intrinsic)], place)

        first, later = Var(f"{var.name}_first"), add(var, ahead)
        begin = For(first, Const(ahead), start(first, first))
        if as_int(self.count) is None:  # it may end before
            begin = For(first, Const(ahead), If(lt(first, self.count), start(first, first)))
        there = If(lt(later, self.count), start(later, floormod(later, n)))
        work = self.products(there) if self.grouped else (there, self.use())
        body = self.main(arrivals.wait(var, n), BARRIER, *work)
        end = [self.groups.wait(0)] if self.grouped else []
        made = seq(arrivals.init(n), BARRIER, begin, body, *end)
        return Alloc(arrivals.bars, made)

    def products(self, *meanwhile: Stmt) -> tuple[Stmt, ...]:
        """Return the work as a group of products, with what is done while they run."""
        how = self.groups
        return (*how.fence, self.use(), how.commit, *meanwhile, how.wait(self.behind))

    def by_registers(self) -> Stmt:
        held, early, late = self.later(1)
        work = self.products(*early) if self.grouped else (*early, self.use())
        body = self.main(BARRIER, *work, *late, held=held)
        start = self.copy(Const(0), Const(0))
        if as_int(self.count) is None:
            start = If(lt(Const(0), self.count), start)
        return seq(start, body)

    def later(self, distance: int) -> tuple[list[Buffer], list[Stmt], list[Stmt]]:
        """Return the copies for a later iteration: what is done before this one's work, and after
        it.

        Asynchronous ones are begun before. Others load into registers, as far as these go, and
        store when the work is done.
        """
        k = add(self.loop.var, distance)
        place = floormod(k, self.stages)
        held: list[Buffer] = []
        early: list[Stmt] = []
        late: list[Stmt] = []
        for s in self.ahead:
            parts = None if is_async(s) else _in_two(s, sum(map(_bytes, held)))
            if parts is None:
                early.append(self.at(s, k, place))
                continue
            r, load, store = parts
            held.append(r)
            early.append(self.at(load, k, place))
            late.append(self.at(store, k, place))
        there = lt(k, self.count)
        begin, end = ([If(there, seq(*x))] if x else [] for x in (early, late))
        return held, [*begin], [*end]

    def main(self, *stmts: Stmt, held: Sequence[Buffer] = ()) -> Stmt:
        body: Stmt = seq(*stmts)
        for b in reversed((*held, *self.kept)):
            body = Alloc(b, body)
        return replace(PIPELINE.drop(self.loop), body=body)

    def place(self) -> Expr:
        """Return the place of an iteration, counted over all runs of a loop with roles."""
        if not PRODUCERS.of(self.loop):
            return floormod(self.loop.var, self.stages)
        return floormod(self.number, self.stages)

    def use(self) -> Stmt:
        return at_place(seq(*self.rest), self.staged, self.place())

    def copy(self, k: Expr, place: Expr) -> Stmt:
        return seq(*(self.at(s, k, place) for s in self.ahead))

    def at(self, s: Stmt, k: Expr, place: Expr) -> Stmt:
        """Return a copy as iteration ``k`` makes it, into the given place."""
        return at_place(substitute(renamed(s), {self.loop.var: k}), self.staged, place)


def _straight(s: Stmt) -> tuple[list[Buffer], list[Stmt]]:
    """Return the buffers and the statements, one after the other, of a loop's body."""
    match s:
        case Alloc(buffer=b, body=body):
            allocs, stmts = _straight(body)
            return [b, *allocs], stmts
        case Seq(stmts=stmts_):
            parts = [_straight(x) for x in stmts_]
            return [b for p in parts for b in p[0]], [x for p in parts for x in p[1]]
        case Let(var=var, value=value, body=body) if var.dtype == index:
            return _straight(substitute(body, {var: value}))
        case _:
            return [], [s]


def _ahead(allocs: Sequence[Buffer], stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return the statements that fill shared buffers from memory that the loop leaves alone."""
    shared = {b for b in allocs if b.scope is Scope.SHARED}
    changed = frozenset[Buffer]().union(*map(buffers_written, stmts))
    fills = (s for s in stmts if set() < buffers_written(s) <= shared)
    found = [s for s in fills if not buffers_read(s) & changed]
    while True:
        others = [s for s in stmts if all(s is not x for x in found)]
        theirs = frozenset[Buffer]().union(*map(buffers_written, others))
        kept = [s for s in found if not buffers_written(s) & theirs]
        if len(kept) == len(found):
            return tuple(found)
        found = kept


def _staged(b: Buffer, stages: int) -> Buffer:
    align = None if b.align is None else (b.align[0] + 1, *b.align[1:])
    return replace(b, shape=(stages, *b.shape), align=align)


def _bytes(b: Buffer) -> int:
    return prod(b.shape) * b.dtype.bytes


def _in_two(s: Stmt, taken: int) -> tuple[Buffer, Stmt, Stmt] | None:
    """Return a copy as loads to registers and stores from there; None if it is not one."""
    loops: list[For] = []
    inner: Stmt = s
    while isinstance(inner, For | If | Let):
        if isinstance(inner, For):
            loops.append(inner)
        if isinstance(inner, If) and inner.orelse is not None:
            return None
        inner = inner.then if isinstance(inner, If) else inner.body
    extents = [as_int(x.extent) for x in loops]
    shape = tuple(n for n in extents if n is not None)
    if not isinstance(inner, Store) or len(shape) < len(loops):
        return None
    r = Buffer(f"{inner.buffer.name}_next", shape or (1,), inner.buffer.dtype, Scope.REGISTER)
    if taken + _bytes(r) > STAGED_BYTES:
        return None
    place: tuple[Expr, ...] = tuple(x.var for x in loops) or (Const(0),)
    leaf = inner
    load = _with_leaf(s, leaf, Store(r, place, leaf.value))
    store = _with_leaf(s, leaf, replace(leaf, value=Load(r, place)))
    return r, load, store


def _with_leaf(s: Stmt, leaf: Store, new: Store) -> Stmt:
    return new if s is leaf else map_stmt(s, lambda c: _with_leaf(c, leaf, new))
