"""Partial results of a softmax that are put together while its loop runs: online."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ...ir.dtypes import DType
from ...ir.elementwise import identity
from ...ir.loop.build import compare, op, point, select
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Intrinsic,
    Load,
    Op,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import (
    free_vars,
    loads_in,
    map_blocks,
    map_expr,
    map_stmt,
    on_loads,
    seq,
    substitute,
    substitute_expr,
    walk,
)
from ..cursor import LoopRef, Path, edit, find_loop, fresh_name, loop_of, named
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import only_blocks, plain_loops
from ..softmax.parts import RunningSoftmax, Total, blocks_in, running_softmax
from ..stores import update_of

Rewrite: TypeAlias = Callable[[Block], Block]


@primitive
def online(func: Func, loop: LoopRef) -> Func:
    """Put the results of a softmax's parts together in the loop over the parts.

    ``for p: M_rf[p], S_rf[p] = ..; for p: M = max(M, M_rf[p]); for p: c[p] = exp(M_rf[p] - M); for
    p: S = S + S_rf[p] * c[p]``  ->  ``for p: M_rf[p] = ..; c[p] = exp(M - max(M, M_rf[p])); M =
    max(M, M_rf[p]); S_rf[p] = ..; S = S * c[p] + S_rf[p]``: exponentials are relative to the
    largest score so far, and what a part needs does not outlive its iteration. A partial sum that a
    block of its own begins is not kept at all: that block becomes ``S = S * c[p]``, and the updates
    go to ``S``. Do this last.

    Refused:
        - a loop that holds no exponentials made by `rescale`
        - results of the loop that other nests use than those that put them together, part by part,
          after `decompose_reduction`

    Example:
        sch = masked_softmax()
        sch.online("k_tile")
    """
    asked = f"put the parts of loop `{named(func, loop)}` together as it runs"
    path = find_loop(func, loop, asked)
    require(func, asked, plain_loops((loop_of(path),)), only_blocks(path))
    found = obtain(func, asked, running_softmax(path))
    parent = path[-2]
    assert isinstance(parent, Seq)
    require(func, asked, _contained(func, path, found, parent))
    make = _Online(func, loop_of(path), found, _rest(found))
    new = edit(func, [(path[:-1], lambda s: make.sequence(s))])
    return replace(new, allocs=tuple(b for b in (*new.allocs, *make.made) if _used(new, b)))


def _rest(k: RunningSoftmax) -> Buffer:
    """Return what the totals of a row are multiplied by at the end: 1, or NaN where it is none."""
    shape = (*k.largest.buffer.shape[: k.part], *k.largest.buffer.shape[k.part + 1 :])
    return Buffer(f"{k.update.buffer.name}_rest", shape, k.scale.buffer.dtype, k.scale.buffer.scope)


def _used(func: Func, buffer: Buffer) -> bool:
    blocks = [b for b in walk(func.body) if isinstance(b, Block)]
    return any(r.buffer is buffer for b in blocks for r in (*b.reads, *b.writes))


def _contained(func: Func, path: Path, k: RunningSoftmax, parent: Seq) -> Reason | None:
    """Require that nothing else uses what the loop computes in parts or what is put together."""
    loop = loop_of(path)
    moved = [k.maximum, k.scales, *(t.nest for t in k.totals), *k.starts.values()]
    known = {b.name for s in (loop, *moved) for b in blocks_in(s)}
    private = {k.largest.buffer, k.scale.buffer}
    for b in blocks_in(loop):  # what depends on the maxima of parts changes its meaning
        if any(r.buffer in private for r in b.reads):
            private |= {r.buffer for r in b.writes}
    for s in walk(func.body):
        if not isinstance(s, Block) or s.name in known:
            continue
        if any(r.buffer in private for r in (*s.reads, *s.writes)):
            return _used_elsewhere(s)
    order = [id(s) for s in parent.stmts]
    last = max(order.index(id(s)) for s in moved)
    between = [
        s for s in parent.stmts[order.index(id(loop)) + 1 : last] if all(s is not m for m in moved)
    ]
    theirs = {r.buffer for s in between for b in blocks_in(s) for r in b.writes}
    taken = {r.buffer for s in (loop, *moved) for b in blocks_in(s) for r in b.reads}
    for b in blocks_in(seq(*between)):
        if any(r.buffer in taken for r in b.writes):
            return _used_elsewhere(b)
    assert theirs.isdisjoint(taken)
    return None


def _used_elsewhere(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` uses partial results of the loop, or is needed between the parts",
        (block,),
        hint="compute_at takes it into the loop, or after all totals",
    )


@dataclass(frozen=True)
class _Online:
    """Rewrites the sequence around the loop over parts."""

    func: Func
    loop: For
    k: RunningSoftmax
    rest: Buffer

    @property
    def made(self) -> tuple[Buffer, ...]:
        """The new buffers."""
        return () if self.guarded else (self.rest,)

    @property
    def guarded(self) -> bool:
        """True if rows of nothing but -inf are relative to 0 in the graph already."""
        return self.k.shift == _base(Load(self.k.update.buffer, self.k.update.index))

    def sequence(self, s: Stmt) -> Stmt:
        assert isinstance(s, Seq)
        k = self.k
        gone = [k.maximum, k.scales, *(t.nest for t in k.totals), *k.starts.values()]
        result: list[Stmt] = []
        for x in s.stmts:
            if x is self.loop:
                result += [*k.starts.values(), replace(self.loop, body=self.body()), *self.ends()]
            elif all(x is not y for y in gone):
                result.append(x)
        return seq(*result)

    def body(self) -> Stmt:
        """Return one iteration: the running totals are kept relative to the running maximum."""
        k, loop = self.k, self.loop
        stmts = list(loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,))
        result: list[Stmt] = []
        at = max(n for n, s in enumerate(stmts) if _writes(s, k.largest.buffer))
        for n, s in enumerate(stmts):
            result.append(self.relative(s))
            if n == at:
                result += [self.inner(k.scales, self.running_scale), self.inner(k.maximum)]
        for t in k.totals:
            result = self.with_total(result, t)
        return seq(*result)

    def inner(self, nest: Stmt, change: Rewrite | None = None) -> Stmt:
        """Return what a nest does for one part, the loop's own."""
        assert isinstance(nest, For)
        body = substitute(nest.body, {nest.var: self.loop.var})
        return body if change is None else map_blocks(body, change)

    def running_scale(self, b: Block) -> Block:
        """Return the block of ``c[p] = exp(M - max(M, M_rf[p]))``, 0 where both are -inf."""
        k = self.k
        assert isinstance(b.body, Store)
        loads = [*loads_in(b.body.value)]
        (part,) = [x for x in loads if x.buffer is k.largest.buffer]
        index = _less(part.index, k.part)
        old = Load(k.update.buffer, index)
        value = op("exponential", op("subtract", old, _base(op("maximum", old, part))))
        return replace(
            b,
            reads=(_point(old), _point(part)),
            body=replace(b.body, value=value),
        )

    def relative(self, s: Stmt) -> Stmt:
        """Return a statement that reads maxima so far for those of the part."""
        k = self.k
        if not any(
            _reads(b, k.largest.buffer) and not _writes(b, k.largest.buffer) for b in blocks_in(s)
        ):
            return s
        most = k.largest.buffer
        expr = on_loads(
            lambda e: Load(k.update.buffer, _less(e.index, k.part)) if e.buffer is most else e
        )

        def block(b: Block) -> Block:
            reads = tuple(_without(r, k.largest.buffer, k.update.buffer, k.part) for r in b.reads)
            return replace(b, reads=reads, body=map_stmt(b.body, lambda c: c, expr))

        return map_blocks(s, block)

    def with_total(self, stmts: list[Stmt], t: Total) -> list[Stmt]:
        """Return the iteration's statements with one more total."""
        sums = t.term.buffer
        writers = [b for s in stmts for b in blocks_in(s) if _writes(b, sums)]
        starts = [b for b in writers if b.init is None and not _reads(b, sums)]
        if len(starts) == 1:
            scaled = [map_blocks(s, lambda b: self.begins(b, t, starts[0])) for s in stmts]
            return [self.goes_on(s, t) for s in scaled]
        last = max(n for n, s in enumerate(stmts) if _writes(s, sums))

        def update(b: Block) -> Block:
            assert isinstance(b.body, Store)
            own = Load(b.body.buffer, b.body.index)
            found = update_of(b)
            assert found is not None and isinstance(found.term, Op)
            part, scale = found.term.args
            value = op("add", op("multiply", own, scale), part)
            return replace(b, body=replace(b.body, value=value))

        return [*stmts[: last + 1], self.inner(t.nest, update), *stmts[last + 1 :]]

    def begins(self, b: Block, t: Total, start: Block) -> Block:
        """Return the block that scales a total in place of the one that began a partial sum."""
        if b.name != start.name:
            return b
        assert isinstance(b.body, Store)
        by = dict(zip(t.term.index, b.body.index, strict=True))
        names = {v: e for v, e in by.items() if isinstance(v, Var)}
        scale = Load(t.scale.buffer, tuple(substitute_expr(e, names) for e in t.scale.index))
        own = Load(t.store.buffer, _less(b.body.index, t.part))
        value = op("multiply", own, _as(scale, own.dtype))
        return replace(
            b,
            axes=self.reducing(b),
            reads=(_point(own), _point(scale)),
            writes=(_point(own),),
            body=Store(own.buffer, own.index, value),
        )

    def goes_on(self, s: Stmt, t: Total) -> Stmt:
        """Return a statement that updates the total for the partial sum."""
        old, new = t.term.buffer, t.store.buffer

        def block(b: Block) -> Block:
            if not (_reads(b, old) or _writes(b, old)):
                return b
            reads = tuple(_without(r, old, new, t.part) for r in b.reads)
            writes = tuple(_without(r, old, new, t.part) for r in b.writes)
            body = _on(b.body, old, new, t.part)
            return replace(b, axes=self.reducing(b), reads=reads, writes=writes, body=body)

        return map_blocks(s, block)

    def reducing(self, b: Block) -> tuple[BlockAxis, ...]:
        """Return a block's axes; that of the parts is one of a reduction now."""
        return tuple(
            replace(a, kind=AxisKind.REDUCE) if self.loop.var in free_vars(a.value) else a
            for a in b.axes
        )

    def ends(self) -> list[Stmt]:
        """Return nests that bring the totals to what the graph shifts exponentials by."""
        if self.guarded:
            return []
        k, name = self.k, self.rest.name
        first = self.again(k.starts[k.update.buffer], name, self.last)
        totals = [
            self.again(k.starts[t.store.buffer], f"{t.block.name}_end", partial(self.ended, t))
            for t in k.totals
        ]
        return [first, *totals]

    def last(self, b: Block) -> Block:
        """Return the block of what the totals of a row are multiplied by."""
        assert isinstance(b.body, Store)
        (old,) = {*loads_in(self.k.shift)}
        now = Load(self.k.update.buffer, b.body.index)
        shift = _replaced(self.k.shift, old, now)
        value = op("exponential", op("subtract", _base(now), shift))
        to = Load(self.rest, b.body.index)
        store = Store(to.buffer, to.index, value)
        return replace(b, reads=(_point(now),), writes=(_point(to),), body=store)

    def ended(self, t: Total, b: Block) -> Block:
        """Return the block that multiplies a total by that."""
        assert isinstance(b.body, Store)
        by = dict(zip(t.store.index, b.body.index, strict=True))
        names = {v: e for v, e in by.items() if isinstance(v, Var)}
        rows = _less(t.scale.index, self.k.part)
        rest = Load(self.rest, tuple(substitute_expr(e, names) for e in rows))
        now = Load(t.store.buffer, b.body.index)
        value = op("multiply", now, _as(rest, now.dtype))
        return replace(b, reads=(_point(now), _point(rest)), body=replace(b.body, value=value))

    def again(self, nest: Stmt, name: str, change: Rewrite) -> Stmt:
        """Return a nest of its own loops like ``nest``, whose block is changed."""

        def go(s: Stmt, by: dict[Var, Expr]) -> Stmt:
            match s:
                case For(var=v):
                    new = Var(v.name)
                    return replace(s, var=new, body=go(s.body, {**by, v: new}))
                case Block():
                    axes = {a.var: Var(a.var.name) for a in s.axes}
                    moved = substitute(s, {**by})
                    assert isinstance(moved, Block)
                    fresh = substitute(replace(moved, axes=()), dict(axes))
                    assert isinstance(fresh, Block)
                    own = tuple(replace(a, var=axes[a.var]) for a in moved.axes)
                    return change(replace(fresh, axes=own, name=fresh_name(self.func, name)))
                case _:
                    return map_stmt(s, lambda c: go(c, by))

        return go(nest, {})


