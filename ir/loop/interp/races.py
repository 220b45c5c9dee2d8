"""Finding races while the interpreter runs: who touched which element in which iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...errors import NestwrightError
from ..nodes import (
    OF_BLOCK,
    Block,
    Buffer,
    For,
    Func,
    Let,
    Stmt,
    Var,
)
from ..visit import children, exprs, free_vars, own_reads, own_writes, walk
from .scalar import Closure, Env, Value

Action: TypeAlias = Callable[[Env], None]
Place: TypeAlias = tuple[Buffer, int]
_SEVERAL = -1
_SUM = -2


@dataclass(eq=False)
class UndefinedError(NestwrightError):
    """The program did something that has no meaning. ``where`` names the block."""


@dataclass(slots=True)
class _Frame:
    """One run of a loop: for each element its last writer, and its reader if there is just one.

    While an inner loop over the same thread index runs (``shared`` of them), what is done is done
    in every iteration again. ``alone`` has the writers outside of such loops.
    """

    loop: For
    own: frozenset[Buffer]
    iteration: int = 0
    shared: int = 0
    writers: dict[Place, int] = field(default_factory=dict)
    readers: dict[Place, int] = field(default_factory=dict)
    alone: dict[Place, int] = field(default_factory=dict)

    def read(self, place: Place) -> str:
        """Notes that the iteration reads an element; what is wrong with it, if anything is."""
        now = self.iteration
        writer = self.writers.get(place, now)
        if writer != now:
            return f"reads {_written(writer)}"
        if self.alone.get(place, now) != now:
            return f"reads {_written(self.alone[place])}"
        if self.shared or self.readers.setdefault(place, now) != now:
            self.readers[place] = _SEVERAL
        return ""

    def write(self, place: Place) -> str:
        """Notes that the iteration writes an element; what is wrong with it, if anything is."""
        now = self.iteration
        if place[0] not in self.own:
            earlier = self.alone if self.shared else self.writers
            writer = earlier.get(place, now)
            if writer != now:
                return f"writes {_written(writer)}"
            if not self.shared and self.readers.get(place, now) != now:
                return "writes what another iteration reads"
            if not self.shared and self.loop.thread:
                self.alone[place] = now
        self.writers[place] = now
        return ""


def _written(writer: int) -> str:
    return "a sum of all iterations" if writer == _SUM else f"what iteration {writer} wrote"


class Watch:
    """Follows the accesses of one run.

    A buffer that only one loop's body uses is private to each iteration: lowering makes it there.
    Iterations may then write the same element, but none may read what another wrote. Shared memory
    is one for the threads of a block, wherever it is used.

    A thread-bound loop inside another of its index shares iterations among the same threads: what
    it touches, all the outer iterations touch, to no effect but the first time. The outer variable
    may not occur in it. A reduction whose loop is bound to threads, or runs in lanes, may add to
    one element from all of them; nothing else may touch the element while the loop runs.
    """

    def __init__(self, func: Func) -> None:
        self.frames: list[_Frame] = []
        self.own = private_buffers(func)

    def loop(self, s: For, slot: int, values: Closure, body: Action) -> Action:
        """Return an action that runs ``s`` and watches its iterations."""
        own = self.own.get(id(s), frozenset())
        if s.over_threads:
            own = frozenset(b for b in own if b.scope not in OF_BLOCK)
        if s.thread:
            _check_sharing(s)

        def run(env: Env) -> None:
            frame = _Frame(s, own)
            outer = [f for f in self.frames if s.thread and f.loop.thread == s.thread]
            for f in outer:
                f.shared += 1
            self.frames.append(frame)
            for i in values(env):
                env[slot] = frame.iteration = i
                body(env)
            self.frames.pop()
            for f in outer:
                f.shared -= 1

        return run

    def read(self, buffer: Buffer, position: int, where: str, sums: frozenset[Var]) -> None:
        """An element is read; of loops over ``sums`` as part of a reduction."""
        place = buffer, position
        for f in self.frames:
            if f.loop.var not in sums and (why := f.read(place)):
                raise _race(f, place, where, why)

    def write(self, buffer: Buffer, position: int, where: str, sums: frozenset[Var]) -> None:
        """An element is written; of loops over ``sums`` as part of a reduction."""
        place = buffer, position
        for f in self.frames:
            if f.loop.var in sums:
                f.writers[place] = _SUM
            elif why := f.write(place):
                raise _race(f, place, where, why)

    def reading(self, buffer: Buffer, at: Closure, where: str, sums: frozenset[Var]) -> Closure:
        """Return ``at``, noting that the element there is read."""

        def run(env: Env) -> Value:
            position = at(env)
            self.read(buffer, position, where, sums)
            return position

        return run

    def writing(self, buffer: Buffer, at: Closure, where: str, sums: frozenset[Var]) -> Closure:
        """Return ``at``, noting that the element there is written."""

        def run(env: Env) -> Value:
            position = at(env)
            self.write(buffer, position, where, sums)
            return position

        return run

    def forget(self, buffer: Buffer) -> None:
        """``buffer`` is made anew."""
        for f in self.frames:
            for seen in (f.writers, f.readers, f.alone):
                for place in [p for p in seen if p[0] is buffer]:
                    del seen[place]


def _race(f: _Frame, place: Place, where: str, why: str) -> UndefinedError:
    name, kind = f.loop.var.name, f.loop.kind.value
    name = f"{name} ({f.loop.thread})" if f.loop.thread else name
    what = f"iterations of the {kind} loop {name} race on element {place[1]} of {place[0].name}"
    return UndefinedError(what, f"iteration {f.iteration} {why}", where)


def _check_sharing(s: For) -> None:
    """No loop that shares the iterations of ``s`` may depend on its variable."""
    tainted = {s.var}

    def visit(x: Stmt, sharer: For | None) -> None:
        if isinstance(x, For) and x.thread == s.thread:
            sharer = x
        named = [(x.var, x.value)] if isinstance(x, Let) else []
        named += [(a.var, a.value) for a in x.axes] if isinstance(x, Block) else []
        tainted.update(v for v, value in named if not tainted.isdisjoint(free_vars(value)))
        if sharer is not None and any(not tainted.isdisjoint(free_vars(e)) for e in exprs(x)):
            what = f"the loops {s.var.name} and {sharer.var.name} share {s.thread}"
            why = f"what {sharer.var.name} does depends on {s.var.name}"
            raise UndefinedError(what, why, f"loop {sharer.var.name}")
        for child in children(x):
            visit(child, sharer)

    visit(s.body, None)


def private_buffers(func: Func) -> dict[int, frozenset[Buffer]]:
    """For each loop, by ``id``, the intermediate buffers that only its body uses.

    Lowering makes such a buffer inside the loop, one for each iteration.
    """
    total = _uses(func.body)
    result = {}
    for loop in walk(func.body):
        if isinstance(loop, For):
            here = _uses(loop.body)
            result[id(loop)] = frozenset(b for b in func.allocs if here[b] and here[b] == total[b])
    return result


def _uses(s: Stmt) -> Counter[Buffer]:
    return Counter(b for x in walk(s) for b in (*own_writes(x), *own_reads(x)))
