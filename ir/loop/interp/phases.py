"""Waits for some threads of a block that is interpreted, bulk copies, products of four warps.

An mbarrier's phase ends when all arrivals are there and all bytes have landed that were expected.
What is under way lands when no thread can go on, in a random order. A product is made when it is
begun; its sums are in no register until it is waited for, and its operands are being read until
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import DType, to_numpy
from ..intrinsics import TABLE
from ..nodes import Buffer, Intrinsic, Region, Scope
from ..warpgroups import WARPGROUP, Descriptor, GroupMatrix, descriptors_of
from .operands import BoxCompiler, BoxThread
from .races import UndefinedError
from .scalar import Closure, Env, Value
from .shadow import Clock, Shadow
from .tensors import TensorMemory, operand_places, own_tensor_action, widened

Action: TypeAlias = Callable[[Env], None]
PAUSES = ("named_barrier", "mbarrier_wait")
_SILENT = (*("give_registers", "take_registers", "launch_wait", "launch_next"),)
Key: TypeAlias = tuple[Buffer | None, int]  # a place in shared memory, or a number alone


@dataclass(eq=False, slots=True)
class PhaseBarrier:
    """A barrier: arrivals of a phase and those that are missing, bytes that have yet to land.

    ``known`` is what threads knew that arrived, ``then`` the same as the last phase ended, and
    ``boxes`` have landed in this phase. ``maker`` is the thread that made it, until it has fenced.
    """

    name: str
    number: int
    count: int
    pending: int
    bytes: int = 0
    phase: int = 0
    flying: int = 0
    known: Clock = field(default_factory=Clock)
    then: Clock = field(default_factory=Clock)
    boxes: list[tuple[Buffer, list[int], str]] = field(default_factory=list)
    maker: int | None = None


@dataclass(eq=False, slots=True)
class Pause:
    """A thread's wait at a barrier, until a phase of it has ended."""

    text: str
    bar: PhaseBarrier
    over: Callable[[], bool]


@dataclass(eq=False, slots=True)
class Phases:
    """The barriers of a block, and what is to land."""

    shadow: Shadow | None
    tensor: TensorMemory
    bars: dict[Key, PhaseBarrier] = field(default_factory=dict)
    flights: list[Callable[[], None]] = field(default_factory=list)

    def make(self, thread: int, key: tuple[Buffer, int], count: int, where: str) -> None:
        """Initialize an mbarrier."""
        name = f"{key[0].name}[{key[1]}]"
        if key in self.bars:
            raise UndefinedError(f"{name} is initialized again", "nothing invalidated it", where)
        self.bars[key] = PhaseBarrier(name, len(self.bars), count, count, maker=thread)

    def fence(self, thread: int) -> None:
        """The asynchronous proxy sees the mbarriers that a thread has made."""
        for bar in self.bars.values():
            bar.maker = None if bar.maker == thread else bar.maker

    def find(self, key: tuple[Buffer, int], where: str) -> PhaseBarrier:
        """Return an mbarrier."""
        if key not in self.bars:
            name = f"{key[0].name}[{key[1]}]"
            raise UndefinedError(f"{name} is used before it is initialized", where)
        return self.bars[key]

    def seen(self, key: tuple[Buffer, int], where: str) -> PhaseBarrier:
        """Return an mbarrier that the asynchronous proxy is to use."""
        bar = self.find(key, where)
        if bar.maker is not None:
            what = f"{bar.name} may not be seen by the asynchronous proxy"
            why = f"thread {bar.maker} made it, and fence_mbarrier_init is missing after that"
            raise UndefinedError(what, why, where)
        return bar

    def phase_of(self, number: int) -> int:
        """Return how many phases of a named barrier have ended."""
        bar = self.bars.get((None, number))
        return 0 if bar is None else bar.phase

    def named(self, thread: int, number: int, count: int, where: str) -> PhaseBarrier:
        """Arrive at a named barrier, as one of so many threads."""
        name = f"named barrier {number}"
        made = PhaseBarrier(name, len(self.bars), count, count)
        bar = self.bars.setdefault((None, number), made)
        if bar.pending == bar.count:
            bar.count = bar.pending = count
        if bar.count != count:
            why = f"thread {thread} comes with {count}, others with {bar.count}"
            raise UndefinedError(f"threads disagree about {name}", why, where)
        self.arrive(thread, bar, 0, where)
        return bar

    def arrive(self, thread: int, bar: PhaseBarrier, size: int, where: str) -> None:
        """Arrive, and expect so many bytes more."""
        if not bar.pending:
            raise UndefinedError(f"phase {bar.phase} of {bar.name} gets too many arrivals", where)
        bar.bytes += size
        bar.pending -= 1
        if self.shadow is not None:
            self.shadow.release(thread, bar.known)
        self.complete(bar, where)

    def land(self, bar: PhaseBarrier, box: tuple[Buffer, list[int], str]) -> None:
        """A box has landed that counts at a barrier."""
        buffer, places, where = box
        bar.flying -= 1
        bar.bytes -= len(places) * buffer.dtype.bytes
        bar.boxes.append(box)
        self.complete(bar, where)

    def complete(self, bar: PhaseBarrier, where: str) -> None:
        """End the phase if nothing is missing."""
        if bar.pending or bar.bytes:
            return
        if bar.flying:
            why = "a copy that counts there is under way"
            raise UndefinedError(f"phase {bar.phase} of {bar.name} ends too early", why, where)
        if self.shadow is not None:
            self.shadow.landed(bar.known, bar.number, bar.boxes)
        bar.phase += 1
        bar.pending, bar.boxes, bar.then = bar.count, [], Clock(bar.known)

    def told(self, thread: int, bar: PhaseBarrier) -> None:
        """A thread has waited: what was known as the phase ended, it knows."""
        self.tensor.stale.add(thread)
        if self.shadow is not None:
            self.shadow.acquire(thread, bar.then)


