"""Reductions whose terms are shared out among threads: a partial result each, then one of all.

``for k0: for tx: C[i] += A[i, k0 * 64 + tx]``  ->  ``r[0] = 0; for k0: r[0] += A[..];
all_reduce(r); if tx == 0: C[i] = r[0]``. Where C is the thread's own, all of them take the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir.errors import UnsupportedError
from ....ir.loop.affine import linear
from ....ir.loop.build import FALSE, as_int, both, compare
from ....ir.loop.nodes import (
    Alloc,
    AllReduce,
    AxisKind,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Kind,
    Load,
    Scope,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.visit import (
    children,
    free_vars,
    map_stmt,
    seq,
    substitute,
    substitute_expr,
    walk,
)
from ....schedule.combiner import Combiner, combined_stores, combiner_of
from ....schedule.guards import starting_guard
from ..passes.launches import closed, each_launch, opened
from .bind import is_kept


def combine_threads(func: Func) -> Func:
    """Return the function, whose launches are bound, without reductions over thread indices."""
    return each_launch(func, lambda s: _in_launch(s, func.name))


def reduce_vars(block: Block) -> frozenset[Var]:
    """Return the variables over which a block reduces."""
    values = [a.value for a in block.axes if a.kind is AxisKind.REDUCE]
    return frozenset[Var]().union(*map(free_vars, values))


def _in_launch(s: For, name: str) -> Stmt:
    loops, body = opened(s)
    threads = {x.thread: x for x in loops if x.over_threads}
    launch = _ReducingLaunch(name, threads)
    for block in [x for x in walk(body) if isinstance(x, Block)]:
        over = reduce_vars(block) & {x.var for x in threads.values()}
        if over:
            body = launch.rewritten(body, block)
    return closed(loops, body)


@dataclass(frozen=True)
class _ReducingLaunch:
    """``threads`` are the loops over the threads of a block, by index."""

    name: str
    threads: Mapping[str, For]

    def rewritten(self, body: Stmt, block: Block) -> Stmt:
        """Return ``body`` with one reduction combined across threads."""
        lane = self.threads.get("threadIdx.x")
        others = {x.var for t, x in self.threads.items() if t != "threadIdx.x"}
        if lane is None or reduce_vars(block) & others:
            self.refuse(block, "only threads in a row (threadIdx.x) can combine results")
        assert lane is not None
        combiner = combiner_of(block)
        if combiner is None:
            self.refuse(block, "its operation is not known to be associative")
        assert combiner is not None
        if not combiner.commutes and not _in_order(block, lane.var):
            self.refuse(
                block,
                "its operation is not commutative, and its terms are dealt to the threads in turn",
            )
        return self.put(body, (), block, combiner)

    def refuse(self, block: Block, why: str) -> None:
        raise UnsupportedError(
            f"the reduction {block.name} is bound to threads",
            why,
            f"function {self.name}",
            "rfactor the loop and combine the partial results in order",
        )

    def put(self, s: Stmt, above: tuple[For, ...], block: Block, combiner: Combiner) -> Stmt:
        """Return ``s`` with the reduction's outermost loop (or guard on its threads) replaced."""
        if all(x is not block for x in walk(s)):
            return s
        lane = self.threads["threadIdx.x"]
        mine = isinstance(s, For) and s.var in reduce_vars(block)
        if s is block or mine or (isinstance(s, If) and lane.var in free_vars(s.cond)):
            return _Reduction(self, block, combiner, lane, above, s).result()
        if isinstance(s, For):
            above = (*above, s)
        return map_stmt(s, lambda c: self.put(c, above, block, combiner))