def _replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    return new if e == old else map_expr(e, lambda x: _replaced(x, old, new))


def _base(largest: Expr) -> Expr:
    """Return what exponentials are relative to: the largest so far, or 0 where all are -inf."""
    dtype = largest.dtype
    nothing = Const(float(identity("maximum", dtype)), dtype)
    return select(compare("eq", largest, nothing), Const(0.0, dtype), largest)


def _less(index: tuple[Expr, ...], dim: int) -> tuple[Expr, ...]:
    return (*index[:dim], *index[dim + 1 :])


def _as(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype == dtype else Cast(e, dtype)


def _reads(b: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in b.reads)


def _writes(s: Stmt, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for b in blocks_in(s) for r in b.writes)


def _point(e: Load) -> Region:
    return point(e.buffer, e.index)


def _without(r: Region, old: Buffer, new: Buffer, dim: int) -> Region:
    """Return a region of ``old`` as one of ``new``, which lacks a dimension."""
    if r.buffer is not old:
        return r
    return Region(new, (*r.ranges[:dim], *r.ranges[dim + 1 :]))


def _on(s: Stmt, old: Buffer, new: Buffer, dim: int) -> Stmt:
    """Return a statement on ``new``, which lacks a dimension of ``old``."""
    expr = on_loads(lambda e: Load(new, _less(e.index, dim)) if e.buffer is old else e)
    match s:
        case Intrinsic(writes=writes, reads=reads):
            w, r = (tuple(_without(x, old, new, dim) for x in part) for part in (writes, reads))
            return replace(s, writes=w, reads=r)
        case Store() if s.buffer is old:
            value = expr(s.value)
            return Store(new, _less(s.index, dim), value)
        case _:
            return map_stmt(s, lambda c: _on(c, old, new, dim), expr)
