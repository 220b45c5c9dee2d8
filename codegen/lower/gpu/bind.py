"""Thread loops become launches: one chain of them outside, what every thread does inside.

``for b in thread("blockIdx.x", 4): for t in thread("threadIdx.x", 64): f; for u in
thread("threadIdx.x", 32): g``  ->  ``for bx ..: for tx ..: f; if tx < 32: g``. What is bound to
fewer indices than the launch has is done by every thread where it stays with the thread, and by
one (``tx == 0``) where it is seen by others. What follows a loop over blocks inside of another is
a join (``joins``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ....ir.errors import UnsupportedError
from ....ir.loop.build import as_int, both, compare, lt
from ....ir.loop.intrinsics import SPREAD
from ....ir.loop.names import called
from ....ir.loop.nodes import (
    THREADS,
    Alloc,
    AxisKind,
    Block,
    Buffer,
    Const,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Scope,
    Seq,
    Stmt,
    Var,
)
from ....ir.loop.notes import UNPLACED
from ....ir.loop.visit import (
    buffers_read,
    buffers_written,
    children,
    exprs,
    free_vars,
    map_stmt,
    replace_buffers,
    seq,
    substitute,
    walk,
)
from ....schedule.fragments import WITHIN, is_grid_of_lanes
from ..passes.launches import has_threads, thread_loops
from ..passes.rebuild import with_body
from .joins import (
    BLOCKS,
    clustered,
    counter_of,
    grid_indices,
    is_clustered,
    joined,
    joined_indices,
)

_SHORT = {t: f"{t[0]}{t[-1]}" for t in THREADS}


def bind_threads(func: Func) -> Func:
    """Return the function as a sequence of launches, inside the buffers that outlive one."""
    unplaced: list[str] = []
    result = with_body(func, _FunctionBinder(func.name, unplaced).top(func.body))
    return UNPLACED.put(result, tuple(unplaced)) if unplaced else result


def is_warps(s: Intrinsic) -> bool:
    """True if a whole warp does an operation on its tiles."""
    return any(r.buffer.scope in SPREAD for r in (*s.writes, *s.reads))


def _lanes(s: Stmt) -> Iterator[int]:
    """Yield the number of threads over which each tile in a statement is spread."""
    for x in walk(s):
        for r in (*x.writes, *x.reads) if isinstance(x, Intrinsic) else ():
            if r.buffer.scope in SPREAD:
                yield SPREAD[r.buffer.scope]


def is_kept(buffer: Buffer) -> bool:
    """True for a buffer in registers: of one thread, or of a warp or a group of warps."""
    return buffer.scope is Scope.REGISTER or buffer.scope in SPREAD


@dataclass(frozen=True)
class _FunctionBinder:
    """``name`` is the function's: errors say where they are. ``unplaced`` gets names of buffers."""

    name: str
    unplaced: list[str]

    def top(self, s: Stmt) -> Stmt:
        match s:
            case Alloc(buffer=b, body=body) if has_threads(body):
                if b.scope is not Scope.GLOBAL:
                    raise UnsupportedError(
                        f"buffer {b.name} ({b.scope.value}) is used by several launches",
                        f"what is {b.scope.value} lives within one",
                        f"function {self.name}",
                        "compute its producer inside the loop over blockIdx, or leave it global",
                    )
                return Alloc(b, self.top(body))
            case Seq(stmts=stmts) if has_threads(s):
                return seq(*self.in_order(stmts))
            case _:
                return self.launch(s) if has_threads(s) else _alone(s)

    def in_order(self, stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
        """Yield the launches of statements in order; neighbors without thread loops share one."""
        rest: list[Stmt] = []
        for s in stmts:
            if not has_threads(s):
                rest.append(s)
                continue
            if rest:
                yield _alone(seq(*rest))
            yield self.top(s)
            rest = []
        if rest:
            yield _alone(seq(*rest))

    def launch(self, s: Stmt) -> Stmt:
        loops = {x.thread: x for x in reversed([*thread_loops(s)])}
        extents = {t: self.extent(s, t) for t in THREADS if t in loops}
        if _reduces_over(s, "threadIdx.x"):  # neighbors combine their results in pairs
            extents["threadIdx.x"] = 1 << (extents["threadIdx.x"] - 1).bit_length()
        for lanes in _lanes(s):
            if is_grid_of_lanes(extents, lanes):
                continue
            if extents.setdefault("threadIdx.x", lanes) != lanes:
                raise UnsupportedError(
                    f"matrix tiles in a launch with {extents['threadIdx.x']} threads in x",
                    f"the {lanes} threads of threadIdx.x are the ones that hold them",
                    f"function {self.name}",
                )
        if any(True for _ in _lanes(s)):
            extents = {t: extents[t] for t in THREADS if t in extents}
        self.check(s)
        names = {t: Var(_SHORT[t]) for t in extents}
        notes = {t: x.notes for t, x in loops.items()}
        binder = _LaunchBinder(names, extents, self.unplaced)
        body = binder.stmt(s, frozenset(), frozenset())
        for t in reversed(extents):
            body = For(names[t], Const(extents[t]), body, Kind.THREAD, t, notes.get(t, {}))
        for b in reversed(binder.outside):
            body = Alloc(b, body)
        return body

    def extent(self, s: Stmt, thread: str) -> int:
        """Return the launch's extent of an index: that of the largest loop over it."""
        found = [(as_int(x.extent), x) for x in thread_loops(s) if x.thread == thread]
        for n, x in found:
            if n is None:
                raise UnsupportedError(
                    f"loop {called(x)} over {thread} has no constant extent",
                    "a launch's shape is fixed when it is compiled",
                    f"function {self.name}",
                )
        return max(n for n, _ in found if n is not None)

    def check(self, s: Stmt, inside: bool = False) -> None:
        """Refuse loops over blocks inside of other statements: blocks cannot wait for blocks.

        Statements may follow one, as a join.
        """
        grid = isinstance(s, For) and s.kind is Kind.THREAD and s.thread in BLOCKS
        if isinstance(s, For) and grid and inside:
            raise UnsupportedError(
                f"loop {called(s)} over {s.thread} is inside of other statements",
                "all blocks of a launch run at once",
                f"function {self.name}",
                "reorder the loops over blockIdx outermost",
            )
        threaded = isinstance(s, For) and s.kind is Kind.THREAD
        for n, c in enumerate(children(s)):
            first = isinstance(s, Alloc) or (isinstance(s, Seq) and n == 0)
            self.check(c, inside or not (threaded or first))


def _reduces_over(s: Stmt, thread: str) -> bool:
    """True if a reduction in ``s`` runs over a thread index."""
    over = {x.var for x in thread_loops(s) if x.thread == thread}
    blocks = (x for x in walk(s) if isinstance(x, Block))
    axes = (a for b in blocks for a in b.axes if a.kind is AxisKind.REDUCE)
    return any(not over.isdisjoint(free_vars(a.value)) for a in axes)


def _alone(s: Stmt) -> Stmt:
    """Return a launch of one thread. Its buffers, which may be large, lie outside."""
    made: list[Buffer] = []

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt)
        if isinstance(x, Alloc) and x.buffer.scope is not Scope.REGISTER:
            made.append(replace(x.buffer, scope=Scope.GLOBAL))
            return replace_buffers(x.body, {x.buffer: made[-1]})
        return x

    body: Stmt = For(Var("bx"), Const(1), _in_turn(stmt(s)), Kind.THREAD, "blockIdx.x")
    for b in made:
        body = Alloc(b, body)
    return body