@dataclass(eq=False, slots=True)
class Products:
    """The products that four warps have begun, in groups: what they read, and sums to come.

    Sums are kept by their registers; they are nowhere else until they are waited for.
    """

    group: int = 0
    boxes: list[tuple[int, Buffer, list[int]]] = field(default_factory=list)
    sums: dict[tuple[int, int], tuple[int, list[Value], Value]] = field(default_factory=dict)
    kept: list[tuple[int, list[Value], int, list[Value]]] = field(default_factory=list)

    def begin(self, boxes: Sequence[tuple[Buffer, list[int]]]) -> None:
        """A product reads boxes from now on."""
        self.boxes += [(self.group, *box) for box in boxes]

    def keep(self, registers: list[Value], first: int, values: list[Value]) -> None:
        """A product reads registers from now on, which are to stay as they are."""
        self.kept.append((self.group, registers, first, values))

    def add(self, registers: list[Value], first: int, values: Sequence[Value], where: str) -> None:
        """Add to the sums of a thread."""
        for n, value in enumerate(values, first):
            _, _, old = self.sums.get((id(registers), n), (0, None, registers[n]))
            if old is None:
                raise UndefinedError("a sum that was never written is added to", where)
            self.sums[id(registers), n] = self.group, registers, type(old)(old + value)
            registers[n] = None

    def wait(self, left: int, shadow: Shadow | None, where: str) -> None:
        """All groups but some are done."""
        over = self.group - left
        for group, registers, first, values in self.kept:
            now = registers[first : first + len(values)]
            if group < over and any(x is not y for x, y in zip(values, now, strict=True)):
                why = "wgmma_wait comes after it"
                raise UndefinedError("registers that a product reads are written", why, where)
        self.kept = [x for x in self.kept if x[0] >= over]
        for group, buffer, places in self.boxes:
            for i in places if shadow is not None and group < over else ():
                shadow.end_async(buffer, i)  # type: ignore[union-attr]
        self.boxes = [x for x in self.boxes if x[0] >= over]
        for (_, n), (group, registers, value) in self.sums.items():
            if group < over:
                registers[n] = value
        self.sums = {key: x for key, x in self.sums.items() if x[0] >= over}


class GroupThread(BoxThread, Protocol):
    """A thread of a warp group, with the products that it has begun."""

    products: Products


GroupAction: TypeAlias = Callable[[Sequence[GroupThread]], None]


def deadlock(threads: dict[int, Pause]) -> UndefinedError:
    """Return the error that tells who waits where, given the waits by threads' numbers."""
    told = []
    for bar in dict.fromkeys(pause.bar for pause in threads.values()):
        who = [n for n, pause in threads.items() if pause.bar is bar]
        others = f" and {len(who) - 1} more wait" if who[1:] else " waits"
        there = f"{bar.count - bar.pending} of {bar.count} arrivals are there"
        there += f", {bar.bytes} bytes are missing" if bar.bytes else ""
        told.append(f"thread {who[0]}{others} for phase {bar.phase} of {bar.name}: {there}")
    return UndefinedError("deadlock: no thread can go on", "; ".join(told))


