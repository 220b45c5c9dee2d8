"""The code of one GPU thread as closures: a generator that stops where threads meet.

What a launch's body allocates is in slots of the environment: registers and local memory are made
for each thread, shared memory is one for the block. Asynchronous copies land where they are waited
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ...dtypes import to_numpy
from ..forms import Form
from ..intrinsics import BLOCK, NAMED, TABLE
from ..nodes import (
    OF_BLOCK,
    Alloc,
    AllReduce,
    Buffer,
    Expr,
    For,
    If,
    Intrinsic,
    Let,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ..printer import show
from ..tensor_memory import LANES
from ..visit import walk
from .actions import Action, Compiler, unwritten
from .clusters import load_remote
from .memory import Memory
from .operands import BoxThread, Write
from .phases import PAUSES, Pause, Phases, Products, group_action, own_action, pause_of
from .races import UndefinedError
from .scalar import Closure, Env, Value, boxed
from .shadow import Shadow
from .tensors import warp_tensor_action
from .warps import warp_action

Steps: TypeAlias = Iterator["Meeting | Pause"]
Run: TypeAlias = Callable[[Env], Steps]


@dataclass(eq=False, slots=True)
class Thread:
    """A thread of the block that runs: its number, its variables, its copies under way."""

    number: int
    env: Env
    steps: Steps
    shared: dict[Buffer, list[Value]]
    phases: Phases
    products: Products
    rank: int = 0
    peers: list[dict[Buffer, list[Value]]] = field(default_factory=list)
    """The shared memory of the blocks of its cluster, by rank; its own is ``shared``."""
    begun: list[Action] = field(default_factory=list)
    groups: list[list[Action]] = field(default_factory=list)
    stores: Products = field(default_factory=Products)


@dataclass(eq=False, slots=True)
class Meeting:
    """A statement at which ``size`` threads meet (``BLOCK``: all), and what they do there."""

    text: str
    size: int
    act: Callable[[list[Thread]], None]


class ThreadCompiler(Compiler):
    """Compiles the body of a launch, to be run by each thread with an environment of its own."""

    def __init__(self, memory: dict[Buffer, Memory], shadow: Shadow | None) -> None:
        super().__init__(memory, None, None)
        self.shadow = shadow
        self.made: dict[Buffer, int] = {}
        self.me = self.bind(Var("thread"))
        self.arrivals: dict[tuple[Buffer, int], int] = {}
        self.blocks = 1  # of the launch, in x

    def steps(self, s: Stmt) -> Run:
        """Return ``s`` as a generator of the meetings in it."""
        if not any(_form_of_meeting(x) for x in walk(s)):
            return _without(self.stmt(s))
        match s:
            case Seq(stmts=stmts):
                return _one_by_one([self.steps(x) for x in stmts])
            case For(body=body):
                slot, extent = self.bind_loop(s)
                return _repeated(slot, extent, self.steps(body))
            case If(cond=cond, then=then, orelse=orelse):
                c, t = self.expr(cond), self.steps(then)
                return _either(c, t, self.steps(_NOTHING if orelse is None else orelse))
            case Let(var=var, value=value, body=body):
                slot, v = self.bind_let(var, value)
                return _given(slot, v, self.steps(body))
            case Alloc(buffer=buffer, body=body):
                slot, make = self.make(buffer)
                return _given(slot, make, self.steps(body))
            case AllReduce():
                return _met(Meeting(_text(s), BLOCK, self.all_reduce(s)))
            case Intrinsic(name=name) if name in PAUSES:
                return _paused(pause_of(self, s, _text(s)))
            case Intrinsic() if (form := _form_of_meeting(s)) is not None:
                return _met(Meeting(_text(s), form.threads, self.together(s)))
        raise UndefinedError("not a statement of flat code", _text(s))

    # Memory

    def make(self, buffer: Buffer) -> tuple[int, Closure]:
        """Return the slot of an allocated buffer, and what gives its elements."""
        slot = self.made[buffer] = self.bind(Var(buffer.name))
        size, me = math.prod(buffer.shape), self.me
        size *= LANES if buffer.scope is Scope.TENSOR else 1
        if buffer.scope in OF_BLOCK:
            return slot, lambda env: env[me].shared.setdefault(buffer, [None] * size)
        return slot, lambda env: [None] * size

    def held(self, buffer: Buffer) -> Closure:
        """Return the elements of a buffer, as the running thread sees it."""
        if buffer in self.made:
            slot = self.made[buffer]
            return lambda env: env[slot]
        data = self.items(buffer)
        return lambda env: data

    def alloc(self, buffer: Buffer, body: Stmt) -> Action:
        """Return the action of a body in which each thread makes the buffer anew."""
        slot, make = self.make(buffer)
        action = self.stmt(body)

        def run(env: Env) -> None:
            env[slot] = make(env)
            action(env)

        return run

    def store(self, s: Store) -> Action:
        """Return the action of a store, which the shadow memory sees."""
        data, at, value = self.held(s.buffer), self.offset(s.buffer, s.index), self.expr(s.value)
        buffer, dtype, shadow, text = s.buffer, s.buffer.dtype, self.shadow, _text(s)

        def run(env: Env) -> None:
            i, v = at(env), boxed(value(env), dtype)
            if shadow is not None:
                shadow.write(buffer, i, text)
            data(env)[i] = v

        return run

    def stmt(self, s: Stmt) -> Action:
        """Return the action of a statement, whose text names it in errors."""
        self.where = _text(s)
        return super().stmt(s)

    def load(self, buffer: Buffer, ix: tuple[Expr, ...]) -> Closure:
        """Return the closure that reads an element, which the shadow memory sees."""
        data, at, where = self.held(buffer), self.offset(buffer, ix), self.where
        shadow = self.shadow

        def run(env: Env) -> Value:
            i = at(env)
            if shadow is not None:
                shadow.read(buffer, i, where)
            value = data(env)[i]
            return self.unwritten(buffer, i, where) if value is None else value

        return run

    def unwritten(self, buffer: Buffer, position: int, where: str) -> Value:
        """Return a placeholder for a value never written; where others may write, fail later."""
        error = unwritten(buffer, position, where)
        if self.shadow is None or not self.shadow.places(buffer, position):
            raise error
        self.shadow.unwritten = self.shadow.unwritten or error
        return to_numpy(buffer.dtype).type(0)

    def reader(self, r: Region, where: str) -> Closure:
        """Return the elements of a box, as an array."""
        data, box, shadow = self.held(r.buffer), self.box(r), self.shadow
        dtype = to_numpy(r.buffer.dtype)

        def run(env: Env) -> Value:
            places, now = box(env), data(env)
            if shadow is not None:
                for i in places:
                    shadow.read(r.buffer, i, where)
            values = [
                self.unwritten(r.buffer, i, where) if now[i] is None else now[i] for i in places
            ]
            return np.array(values, dtype)

        return run

    def writer(self, r: Region) -> Write:
        """Puts values into a box of registers."""
        data, box = self.held(r.buffer), self.box(r)

        def run(thread: BoxThread, values: Iterable[Value]) -> None:
            now = data(thread.env)
            for i, value in zip(box(thread.env), values, strict=True):
                now[i] = value

        return run

    # Asynchronous copies

    def intrinsic(self, s: Intrinsic) -> Action:
        """Return the action of an asynchronous copy, its commit or its wait, for one thread."""
        me = self.me
        match s.name:
            case "copy_async" | "copy_async_zfill":
                return self.copy_async(s)
            case "commit_async":

                def commit(env: Env) -> None:
                    env[me].groups.append(env[me].begun)
                    env[me].begun = []

                return commit
            case "wait_async":
                (left,) = s.args

                def wait(env: Env) -> None:
                    groups = env[me].groups
                    while len(groups) > left:
                        for land in groups.pop(0):
                            land(env)

                return wait
            case "grid_blocks":
                data, at = self.held(s.writes[0].buffer), self.box(s.writes[0])

                def count(env: Env) -> None:
                    data(env)[at(env)[0]] = np.int32(self.blocks)

                return count
            case "load_remote":
                return load_remote(self, s, _text(s))
        if (action := own_action(self, s, _text(s))) is not None:
            return action
        raise UndefinedError(f"intrinsic {s.name} has no meaning for one thread", _text(s))

    def copy_async(self, s: Intrinsic) -> Action:
        """Return a copy that lands at its wait: what it reads must then still be there."""
        to, of, text, me = s.writes[0], s.reads[0], _text(s), self.me
        size, count = s.args[0] // to.buffer.dtype.bytes, self.bytes_copied(s, text)
        starts = [self.offset(r.buffer, tuple(x.start for x in r.ranges)) for r in (to, of)]
        there, here = self.held(to.buffer), self.held(of.buffer)
        shadow, zero = self.shadow, to_numpy(to.buffer.dtype).type(0)

        def begin(env: Env) -> None:
            first, n = starts[0](env), count(env) // to.buffer.dtype.bytes
            source = starts[1](env) if n else 0
            target, values = there(env), here(env)
            if shadow is not None:
                for i in range(size):
                    shadow.begin_copy(to.buffer, first + i, text)
                for i in range(n):
                    shadow.read(of.buffer, source + i, text)

            def land(env: Env) -> None:
                for i in range(size):
                    value = values[source + i] if i < n else zero
                    if value is None:
                        raise unwritten(of.buffer, source + i, text)
                    if shadow is not None:
                        shadow.end_copy(to.buffer, first + i, text)
                    target[first + i] = value

            env[me].begun.append(land)

        return begin

    def bytes_copied(self, s: Intrinsic, where: str) -> Closure:
        """Return the closure that counts the bytes that a copy reads."""
        if len(s.reads) == 1:
            whole = s.args[0]
            return lambda env: whole
        count = self.reader(s.reads[1], where)
        return lambda env: int(count(env)[0])

    # What threads do together

    def together(self, s: Intrinsic) -> Callable[[list[Thread]], None]:
        """Return the action of an intrinsic on the threads that do it together."""
        shadow = self.shadow
        for known in (warp_action, warp_tensor_action):
            if (action := known(self, s, _text(s))) is not None:
                return action
        if s.name == "arrive":
            return self.arrive(s)
        if s.name.startswith("wgmma"):
            return group_action(self, s, _text(s))

        def meet(threads: list[Thread]) -> None:
            if shadow is not None and s.name == "barrier":
                shadow.barrier()
            elif shadow is not None and s.name == "cluster_barrier":
                shadow.cluster_barrier()
            elif shadow is not None:
                shadow.warp_barrier(threads[0].number)
            if shadow is not None:
                shadow.met([t.number for t in threads])
            if s.name != "warp_barrier":
                threads[0].phases.tensor.stale.update(t.number for t in threads)

        return meet

    def arrive(self, s: Intrinsic) -> Callable[[list[Thread]], None]:
        """Return the action that counts a block, and tells its threads whether it is the last."""
        counter, (number,), (blocks,) = s.reads[0].buffer, s.reads[0].ranges, s.args
        at, write = self.offset(counter, (number.start,)), self.writer(s.writes[0])

        def meet(threads: list[Thread]) -> None:
            place = counter, at(threads[0].env)
            count = self.arrivals.get(place, 0) + 1
            last = count == blocks
            self.arrivals[place] = 0 if last else count
            if self.shadow is not None:
                self.shadow.arrive(place, last)
            for t in threads:
                write(t, [int(last)])

        return meet

    def as_thread(self, thread: BoxThread, read: Closure, env: Env) -> Value:
        """Return what ``read`` gives, the access being that thread's."""
        if self.shadow is not None:
            self.shadow.thread = thread.number
        return read(env)

    def all_reduce(self, s: AllReduce) -> Callable[[list[Thread]], None]:
        """Neighbours are combined in pairs, then pairs of pairs, and so on."""
        slots = [self.bind(v) for v in (*s.left, *s.right)]
        combined, data = [self.expr(e) for e in s.combined], [self.held(b) for b in s.values]
        dtypes = [b.dtype for b in s.values]

        def pair(env: Env, values: tuple[Value, ...]) -> tuple[Value, ...]:
            for slot, value in zip(slots, values, strict=True):
                env[slot] = value
            return tuple(boxed(e(env), d) for e, d in zip(combined, dtypes, strict=True))

        def run(threads: list[Thread]) -> None:
            for n in range(0, len(threads), s.threads):
                group = threads[n : n + s.threads]
                parts = [tuple(d(t.env)[0] for d in data) for t in group]
                if any(value is None for part in parts for value in part):
                    raise UndefinedError("a value that was never written is reduced", _text(s))
                while len(parts) > 1:
                    pairs = zip(parts[::2], parts[1::2], strict=False)
                    rest = parts[-1:] if len(parts) % 2 else []
                    parts = [pair(group[0].env, (*a, *b)) for a, b in pairs] + rest
                for t in group:
                    for d, value in zip(data, parts[0], strict=True):
                        d(t.env)[0] = value

        return run


