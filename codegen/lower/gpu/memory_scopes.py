"""Intermediate buffers of a launch that no schedule has placed: where they live.

``bind_threads`` takes those that threads may share to shared memory. What each thread turns out to
use alone becomes its own; what is too much for shared memory gets a place in the workspace for
every block. Small buffers of a thread's own become registers, large ones go to the workspace too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....ir.dtypes import index
from ....ir.errors import UnsupportedError
from ....ir.loop.affine import bounds
from ....ir.loop.build import add, as_int, conjuncts, mul
from ....ir.loop.nodes import (
    Alloc,
    Buffer,
    Cast,
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
    Scope,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import UNPLACED
from ....ir.loop.visit import (
    children,
    exprs,
    map_stmt,
    replace_buffers,
    substitute_expr,
    walk,
)
from ....ir.target import Target
from ..passes.launches import each_launch
from ..passes.layout import elements
from .footprints import BlockThreads, Conflict, ElementAccess
from .limits import reduction_bytes
from .places import at_place

FEW = 64  # elements that a thread may keep in registers
OWN = 4096  # bytes of a buffer in a thread's own memory


def privatize(func: Func) -> Func:
    """Return the function with the small buffers of its threads in registers, the large in the
    workspace.

    A GPU sets a thread's own memory aside for all threads that it can hold.
    """
    return each_launch(func, _with_own)


def _with_own(s: For) -> Stmt:
    chain = [x for x in walk(s) if isinstance(x, For) and x.kind is Kind.THREAD]
    large: list[Buffer] = []

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt)
        if not isinstance(x, Alloc) or x.buffer.scope is not Scope.GLOBAL:
            return x
        if _bytes(x.buffer) > OWN:
            large.append(x.buffer)
        return _in_scope(x, Scope.REGISTER) if prod(x.buffer.shape) <= FEW else x

    result = stmt(s)
    for b in large:
        result, outside = _to_workspace(result, b, chain)
        result = Alloc(outside, result)
    return result


def assign_memory_scopes(func: Func, target: Target) -> Func:
    """Return the function with each of its launches' own buffers where it can live."""
    unplaced = frozenset(UNPLACED.of(func) or ())
    func = UNPLACED.drop(func)

    def settled(s: For) -> Stmt:
        return _LaunchScopes.of(s, func.name, unplaced, target).result(s)

    return each_launch(func, settled)


@dataclass(frozen=True)
class _LaunchScopes:
    """One launch: its loops over blocks and threads, the buffers that nobody placed by name."""

    name: str
    blocks: tuple[For, ...]
    threads: BlockThreads
    unplaced: frozenset[str]
    limit: int

    @staticmethod
    def of(s: For, name: str, unplaced: frozenset[str], target: Target) -> _LaunchScopes:
        chain = [x for x in walk(s) if isinstance(x, For) and x.kind is Kind.THREAD]
        by = {x.thread: (x.var, as_int(x.extent) or 1) for x in chain}
        threads = BlockThreads(tuple(by.get(f"threadIdx.{d}", (None, 1)) for d in "xyz"))
        blocks = tuple(x for x in chain if x.over_blocks)
        return _LaunchScopes(name, blocks, threads, unplaced, target.gpu.shared_per_block)

    def result(self, s: Stmt) -> Stmt:
        s = self.settled(s, s)
        outside: list[Buffer] = []
        limit = self.limit - reduction_bytes(s, self.threads.count)
        while _shared_bytes(s) > limit:
            largest = max(self.movable(s), key=_bytes, default=None)
            if largest is None:
                break  # what the schedule placed is too much: said at the end
            s, moved = _to_workspace(s, largest, self.blocks)
            outside.append(moved)
        for b in outside:
            s = Alloc(b, s)
        return s

    def settled(self, s: Stmt, launch: Stmt) -> Stmt:
        s = map_stmt(s, lambda c: self.settled(c, launch))
        if not isinstance(s, Alloc):
            return s
        b, scope = s.buffer, s.buffer.scope
        if scope is Scope.REGISTER and self.passes_on(b, s.body):
            raise UnsupportedError(
                f"a thread reads what another one wrote to {b.name}",
                "each has registers of its own",
                f"function {self.name}",
                "shared memory is for all threads of a block",
            )
        if scope is Scope.SHARED and b.name in self.unplaced and self.is_own(b, s.body):
            return _in_scope(s, Scope.GLOBAL)
        return s

    def ranges(self) -> dict[Var, tuple[int, int]]:
        """Return the values of the launch's own indices."""
        pairs = [(x.var, as_int(x.extent) or 1) for x in self.blocks]
        pairs += [(v, n) for v, n in self.threads.vars if v is not None]
        return {v: (0, n - 1) for v, n in pairs}

    def is_own(self, b: Buffer, body: Stmt) -> bool:
        """True if no thread touches what another one writes."""
        found = [*accesses(body, b, self.ranges())]
        writes = [a for a in found if a.write]
        return all(self.threads.meet(w, a, 0) is Conflict.NONE for w in writes for a in found)

    def passes_on(self, b: Buffer, body: Stmt) -> bool:
        """True if a thread reads an element that it never writes, and another thread does."""
        found = [*accesses(body, b, self.ranges())]
        writes = [a for a in found if a.write]
        for r in (a for a in found if not a.write):
            alone = all(self.threads.meet(w, r, 0) is Conflict.NONE for w in writes)
            if not alone and self.threads.misses(r, writes):
                return True
        return False

    def movable(self, s: Stmt) -> Iterator[Buffer]:
        found = (x.buffer for x in walk(s) if isinstance(x, Alloc))
        return (b for b in found if b.scope is Scope.SHARED and b.name in self.unplaced)


