"""An oracle for threads: runs a scheduled function as a GPU would, threads in random order.

Every block of threads has shared memory of its own and every thread registers of its own, empty at
first. Blocks of threads run one by one, in any order. The threads of a block go through the
statements together: all of them finish one before any starts the next, as if there were a barrier
everywhere; within one, they come in any order. What is read must have been written, and no two
threads write one element of what they share in the same statement.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.loop.nodes import (
    THREADS,
    AxisKind,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Let,
    Load,
    Op,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from nestwright.schedule.combiner import Combiner, combiner_of
from nestwright.schedule.cursor import Path, extent_of, loops_of, nest
from nestwright.schedule.launches import (
    ThreadLaunch,
    is_scratch,
    launch_of,
    repeated_by_all,
    top_of,
)
from nestwright.schedule.legality import bound_vars
from nestwright.schedule.owners import thread_loops
from nestwright.schedule.threads import is_grid, is_shared

Env = dict[Var, Any]
Thread = tuple[int, ...]  # its place in each index of THREADS
Place = tuple[int, ...]

_OPS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "maximum": max,
    "minimum": min,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


class RaceError(AssertionError):
    """Threads met, or one read what is not there for it."""


@dataclass
class _Shared:
    """A reduction that threads share: per element and thread, its partial results."""

    how: Combiner
    partial: dict[tuple[Place, Thread], list[Any]] = field(default_factory=dict)
    starts: dict[Place, list[Any]] = field(default_factory=dict)


class Machine:
    """Runs one function."""

    def __init__(self, func: Func, args: Sequence[Array], seed: int) -> None:
        self.func = func
        self.rng = random.Random(seed)
        self.memory: dict[Any, Any] = {}
        self.paths = nest(func).blocks
        self.sums: dict[int, list[_Shared]] = {}
        self.of_block: dict[str, _Shared] = {}
        for b, a in zip(func.params, args, strict=False):
            for at in product(*map(range, b.shape)):
                self.memory[b, (), at] = a[at].item()
        lives = self._launches_of()
        self.lasting = {b for b in func.allocs if len(lives.get(b, ())) > 1}

    def _launches_of(self) -> dict[Buffer, set[int]]:
        found: dict[Buffer, set[int]] = {}
        for p in self.paths.values():
            block = p[-1]
            assert isinstance(block, Block)
            for r in (*block.reads, *block.writes):
                found.setdefault(r.buffer, set()).add(id(top_of(p)[-1]))
        return found

    def run(self) -> list[Array]:
        """The outputs."""
        body = self.func.body
        for s in body.stmts if isinstance(body, Seq) else (body,):
            top = (body, s) if isinstance(body, Seq) else (s,)
            self._launch(launch_of(self.func, top), s)
        return [self._output(b) for b in self.func.params[-self.func.outputs :]]

    def _output(self, b: Buffer) -> Array:
        out = np.full(b.shape, np.nan)
        for at in product(*map(range, b.shape)):
            out[at] = self.memory.get((b, (), at), math.nan)
        return out

    def _launch(self, launch: ThreadLaunch | None, s: Stmt) -> None:
        sizes = {} if launch is None else launch.sizes
        self.launch = launch
        self.scratch = set()
        if launch is not None:
            self.scratch = {b for b in self.func.allocs if is_scratch(launch, b)}
        ranges = [range(sizes.get(t, 1)) for t in THREADS]
        grid = list(product(*ranges[:3]))
        self.rng.shuffle(grid)
        for point in grid:
            block = [(*point, *t) for t in product(*ranges[3:])]
            self._exec(s, block, {}, {})

    def _exec(self, s: Stmt, threads: list[Thread], env: Env, bound: dict[Var, int]) -> None:
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    self._exec(x, threads, env, bound)
            case For():
                self._loop(s, threads, env, bound)
            case Block():
                self._block(s, threads, env, bound)
            case _:
                raise NotImplementedError(type(s).__name__)

    def _loop(self, s: For, threads: list[Thread], env: Env, bound: dict[Var, int]) -> None:
        ends = self._sums_at(s)
        n = extent_of(s)
        assert n is not None
        if s.kind is Kind.THREAD:
            at = THREADS.index(s.thread)
            some = [t for t in threads if t[at] < n]
            self._exec(s.body, some, env, {**bound, s.var: at})
        else:
            for i in range(n):
                self._exec(s.body, threads, {**env, s.var: i}, bound)
        for shared in ends:
            self._combine(shared)

    def _sums_at(self, s: For) -> list[_Shared]:
        """The shared reductions that begin and end with a loop."""
        found = []
        for name, path in self.paths.items():
            block, loops = path[-1], loops_of(path)
            assert isinstance(block, Block)
            if not any(is_shared(block, x) for x in loops):
                continue
            over = bound_vars(block, AxisKind.REDUCE)
            first = next(x for x in loops if x.var in over and (extent_of(x) != 1 or x is s))
            if first is s:
                how = combiner_of(block)
                assert how is not None
                self.of_block[name] = _Shared(how)
                found.append(self.of_block[name])
        return found

    def _combine(self, shared: _Shared) -> None:
        x, how = THREADS.index("threadIdx.x"), shared.how
        groups: dict[tuple[Place, Thread], list[tuple[int, list[Any]]]] = {}
        for (place, t), values in shared.partial.items():
            rest = (*t[:x], 0)
            groups.setdefault((place, rest), []).append((t[x], values))
        assert self.launch is not None
        for (place, rest), parts in groups.items():
            total = shared.starts[place]
            for _, values in sorted(parts, key=lambda p: p[0]):
                total = _joined(how, total, values)
            for b, v in zip(how.buffers, total, strict=True):
                for n in range(self.launch.sizes["threadIdx.x"]):
                    t = (*rest[:x], n)
                    self.memory[b, self._owner(b, t), place] = v

    def _block(self, s: Block, threads: list[Thread], env: Env, bound: dict[Var, int]) -> None:
        path = self.paths[s.name]
        order = [t for t in threads if self._works(s, path, t)]
        self.rng.shuffle(order)
        written: dict[Any, Thread] = {}
        for t in order:
            here = {**env, **{v: t[at] for v, at in bound.items()}}
            here |= {a.var: self._value(a.value, here, t) for a in s.axes}
            if s.predicate is not None and not self._value(s.predicate, here, t):
                continue
            if s.name in self.of_block:
                self._term(self.of_block[s.name], s, here, t)
                continue
            over = [a for a in s.axes if a.kind is AxisKind.REDUCE]
            parts = [s.body]
            if s.init is not None and all(here[a.var] == 0 for a in over):
                parts.insert(0, s.init)
            for part in parts:
                for key, value in self._stores(part, here, t):
                    if written.setdefault(key, t) != t:
                        raise RaceError(f"two threads write {key[0]}{key[2]} in `{s.name}`")
                    self.memory[key] = value

    def _works(self, s: Block, path: Path, t: Thread) -> bool:
        """Whether a thread does a block: one does for all what is for all of them to see."""
        if all(self._is_own(r.buffer) for r in s.writes) or self.launch is None:
            return True
        inner = thread_loops(path)
        for at, name in enumerate(THREADS):
            loop = inner.get(name)
            once = loop is None or (
                not is_grid(name) and not is_shared(s, loop) and repeated_by_all(path, loop)
            )
            if once and t[at]:
                return False
        return True

    def _term(self, shared: _Shared, s: Block, env: Env, t: Thread) -> None:
        how = shared.how
        place = tuple(self._value(e, env, t) for e in how.index)
        shared.starts.setdefault(place, [self._value(e, env, t) for e in how.starts])
        old = shared.partial.get((place, t))
        if old is None:
            old = [self._value(e, env, t) for e in how.neutral]
        new = [self._value(e, env, t) for e in how.terms]
        shared.partial[place, t] = _joined(how, old, new)

    def _stores(self, s: Stmt, env: Env, t: Thread) -> Iterator[tuple[Any, Any]]:
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    yield from self._stores(x, env, t)
            case Let(var=var, value=value, body=body):
                yield from self._stores(body, {**env, var: self._value(value, env, t)}, t)
            case Store(buffer=b, index=index, value=value):
                at = tuple(self._value(e, env, t) for e in index)
                yield (b, self._owner(b, t), at), self._value(value, env, t)
            case _:
                raise NotImplementedError(type(s).__name__)

    def _is_own(self, b: Buffer) -> bool:
        return b not in self.lasting and (b.scope is Scope.REGISTER or b in self.scratch)

    def _owner(self, b: Buffer, t: Thread) -> Thread:
        """Whose memory a buffer is in: everybody's, a block's of threads, or a thread's."""
        if self.launch is None or b in self.lasting:
            return ()
        return t if self._is_own(b) else t[:3] if b.scope is Scope.SHARED else ()

    def _value(self, e: Expr, env: Env, t: Thread) -> Any:
        match e:
            case Var():
                return env[e]
            case Const(value=value):
                return value
            case Op(name="select", args=(c, a, b)):
                return self._value(a if self._value(c, env, t) else b, env, t)
            case Op(name=name, args=args):
                return _OPS[name](*(self._value(a, env, t) for a in args))
            case Cast(value=value, dtype=dtype):
                x = self._value(value, env, t)
                return float(x) if dtype.is_float else int(x)
            case Load(buffer=b, index=index):
                key = b, self._owner(b, t), tuple(self._value(i, env, t) for i in index)
                if key not in self.memory:
                    raise RaceError(f"thread {t} reads {b}{key[2]}, which nobody wrote for it")
                return self.memory[key]


def _joined(how: Combiner, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    env = dict(zip((*how.left, *how.right), (*a, *b), strict=True))
    nowhere = Machine.__new__(Machine)
    return [nowhere._value(e, env, ()) for e in how.combined]


@pytest.fixture
def run_threads() -> Callable[[Func, Sequence[Array], int], list[Array]]:
    """``run_threads(func, args, seed)``: the outputs, as threads compute them."""
    return lambda func, args, seed: Machine(func, args, seed).run()