def _form_of_meeting(s: Stmt) -> Form | None:
    """Return the form of a statement at which threads meet."""
    match s:
        case AllReduce():
            return _REDUCE
        case Intrinsic(name=name):
            row = TABLE.get(name)
            form = None if row is None else row.form(s)
            if row is None or form is None or form is row.tile:
                raise UndefinedError(f"intrinsic {name} is not allowed in a launch", _text(s))
            return form if form.threads not in (1, NAMED) or name in PAUSES else None
        case _:
            return None


_REDUCE = Form((), BLOCK)
_NOTHING = Seq(())


def _text(s: Stmt) -> str:
    """Return the first line of a statement."""
    match s:
        case For() | Let() | Alloc():
            s = replace(s, body=_NOTHING)
        case If():
            s = replace(s, then=_NOTHING, orelse=None)
        case Seq():
            return ""
    return show(s).partition("\n")[0]


def _without(action: Action) -> Run:
    def run(env: Env) -> Steps:
        action(env)
        yield from ()

    return run


def _paused(pause: Callable[[Env], Pause]) -> Run:
    def run(env: Env) -> Steps:
        yield pause(env)

    return run


def _met(meeting: Meeting) -> Run:
    def run(env: Env) -> Steps:
        yield meeting

    return run


def _one_by_one(runs: list[Run]) -> Run:
    def run(env: Env) -> Steps:
        for r in runs:
            yield from r(env)

    return run


def _repeated(slot: int, extent: Closure, body: Run) -> Run:
    def run(env: Env) -> Steps:
        for i in range(extent(env)):
            env[slot] = i
            yield from body(env)

    return run


def _either(cond: Closure, then: Run, orelse: Run) -> Run:
    def run(env: Env) -> Steps:
        yield from (then if cond(env) else orelse)(env)

    return run


def _given(slot: int, value: Closure, body: Run) -> Run:
    def run(env: Env) -> Steps:
        env[slot] = value(env)
        yield from body(env)

    return run