def _in_turn(s: Stmt) -> Stmt:
    """Return a statement that one thread runs: its parallel loops are serial."""
    return _serial(map_stmt(s, _in_turn))


def _serial(s: Stmt) -> Stmt:
    if isinstance(s, For) and s.kind is Kind.PARALLEL:
        return replace(s, kind=Kind.SERIAL)
    return s


@dataclass(frozen=True)
class _LaunchBinder:
    """Rewrites the body of a launch. ``names`` and ``extents`` are those of its indices."""

    names: Mapping[str, Var]
    extents: Mapping[str, int]
    unplaced: list[str]
    made: dict[Buffer, frozenset[str]] = field(default_factory=dict)  # shared ones, and inside what
    named: set[Var] = field(default_factory=set)
    outside: list[Buffer] = field(default_factory=list)  # those of more than one block

    def stmt(self, s: Stmt, bound: frozenset[str], own: frozenset[Buffer]) -> Stmt:
        """Return ``s`` under the indices ``bound``; the buffers ``own`` are the thread's."""
        if isinstance(s, For) and s.kind is Kind.THREAD:
            var = self.names[s.thread]
            body = self.stmt(substitute(s.body, {s.var: var}), bound | {s.thread}, own)
            full = as_int(s.extent) == self.extents[s.thread]
            return body if full else If(lt(var, s.extent), body)
        if isinstance(s, Alloc) and s.buffer.scope is Scope.GLOBAL:
            if grid_indices(s.body) - bound:
                self.outside.append(s.buffer)
                return self.stmt(s.body, bound, own)
            if has_threads(s.body):
                self.unplaced.append(s.buffer.name)
                return self.stmt(_shared(s), bound, own)
            own |= {s.buffer}
        if isinstance(s, Let | Block):  # what they name may hang on the thread
            self.named.update(_named_in(s))
        if isinstance(s, Alloc) and s.buffer.scope is Scope.SHARED:
            self.made[s.buffer] = bound
        if isinstance(s, Seq) and (over := joined_indices(s) - bound):
            return self.join(s, over, bound, own)
        if not has_threads(s):
            again = self.repeated(s, bound, own)
            missing = [t for t in self.extents if t not in bound or t in again]
            whole = bool(missing) or not self.fills_shared(s)
            if self.by_all(s, own) or (whole and not missing):
                return _in_turn(s)
            if whole and self.by_one(s, own):
                return self.guarded(s, missing)
        return _serial(map_stmt(s, lambda c: self.stmt(c, bound, own)))

    def join(
        self, s: Seq, over: frozenset[str], bound: frozenset[str], own: frozenset[Buffer]
    ) -> Stmt:
        """Return the first statement by all blocks of ``over``, the others by the last one."""
        first = s.stmts[0]
        if isinstance(first, Alloc):
            return self.stmt(replace(first, body=seq(first.body, *s.stmts[1:])), bound, own)
        before = self.stmt(s.stmts[0], bound, own)
        after = self.stmt(seq(*s.stmts[1:]), bound | over, own)
        if len(over) == 1 and is_clustered(s.stmts[0], over):
            (t,) = over
            return clustered(before, after, self.names[t])
        counter = counter_of(self.names, self.extents, [t for t in self.extents if t in bound])
        blocks = prod(self.extents[t] for t in over)
        if blocks == 1:
            return seq(before, after)
        self.outside.append(counter.buffer)
        return joined(before, after, counter, blocks)

    def fills_shared(self, s: Stmt) -> bool:
        """True if parts of ``s`` fill shared memory, of which each has to be looked at."""
        parts = isinstance(s, Seq | For | If | Alloc)
        return parts and any(b in self.made for b in buffers_written(s))

    def repeated(self, s: Stmt, bound: frozenset[str], own: frozenset[Buffer]) -> frozenset[str]:
        """Return the indices whose threads would all fill a shared buffer with the same.

        The buffer is made inside of the index's loop, in which ``s`` does not ask for the thread.
        """
        outside = buffers_written(s) - _made_in(s)
        if not outside or any(b not in self.made for b in outside):
            return frozenset()
        asked = {v for x in walk(s) for e in exprs(x) for v in free_vars(e)}
        read = buffers_read(s) - _made_in(s)
        if self.named & (asked - _named_in(s)) or any(is_kept(b) or b in own for b in read):
            return frozenset()
        around = frozenset.intersection(*(self.made[b] for b in outside)) & bound
        return frozenset(t for t in around if self.names[t] not in asked and t not in BLOCKS)

    def by_all(self, s: Stmt, own: frozenset[Buffer]) -> bool:
        """True if ``s`` writes nothing that others see."""
        mine = own | _made_in(s)
        return all(is_kept(b) or b in mine for b in buffers_written(s))

    def by_one(self, s: Stmt, own: frozenset[Buffer]) -> bool:
        """True if ``s`` leaves nothing behind in a thread's own buffers."""
        outside = buffers_written(s) - _made_in(s)
        warps = not isinstance(s, Intrinsic) and any(isinstance(x, Intrinsic) for x in walk(s))
        return not warps and not any(is_kept(b) or b in own for b in outside)

    def guarded(self, s: Stmt, missing: Sequence[str]) -> Stmt:
        """Return ``s`` by the first thread of the indices that are missing; a warp works as one."""
        if isinstance(s, Intrinsic) and is_warps(s):
            grid = any(is_grid_of_lanes(self.extents, n) for n in _lanes(s))
            within = WITHIN if grid else WITHIN[1:]
            missing = [t for t in missing if t not in within]
        cond = both(*(compare("eq", self.names[t], 0) for t in missing if self.extents[t] > 1))
        return _in_turn(s) if cond is None else If(cond, _in_turn(s))


def _named_in(s: Stmt) -> frozenset[Var]:
    """Return the names that ``Let``s and blocks in a statement give to values."""
    lets = {x.var for x in walk(s) if isinstance(x, Let)}
    axes = {a.var for x in walk(s) if isinstance(x, Block) for a in x.axes}
    return frozenset(lets | axes)


def _made_in(s: Stmt) -> frozenset[Buffer]:
    return frozenset(x.buffer for x in walk(s) if isinstance(x, Alloc))


def _shared(s: Alloc) -> Alloc:
    """Return an ``Alloc`` with its buffer in the memory that the threads of a block share."""
    b = replace(s.buffer, scope=Scope.SHARED)
    return Alloc(b, replace_buffers(s.body, {s.buffer: b}))