@dataclass(frozen=True)
class _Reduction:
    """One reduction: ``root``, under the loops ``above``, is what runs all its terms."""

    launch: _ReducingLaunch
    block: Block
    combiner: Combiner
    lane: For
    above: tuple[For, ...]
    root: Stmt

    def result(self) -> Stmt:
        """Return the reduction: each thread's terms added to a neutral value, and all combined."""
        c = self.combiner
        spatial = self.spatial_loops()
        shape = tuple(as_int(x.extent) or 1 for x in spatial) or (1,)
        partial = {b: Buffer(f"{b.name}_part", shape, b.dtype, Scope.REGISTER) for b in c.buffers}
        place = self.place()
        begin = seq(
            *(Store(partial[b], place, e) for b, e in zip(c.buffers, c.neutral, strict=True))
        )
        begin = substitute(begin, self.values())
        body: Stmt = seq(
            _under_copies(begin, spatial),
            self.with_terms(self.root, partial),
            _under_copies(self.finish(self.opened(c.index), partial), spatial),
        )
        for b in reversed(c.buffers):
            body = Alloc(partial[b], body)
        return body

    def place(self) -> tuple[Expr, ...]:
        """Return the index of a partial result, counted by loops: guards may leave elements out."""
        return tuple(x.var for x in self.spatial_loops()) or (Const(0),)

    def values(self) -> dict[Var, Expr]:
        """Return the block's axes as the loops give them."""
        return {a.var: a.value for a in self.block.axes}

    def opened(self, es: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute_expr(e, self.values()) for e in es)

    def spatial_loops(self) -> tuple[For, ...]:
        """Return the loops from the root inward on which the place of the result depends."""
        spatial = [a.value for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        used = frozenset[Var]().union(*map(free_vars, spatial))
        found = [x for x in _path(self.root, self.block) if isinstance(x, For) and x.var in used]
        if any(x.var in reduce_vars(self.block) for x in found):
            self.launch.refuse(self.block, "a loop drives its terms and its results at once")
        return tuple(found)

    def with_terms(self, s: Stmt, partial: Mapping[Buffer, Buffer]) -> Stmt:
        """Return ``s`` with the block's update made to the partial results."""
        if s is self.block:
            return self.update(partial)
        return map_stmt(s, lambda c: self.with_terms(c, partial))

    def update(self, partial: Mapping[Buffer, Buffer]) -> Stmt:
        c, place = self.combiner, self.place()
        terms = self.opened(c.terms)
        own = tuple(Load(partial[b], place) for b in c.buffers)
        body = combined_stores(c, own, terms, tuple((partial[b], place) for b in c.buffers))
        guard = self.block.predicate
        return body if guard is None else If(substitute_expr(guard, self.values()), body)

    def finish(self, index: tuple[Expr, ...], partial: Mapping[Buffer, Buffer]) -> Stmt:
        """Return what combines partial results, and stores the total: each thread into buffers of
        its own, or one thread for all.
        """
        c = self.combiner
        one = [Buffer(f"{b.name}_all", (1,), b.dtype, Scope.REGISTER) for b in c.buffers]
        zero = (Const(0),)
        take = [
            Store(r, zero, Load(partial[b], self.place()))
            for r, b in zip(one, c.buffers, strict=True)
        ]
        reduce_ = AllReduce(tuple(one), c.left, c.right, c.combined, as_int(self.lane.extent) or 1)
        total = tuple(Load(r, zero) for r in one)
        places = tuple((b, index) for b in c.buffers)
        if c.starts == c.neutral:
            stores = seq(*(Store(b, at, e) for (b, at), e in zip(places, total, strict=True)))
        else:
            stores = combined_stores(c, self.opened(c.starts), total, places)
        cond = both(self.guard(), self.once())
        body = seq(*take, reduce_, stores if cond is None else If(cond, stores))
        for r in reversed(one):
            body = Alloc(r, body)
        return body

    def guard(self) -> Expr | None:
        """Return the condition under which the block has a result at all."""
        loops = [x for x in _path(self.root, self.block) if isinstance(x, For)]
        extents = {x.var: as_int(x.extent) or 1 for x in (*self.above, self.lane, *loops)}
        values = {a.var: a.value for a in self.block.axes}
        guard = self.block.predicate
        bare = replace(
            self.block, predicate=None if guard is None else substitute_expr(guard, values)
        )
        found = starting_guard(bare, extents)
        if found == FALSE:
            self.launch.refuse(self.block, "its guard is too involved")
        return found

    def once(self) -> Expr | None:
        if all(is_kept(b) for b in self.combiner.buffers):
            return None
        if any(is_kept(b) for b in self.combiner.buffers):
            self.launch.refuse(self.block, "some of its results are in registers, others are not")
        return both(compare("eq", self.lane.var, 0), *self.among_others())

    def among_others(self) -> list[Expr]:
        """Return the conditions on other thread indices under which the block runs."""
        others = {x.var for x in self.launch.threads.values()} - {self.lane.var}
        conditions = [x.cond for x in _path(self.root, self.block) if isinstance(x, If)]
        return [c for c in conditions if free_vars(c) and free_vars(c) <= others]


def _path(s: Stmt, block: Block) -> tuple[Stmt, ...]:
    """Return the statements from ``s`` down to a block in it."""
    if s is block:
        return (s,)
    for c in children(s):
        below = _path(c, block)
        if below:
            return (s, *below)
    return ()


def _under_copies(s: Stmt, loops: Sequence[For]) -> Stmt:
    """Return ``s`` under serial loops of its own like the given ones."""
    names: dict[Var, Expr] = {x.var: Var(x.var.name) for x in loops}
    s = substitute(s, names)
    for x in reversed(loops):
        var = names[x.var]
        assert isinstance(var, Var)
        s = For(var, substitute_expr(x.extent, names), s, Kind.SERIAL)
    return s


def _in_order(block: Block, lane: Var) -> bool:
    """True if each thread takes terms that come right after those of the thread before it.

    Terms are in the order of the axes, so that the first one with several terms has the lane.
    """
    wide = [a for a in block.axes if a.kind is AxisKind.REDUCE and a.extent != 1]
    if not wide or any(lane in free_vars(a.value) for a in wide[1:]):
        return False
    form = linear(wide[0].value).terms
    own = form.get(lane, 0)
    rest = [abs(k) for v, k in form.items() if v is not lane]
    return own > 0 and all(k < own for k in rest) and all(isinstance(v, Var) for v in form)
