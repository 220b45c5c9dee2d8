"""Barriers with phases of a block that is interpreted, and what is under way in it.

An mbarrier's phase ends when all arrivals are there and all bytes have landed that were expected.
Copies land when no thread can go on, in a random order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .nodes import Buffer
from .races import UndefinedError
from .shadow import Clock, Shadow

Key: TypeAlias = tuple[Buffer | None, int]  # a place in shared memory, or a number alone


@dataclass(eq=False, slots=True)
class PhaseBarrier:
    """A barrier: arrivals of a phase and those that are missing, bytes that have yet to land.

    ``known`` is what threads knew that arrived, ``then`` the same as the last phase ended, and
    ``boxes`` have landed in this phase.
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
    bars: dict[Key, PhaseBarrier] = field(default_factory=dict)
    flights: list[Callable[[], None]] = field(default_factory=list)

    def make(self, key: tuple[Buffer, int], count: int) -> None:
        """Initialize an mbarrier."""
        name = f"{key[0].name}[{key[1]}]"
        self.bars[key] = PhaseBarrier(name, len(self.bars), count, count)

    def find(self, key: tuple[Buffer, int], where: str) -> PhaseBarrier:
        """Return an mbarrier."""
        if key not in self.bars:
            name = f"{key[0].name}[{key[1]}]"
            raise UndefinedError(f"{name} is used before it is initialized", where)
        return self.bars[key]

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
        if self.shadow is not None:
            self.shadow.acquire(thread, bar.then)


@dataclass(eq=False, slots=True)
class Products:
    """The products that four warps have begun, in groups: what they read, and sums to come.

    Sums are kept by their registers; they are nowhere else until they are waited for.
    """

    group: int = 0
    boxes: list[tuple[int, Buffer, list[int]]] = field(default_factory=list)
    sums: dict[tuple[int, int], tuple[int, list[Any], Any]] = field(default_factory=dict)

    def begin(self, boxes: Sequence[tuple[Buffer, list[int]]]) -> None:
        """A product reads boxes from now on."""
        self.boxes += [(self.group, *box) for box in boxes]

    def add(self, registers: list[Any], first: int, values: Sequence[Any], where: str) -> None:
        """Add to the sums of a thread."""
        for n, value in enumerate(values, first):
            _, _, old = self.sums.get((id(registers), n), (0, None, registers[n]))
            if old is None:
                raise UndefinedError("a sum that was never written is added to", where)
            self.sums[id(registers), n] = self.group, registers, type(old)(old + value)
            registers[n] = None

    def wait(self, left: int, shadow: Shadow | None) -> None:
        """All groups but some are done."""
        over = self.group - left
        for group, buffer, places in self.boxes:
            for i in places if shadow is not None and group < over else ():
                shadow.end_async(buffer, i)  # type: ignore[union-attr]
        self.boxes = [x for x in self.boxes if x[0] >= over]
        for (_, n), (group, registers, value) in self.sums.items():
            if group < over:
                registers[n] = value
        self.sums = {key: x for key, x in self.sums.items() if x[0] >= over}


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
