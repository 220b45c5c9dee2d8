"""Who touched which element in a launch: races between threads that no barrier keeps apart.

Two accesses of one block are ordered if all its threads met at a barrier in between, or those of
one warp at a barrier of the warp. Blocks of one launch are ordered by arrivals alone: what a block
did before the barrier before its arrival at a counter is before what the last one there does after
its own. An asynchronous copy writes from where it is begun to where it is waited for, and meets
whatever happens in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from .nodes import Alloc, Buffer, Scope, Stmt
from .races import UndefinedError
from .visit import children, walk

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

    def before(self, other: ThreadAccess) -> bool:
        """True if a barrier is between this and a later access, or one thread did both."""
        if self.block != other.block:
            return False
        if self.thread == other.thread or self.barriers != other.barriers:
            return True
        return self.warp == other.warp and self.warp_barriers != other.warp_barriers


@dataclass(slots=True)
class _Seen:
    """The last writer of an element, and up to two readers since."""

    writer: ThreadAccess | None = None
    readers: list[ThreadAccess] = field(default_factory=list)
    copier: ThreadAccess | None = None


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
        self.own = frozenset(b for b in made if b.scope is not Scope.SHARED)
        self.granule = min((b.dtype.bytes for b in self.offsets), default=1)
        self.seen: dict[Place, _Seen] = {}
        self.block: tuple[int, ...] = ()
        self.thread = 0
        self.barriers = 0
        self.warp_barriers: dict[int, int] = {}
        self.arrived: dict[tuple[int, ...], tuple[Place, int]] = {}  # where, after which barriers
        self.joined: Place | None = None  # the counter at which this block was the last
        self.unwritten: UndefinedError | None = None
        """The first read of what nothing wrote: a race, if another thread writes it yet."""

    def open_block(self, block: tuple[int, ...]) -> None:
        """Another block begins; its shared memory is its own."""
        self.block, self.barriers, self.joined = block, 0, None
        self.warp_barriers.clear()
        gone = [p for p in self.seen if p[0] is None or p[0].scope is Scope.SHARED]
        for p in gone:
            del self.seen[p]

    def barrier(self) -> None:
        """All threads of the block have met."""
        self.barriers += 1

    def arrive(self, counter: Place, last: bool) -> None:
        """All threads of the block have met, and one of them has counted it."""
        self.arrived[self.block] = counter, self.barriers
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
        warp = thread // 32
        self.warp_barriers[warp] = self.warp_barriers.get(warp, 0) + 1

    def read(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread reads an element."""
        now = self.now(statement)
        for place in self.places(buffer, position):
            seen = self.seen.setdefault(place, _Seen())
            self.check(buffer, position, now, (seen.copier, seen.writer), "reads")
            seen.readers = _kept(seen.readers, now)

    def write(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread writes an element."""
        now = self.now(statement)
        for place in self.places(buffer, position):
            seen = self.seen.setdefault(place, _Seen())
            self.check(buffer, position, now, (seen.copier, seen.writer, *seen.readers), "writes")
            seen.writer, seen.readers = now, []

    def begin_copy(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread begins to copy into an element."""
        self.write(buffer, position, statement)
        for place in self.places(buffer, position):
            self.seen[place].copier = self.now(statement)

    def end_copy(self, buffer: Buffer, position: int, statement: str) -> None:
        """The running thread knows that its copy into an element is done."""
        for place in self.places(buffer, position):
            self.seen[place].copier = None
        self.write(buffer, position, statement)

    def now(self, statement: str) -> ThreadAccess:
        """Return an access of the running thread by a statement."""
        warp = self.thread // 32
        at = self.warp_barriers.get(warp, 0)
        return ThreadAccess(self.block, self.thread, warp, self.barriers, at, statement)

    def places(self, buffer: Buffer, position: int) -> list[Place]:
        """Return the places that keep an element; none for a thread's own memory."""
        if buffer in self.own or buffer.scope not in (Scope.SHARED, Scope.GLOBAL):
            return []
        if buffer not in self.offsets:
            return [(buffer, position)]
        size = buffer.dtype.bytes
        first = (self.offsets[buffer] + position * size) // self.granule
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
            if other is None or (n and (other.before(now) or self.waited_for(other))):
                continue
            who, whom = self.name(now, other), self.name(other, now)
            did = ("copies to", "writes")[n] if n < 2 else "reads"
            what = f"{who} and {whom} race on element {position} of {buffer.name}"
            why = f"the first {verb} it in `{now.statement}`, the second {did} it "
            why += f"in `{other.statement}`"
            raise UndefinedError(what, why, hint=_remedy(now, other, in_progress=n == 0))

    def name(self, a: ThreadAccess, beside: ThreadAccess) -> str:
        """``thread 3`` or ``thread (3, 1, 0)``, with its block where two blocks meet."""
        place, rest = [], a.thread
        for n in self.extents:
            place.append(rest % n)
            rest //= n
        flat = self.extents[1:] == (1, 1)
        text = f"thread {place[0]}" if flat else f"thread ({', '.join(map(str, place))})"
        return text if a.block == beside.block else f"{text} of block {list(a.block)}"


def _kept(readers: list[ThreadAccess], now: ThreadAccess) -> list[ThreadAccess]:
    """Up to two readers, of two blocks or two threads, that a writer may still meet."""
    rest = [r for r in readers if r.block != now.block or not r.before(now)]
    return [*rest[:1], now]


def _remedy(now: ThreadAccess, other: ThreadAccess, in_progress: bool) -> str:
    if in_progress:
        return "nothing waits for the copy"
    if now.block != other.block:
        return "only an arrival orders blocks of one launch"
    return "there is no barrier in between"
