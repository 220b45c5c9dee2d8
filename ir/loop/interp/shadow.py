"""Who touched which element in a launch: races between threads that no barrier keeps apart.

Two accesses of one block are ordered if all its threads met at a barrier in between, or those of
one warp at a barrier of the warp; of different blocks if their cluster met at its barrier. Other
blocks of one launch are ordered by arrivals alone: what a block
did before the barrier before its arrival at a counter is before what the last one there does after
its own. An asynchronous copy writes from where it is begun to where it is waited for, and meets
whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..nodes import OF_BLOCK, Alloc, Buffer, Scope, Stmt
from ..visit import children, walk
from .races import UndefinedError

Clock: TypeAlias = dict[int, int]
"""For each thread, or mbarrier at which boxes land, since when its accesses are not known."""
Place: TypeAlias = tuple[Buffer | None, int]  # None: a granule of shared memory

SHARED_UNIT = 128  # each array of shared memory begins at a multiple of this many bytes


@dataclass(frozen=True, slots=True)
class ThreadAccess:
    """One access: by which thread of which block, after how many barriers, in which statement."""

    block: tuple[int, ...]
    thread: int
    warp: int
    barriers: int
    warp_barriers: int
    statement: str
    time: int = 0
    together: int = 0  # which blocks ran together: one, or a cluster
    meetings: int = 0  # of these blocks

    def before(self, other: ThreadAccess) -> bool:
        """True if a barrier is between this and a later access, or one thread did both."""
        if self.block != other.block:
            return self.together == other.together and self.meetings != other.meetings
        if self.thread == other.thread or self.barriers != other.barriers:
            return True
        return self.warp == other.warp and self.warp_barriers != other.warp_barriers


@dataclass(slots=True)
class _Seen:
    """The last writer of an element, and up to two readers since."""

    writer: ThreadAccess | None = None
    readers: list[ThreadAccess] = field(default_factory=list)
    copier: ThreadAccess | None = None
    busy: ThreadAccess | None = None  # who reads it asynchronously


def shared_offsets(s: Stmt) -> dict[Buffer, int]:
    """Return the byte offsets of the shared arrays under ``s``: consecutive as they are nested."""
    found: dict[Buffer, int] = {}

    def visit(x: Stmt, free: int) -> None:
        if isinstance(x, Alloc) and x.buffer.scope is Scope.SHARED:
            found[x.buffer] = free
            size = x.buffer.dtype.bytes
            for n in x.buffer.shape:
                size *= n
            free += -(-size // SHARED_UNIT) * SHARED_UNIT
        for child in children(x):
            visit(child, free)

    visit(s, 0)
    return found


class Shadow:
    """Follows one launch."""

    def __init__(self, body: Stmt, extents: tuple[int, ...]) -> None:
        self.extents = extents  # of threadIdx.x, .y, .z
        self.offsets = shared_offsets(body)
        made = [x.buffer for x in walk(body) if isinstance(x, Alloc)]
        self.own = frozenset(b for b in made if b.scope not in OF_BLOCK)
        self.granule = min((b.dtype.bytes for b in self.offsets), default=1)
        self.cells: dict[Place, _Seen] = {}
        self.block: tuple[int, ...] = ()
        self.thread = 0
        self.part = 0  # whose shared memory it is: the rank of a block
        self.together = self.meetings = 0
        self.barriers: dict[tuple[int, ...], int] = {}
        self.warp_barriers: dict[tuple[tuple[int, ...], int], int] = {}
        self.arrived: dict[tuple[int, ...], tuple[Place, int]] = {}  # where, after which barriers
        self.joined: Place | None = None  # the counter at which this block was the last
        self.time = 0
        self.known: dict[int, Clock] = {}
        self.seen: dict[int, Clock] = {}
        """What each thread knows of the others by barriers for some of them, and what the
        asynchronous proxy sees of that."""
        self.remote: dict[int, int] = {}
        """For each rank, after how many meetings another block last read its shared memory."""
        self.unwritten: UndefinedError | None = None
        """The first read of what nothing wrote: a race, if another thread writes it yet."""

    def open_blocks(self) -> None:
        """Another block, or cluster, begins; its shared memory is its own."""
        self.joined, self.meetings = None, 0
        self.together += 1
        self.barriers.clear()
        self.warp_barriers.clear()
        self.known.clear()
        self.seen.clear()
        gone = [p for p in self.cells if p[0] is None or p[0].scope in OF_BLOCK]
        for p in gone:
            del self.cells[p]

    def turn_to(self, block: tuple[int, ...], rank: int, thread: int) -> None:
        """A thread of a block goes on."""
        self.block, self.part, self.thread = block, rank, thread

    def barrier(self) -> None:
        """All threads of the block have met."""
        self.barriers[self.block] = self.barriers.get(self.block, 0) + 1

    def cluster_barrier(self) -> None:
        """All threads of the cluster have met."""
        self.meetings += 1
        for block in self.barriers:
            self.barriers[block] += 1

    def arrive(self, counter: Place, last: bool) -> None:
        """All threads of the block have met, and one of them has counted it."""
        self.arrived[self.block] = counter, self.barriers.get(self.block, 0)
        self.joined = counter if last else None
        self.barrier()

    def waited_for(self, other: ThreadAccess) -> bool:
        """True if an access of another block comes before an arrival before this block's."""
        counter, barriers = self.arrived.get(other.block, (None, 0))
        if self.joined is None or counter != self.joined:
            return False
        return other.barriers < barriers + (other.thread == 0)

    def warp_barrier(self, thread: int) -> None:
        """The threads of the warp of one have met."""
        warp = self.block, thread // 32
        self.warp_barriers[warp] = self.warp_barriers.get(warp, 0) + 1

    def met(self, threads: Sequence[int]) -> None:
        """Threads have met at a barrier: each knows what one of them knew, and all they did."""
        if not self.known:
            return
        self.time += 1
        for table, fresh in ((self.known, dict.fromkeys(threads, self.time)), (self.seen, {})):
            joined = Clock(fresh)
            for t in threads:
                _join(joined, table.get(t, {}))
            table.update({t: Clock(joined) for t in threads})

    def release(self, thread: int, known: Clock) -> None:
        """Add to a barrier what a thread knows, and what its fences let be seen."""
        self.time += 1
        mine = self.known.setdefault(thread, Clock())
        mine[thread] = self.time
        _join(known, mine)
        _join(known, {_shown(t): n for t, n in self.seen.get(thread, {}).items()})

    def acquire(self, thread: int, known: Clock) -> None:
        """A thread knows what went to a barrier."""
        shown = {_shown(t): n for t, n in known.items() if _LANDED < t <= _shown(0)}
        _join(self.known.setdefault(thread, Clock()), known)
        _join(self.seen.setdefault(thread, Clock()), shown)

    def fence(self, thread: int) -> None:
        """Let asynchronous readers after it see all that a thread knows."""
        self.release(thread, Clock())
        _join(self.seen.setdefault(thread, Clock()), self.known[thread])

    def landed(
        self, known: Clock, number: int, boxes: Sequence[tuple[Buffer, list[int], str]]
    ) -> None:
        """Boxes are there for whoever waits for a phase of an mbarrier, which has ended."""
        column = _LANDED - number
        for buffer, places, statement in boxes:
            now = replace(self.now(statement), thread=column, warp=column)
            for place in (p for i in places for p in self.places(buffer, i)):
                cell = self.cells[place]
                cell.copier, cell.writer, cell.readers = None, now, []
        self.time += 1
        known[column] = self.time

    def read_async(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread has an element read asynchronously, from now on."""
        self.read(buffer, position, statement)
        now = self.now(statement)
        for place in self.places(buffer, position):
            writer = self.cells[place].writer
            self.cells[place].busy = now
            if writer is None or writer.thread <= _LANDED or writer.block != now.block:
                continue
            if self.seen.get(now.thread, {}).get(writer.thread, 0) <= writer.time:
                what = f"element {position} of {buffer.name} may not be seen asynchronously"
                why = f"{self.name(writer, now)} stored it in `{writer.statement}`"
                raise UndefinedError(what, why, hint="fence_proxy_async after the store")

    def end_async(self, buffer: Buffer, position: int) -> None:
        """An asynchronous read is over."""
        for place in self.places(buffer, position):
            self.cells[place].busy = None

    def read(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread reads an element."""
        now = self.now(statement)
        for place in self.places(buffer, position):
            seen = self.cells.setdefault(place, _Seen())
            self.check(buffer, position, now, (seen.copier, seen.writer), "reads")
            seen.readers = self.kept(seen.readers, now)

    def write(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread writes an element."""
        now = self.now(statement)
        for place in self.places(buffer, position):
            seen = self.cells.setdefault(place, _Seen())
            if seen.busy is not None:
                what = f"element {position} of {buffer.name} is written while it is read"
                why = f"asynchronously, from `{seen.busy.statement}` on"
                raise UndefinedError(what, why, hint="nothing waits for the reads")
            self.check(buffer, position, now, (seen.copier, seen.writer, *seen.readers), "writes")
            seen.writer, seen.readers = now, []

    def write_all(self, buffer: Buffer, positions: Iterable[int], statement: str) -> None:
        """The running thread writes some elements."""
        for position in positions:
            self.write(buffer, position, statement)

    def begin_copy(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread begins to copy into an element."""
        self.write(buffer, position, statement)
        for place in self.places(buffer, position):
            self.cells[place].copier = self.now(statement)

    def end_copy(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread knows that its copy into an element is done."""
        for place in self.places(buffer, position):
            self.cells[place].copier = None
        self.write(buffer, position, statement)

    def now(self, statement: str) -> ThreadAccess:
        """Return an access of the running thread by a statement."""
        warp = self.thread // 32
        at = self.barriers.setdefault(self.block, 0), self.warp_barriers.get((self.block, warp), 0)
        where, when = (self.block, self.thread, warp), (self.time, self.together, self.meetings)
        return ThreadAccess(*where, *at, statement, *when)

    def before(self, a: ThreadAccess, now: ThreadAccess) -> bool:
        """True if a barrier is between an access and the running thread's, or it did both."""
        if a.thread > _LANDED and a.before(now):
            return True
        known = self.known.get(now.thread, {}).get(a.thread, 0)
        return a.block == now.block and known > a.time

    def kept(self, readers: list[ThreadAccess], now: ThreadAccess) -> list[ThreadAccess]:
        """Readers that a writer may still meet: up to two, of two blocks or two threads, or all
        where some threads wait for some others."""
        rest = [r for r in readers if r.block != now.block or not self.before(r, now)]
        return [*(rest if self.known else rest[:1]), now]

    def places(self, buffer: Buffer, position: int) -> list[Place]:
        """Return the places that keep an element; none for a thread's own memory."""
        if buffer in self.own or buffer.scope not in (*OF_BLOCK, Scope.GLOBAL):
            return []
        if buffer not in self.offsets:
            return [(buffer, position)]
        size = buffer.dtype.bytes
        first = (self.offsets[buffer] + position * size) // self.granule + self.part * _PART
        return [(None, first + n) for n in range(max(1, size // self.granule))]

    def check(
        self,
        buffer: Buffer,
        position: int,
        now: ThreadAccess,
        others: tuple[ThreadAccess | None, ...],
        verb: str,
    ) -> None:
        """``others``: a copy under way, the last writer, readers."""
        for n, other in enumerate(others):
            if other is None or (n and (self.before(other, now) or self.waited_for(other))):
                continue
            who, whom = self.name(now, other), self.name(other, now)
            did = ("copies to", "writes")[n] if n < 2 else "reads"
            what = f"{who} and {whom} race on element {position} of {buffer.name}"
            why = f"the first {verb} it in `{now.statement}`, the second {did} it "
            why += f"in `{other.statement}`"
            raise UndefinedError(what, why, hint=_remedy(now, other, in_progress=n == 0))

    def name(self, a: ThreadAccess, beside: ThreadAccess) -> str:
        """Return ``thread 3`` or ``thread (3, 1, 0)``, with its block where two blocks meet."""
        if a.thread <= _LANDED:
            return "a bulk copy"
        place, rest = [], a.thread
        for n in self.extents:
            place.append(rest % n)
            rest //= n
        flat = self.extents[1:] == (1, 1)
        text = f"thread {place[0]}" if flat else f"thread ({', '.join(map(str, place))})"
        return text if a.block == beside.block else f"{text} of block {list(a.block)}"


_PART = 1 << 32  # more granules than a block has
_LANDED = -(1 << 20)  # from here downwards, mbarriers instead of threads, for what lands there


def _shown(thread: int) -> int:
    """Return the place in a barrier's clock of what is seen of a thread; it is its own inverse."""
    return -2 - thread


def _join(clock: Clock, other: Clock) -> None:
    for t, time in other.items():
        clock[t] = max(time, clock.get(t, 0))


def _remedy(now: ThreadAccess, other: ThreadAccess, in_progress: bool) -> str:
    if in_progress:
        return "nothing waits for the copy"
    if now.block != other.block and now.together == other.together:
        return "only cluster_barrier orders blocks of a cluster"
    if now.block != other.block:
        return "only an arrival orders blocks of one launch"
    return "there is no barrier in between"