def pause_of(c: BoxCompiler, s: Intrinsic, text: str) -> Callable[[Env], Pause]:
    """Return what makes a thread's wait at a barrier with phases."""
    me = c.me
    if s.name == "named_barrier":
        number, count = s.args

        def meet(env: Env) -> Pause:
            t = env[me]
            before = t.phases.phase_of(number)
            bar = t.phases.named(t.number, number, count, text)
            return Pause(text, bar, lambda: bar.phase > before)

        return meet
    key, parity = _key(c, s.reads[0]), c.reader(s.reads[1], text)

    def wait(env: Env) -> Pause:
        bar, odd = env[me].phases.find(key(env), text), int(parity(env)[0])
        return Pause(text, bar, lambda: bar.phase % 2 != odd)

    return wait


def own_action(c: BoxCompiler, s: Intrinsic, text: str) -> Action | None:
    """Return the action of an intrinsic that a thread does alone and does not wait for."""
    me, shadow = c.me, c.shadow
    if s.name in _SILENT:
        return lambda env: None
    if TABLE[s.name].tensor:
        return own_tensor_action(c, s, text)
    if s.name in ("tma_commit", "tma_wait", "tma_wait_read"):
        return _end_stores(c, s)
    if s.name in ("fence_proxy_async", "fence_mbarrier_init"):
        every = s.name == "fence_proxy_async"

        def fence(env: Env) -> None:
            env[me].phases.fence(env[me].number)
            if shadow is not None and every:
                shadow.fence(env[me].number)

        return fence
    if s.name == "named_barrier_arrive":
        number, count = s.args

        def come(env: Env) -> None:
            env[me].phases.named(env[me].number, number, count, text)

        return come
    if s.name == "tma_load":
        return _load_box(c, s, text)
    if s.name == "tma_store":
        return _store_box(c, s, text)
    if s.name.startswith("mbarrier"):
        return _on_barrier(c, s, text)
    return None


def _key(c: BoxCompiler, r: Region) -> Closure:
    at, buffer = c.offset(r.buffer, tuple(x.start for x in r.ranges)), r.buffer
    return lambda env: (buffer, at(env))


def _on_barrier(c: BoxCompiler, s: Intrinsic, text: str) -> Action | None:
    me, key = c.me, _key(c, s.writes[0])
    size = s.args[0] if s.name == "mbarrier_expect" else 0

    def make(env: Env) -> None:
        env[me].phases.make(env[me].number, key(env), s.args[0], text)

    def arrive(env: Env) -> None:
        t = env[me]
        t.phases.arrive(t.number, t.phases.find(key(env), text), size, text)

    def arrive_later(env: Env) -> None:
        t, bar = env[me], env[me].phases.find(key(env), text)
        begun = [land for group in (*t.groups, t.begun) for land in group]
        t.groups, t.begun = [], []

        def land() -> None:
            if c.shadow is not None:
                c.shadow.thread = t.number
            for one in begun:
                one(t.env)
            t.phases.arrive(t.number, bar, 0, text)

        t.phases.flights.append(land)

    known = {"mbarrier_init": make, "mbarrier_arrive_copies": arrive_later}
    return known.get(s.name, arrive)


def _box_places(
    args: Sequence[int], size: int, start: int, place: Array
) -> Iterator[tuple[int, int]]:
    """Yield where each element of a box is in shared memory, and in the matrix, or -1 outside."""
    columns, rows, pitch, wide, high, swizzle = args
    for n in range(wide * high):
        plain = n * size
        turn = plain // 128 % (swizzle // 16) * 16 if swizzle else 0
        i, j = int(place[1]) + n // wide, int(place[0]) + n % wide
        inside = 0 <= i < rows and 0 <= j < columns
        yield start + (plain ^ turn) // size, i * pitch + j if inside else -1