def _to_workspace(s: Stmt, old: Buffer, loops: Sequence[For]) -> tuple[Stmt, Buffer]:
    """Return ``s`` with ``old`` as a part of a buffer outside that has one for every iteration."""
    count = 1
    number: Expr = Const(0)
    for x in loops:
        n = as_int(x.extent) or 1
        count, number = count * n, add(mul(number, n), x.var)
    new = Buffer(old.name, (count, *old.shape), old.dtype)
    return _without(at_place(s, {old: new}, number), old), new


def _in_scope(s: Alloc, scope: Scope) -> Alloc:
    new = replace(s.buffer, scope=scope)
    return Alloc(new, replace_buffers(s.body, {s.buffer: new}))


def _bytes(b: Buffer) -> int:
    return prod(b.shape) * b.dtype.bytes


def _shared_bytes(s: Stmt) -> int:
    """Return the bytes of shared memory that are in use at once, before buffers are flat."""
    inner = max(map(_shared_bytes, children(s)), default=0)
    if not isinstance(s, Alloc) or s.buffer.scope is not Scope.SHARED:
        return inner
    return inner + elements(s.buffer) * s.buffer.dtype.bytes


def accesses(s: Stmt, b: Buffer, ranges: Mapping[Var, tuple[int, int]]) -> Iterator[ElementAccess]:
    """Yield each access of ``s`` to a buffer, with its own loops and conditions around it.

    ``ranges`` are the values of what is around ``s``.
    """
    yield from _accesses(s, b, (), (), {}, {**ranges})


def _accesses(
    s: Stmt,
    b: Buffer,
    loops: tuple[tuple[Var, int], ...],
    guards: tuple[Expr, ...],
    names: Mapping[Var, Expr],
    ranges: dict[Var, tuple[int, int]],
) -> Iterator[ElementAccess]:
    def at(starts: tuple[Expr, ...], sizes: tuple[int, ...], write: bool) -> ElementAccess:
        plain = tuple(substitute_expr(e, names) for e in starts)
        return ElementAccess(b, plain, sizes, write, loops, guards)

    one = (1,) * len(b.shape)
    for e in exprs(s):
        for x, chosen in _loads(e, ()):
            if x.buffer is b:
                plain = tuple(substitute_expr(i, names) for i in x.index)
                where = (*guards, *(substitute_expr(g, names) for g in chosen))
                yield ElementAccess(b, plain, one, False, loops, where)
    match s:
        case Store(buffer=to, index=to_index) if to is b:
            yield at(to_index, one, True)
        case Intrinsic(writes=writes, reads=reads):
            for regions, write in ((reads, False), (writes, True)):
                for r in regions:
                    if r.buffer is b:
                        sizes = tuple(as_int(x.extent) or 1 for x in r.ranges)
                        yield at(tuple(x.start for x in r.ranges), sizes, write)
        case For(var=var, extent=extent):
            high = max(bounds(extent, ranges)[1], 1)
            ranges[var] = (0, high - 1)
            loops = (*loops, (var, high))
        case Let(var=var, value=value) if var.dtype == index:
            names = {**names, var: substitute_expr(value, names)}
        case If(cond=cond, orelse=None):
            guards = (*guards, *conjuncts(substitute_expr(cond, names)))
    for c in children(s):
        yield from _accesses(c, b, loops, guards, names, ranges)


def _loads(e: Expr, chosen: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """Yield the loads of an expression, with the conditions under which they are selected."""
    match e:
        case Load(index=at):
            yield e, chosen
            for x in at:
                yield from _loads(x, chosen)
        case Op(name="select", args=(cond, x, y)):
            yield from _loads(cond, chosen)
            yield from _loads(x, (*chosen, *conjuncts(cond)))
            yield from _loads(y, chosen)
        case Op(args=args):
            for x in args:
                yield from _loads(x, chosen)
        case Cast(value=value):
            yield from _loads(value, chosen)


def _without(s: Stmt, b: Buffer) -> Stmt:
    if isinstance(s, Alloc) and s.buffer is b:
        return s.body
    return map_stmt(s, lambda c: _without(c, b))