def _load_box(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    to, of, me, shadow = s.writes[0], s.reads[0], c.me, c.shadow
    start, key, place = _key(c, to), _key(c, s.reads[2]), c.reader(s.reads[1], text)
    there, here, zero = c.held(to.buffer), c.held(of.buffer), to_numpy(to.buffer.dtype).type(0)

    def begin(env: Env) -> None:
        bar = env[me].phases.seen(key(env), text)
        places = [*_box_places(s.args, to.buffer.dtype.bytes, start(env)[1], place(env))]
        target, values, phases = there(env), here(env), env[me].phases
        for i, _ in places if shadow is not None else ():
            shadow.begin_copy(to.buffer, i, text)  # type: ignore[union-attr]
        bar.flying += 1

        def land() -> None:
            for i, j in places:
                target[i] = zero if j < 0 else values[j]
            phases.land(bar, (to.buffer, [i for i, _ in places], text))

        phases.flights.append(land)

    return begin


def _store_box(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    to, of, shadow = s.writes[0], s.reads[0], c.shadow
    start, place = _key(c, of), c.reader(s.reads[1], text)
    there, here = c.held(to.buffer), c.held(of.buffer)

    def store(env: Env) -> None:
        target, values = there(env), here(env)
        places = [*_box_places(s.args, of.buffer.dtype.bytes, start(env)[1], place(env))]
        for i, j in ((i, j) for i, j in places if j >= 0):
            if shadow is not None:
                shadow.read_async(of.buffer, i, text)
                shadow.write(to.buffer, j, text)
            target[j] = values[i]
        env[c.me].stores.begin([(of.buffer, [i for i, _ in places])])

    return store


def _end_stores(c: BoxCompiler, s: Intrinsic) -> Action:
    """Boxes that a thread stores are read until it waits for them."""

    def end(env: Env) -> None:
        stores = env[c.me].stores
        if s.name == "tma_commit":
            stores.group += 1
        else:
            stores.wait(s.args[0], c.shadow, s.name)

    return end


def group_action(c: BoxCompiler, s: Intrinsic, text: str) -> GroupAction:
    """Return the action of 128 threads on the products that they have begun."""
    act = _multiply(c, s, text) if TABLE[s.name].group is not None else _grouped(c, s, text)

    def run(threads: Sequence[GroupThread]) -> None:
        if len(threads) != WARPGROUP:
            why = f"the last one has {len(threads)} threads"
            raise UndefinedError("a product of a warp group needs four warps", why, text)
        act(threads)

    return run


def _grouped(c: BoxCompiler, s: Intrinsic, text: str) -> GroupAction:
    def run(threads: Sequence[GroupThread]) -> None:
        products = threads[0].products
        if s.name == "wgmma_commit":
            products.group += 1
        elif s.name == "wgmma_wait":
            products.wait(s.args[0], c.shadow, text)

    return run


def _multiply(c: BoxCompiler, s: Intrinsic, text: str) -> GroupAction:
    x = TABLE[s.name].group
    assert x is not None
    at, held = _key(c, s.writes[0]), c.held(s.writes[0].buffer)
    shared = [r for r in s.reads[1:] if r.buffer.scope is Scope.SHARED]
    layouts = descriptors_of(s.args)
    sides = [*zip((x.m, x.n), x.types, strict=True)][2 - len(shared) :]
    found = [_shared_operand(c, r, d, x, text) for r, d in zip(shared, layouts, strict=True)]
    left = None if shared[1:] else (_key(c, s.reads[1]), c.held(s.reads[1].buffer))

    def run(threads: Sequence[GroupThread]) -> None:
        first = threads[0]
        if c.shadow is not None:
            c.shadow.thread = first.number
        parts = [] if left is None else [_held_operand(threads, *left, x, text)]
        for operand, (rows, dtype) in zip(found, sides, strict=True):
            parts.append(widened(operand(threads, rows, dtype), x))
        change = parts[0] @ parts[1].T
        for n, t in enumerate(threads):
            sums, begin = held(t.env), at(t.env)[1]
            e = np.arange(x.words)
            own = change[x.c(n, e)]
            first.products.add(sums, begin, own, text)

    return run


def _shared_operand(
    c: BoxCompiler, r: Region, layout: Descriptor, x: GroupMatrix, text: str
) -> Callable[[Sequence[GroupThread], int, DType], Array]:
    """Return what reads an operand in shared memory, and has it read until the wait."""
    start, values = _key(c, r), c.held(r.buffer)

    def read(threads: Sequence[GroupThread], rows: int, dtype: DType) -> Array:
        first = threads[0]
        buffer, begin = start(first.env)
        if any(start(t.env) != (buffer, begin) for t in threads):
            raise UndefinedError("threads disagree about the operands of a product", text)
        places = operand_places(c.shadow, buffer, begin, rows, x, layout)
        box = buffer, places.ravel().tolist()
        for i in box[1] if c.shadow is not None else ():
            c.shadow.read_async(buffer, i, text)  # type: ignore[union-attr]
        now = values(first.env)
        first.products.begin([box])
        return np.array([now[i] for i in places.flat], to_numpy(dtype)).reshape(places.shape)

    return read


def _held_operand(
    threads: Sequence[GroupThread], at: Closure, held: Closure, x: GroupMatrix, text: str
) -> Array:
    """Return a left operand that is in the threads' registers, and is read there until the wait."""
    whole = np.zeros((x.m, x.k), np.float32)
    for n, t in enumerate(threads):
        registers, begin = held(t.env), at(t.env)[1]
        own = registers[begin : begin + x.held]
        if any(value is None for value in own):
            raise UndefinedError("a product reads registers that were never written", text)
        threads[0].products.keep(registers, begin, own)
        whole[x.c(n, np.arange(x.held))] = own
    return whole
