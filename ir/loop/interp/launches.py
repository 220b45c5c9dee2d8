"""A launch of flat GPU code run thread by thread: the oracle for what lowering makes of a schedule.

The threads of a block run one after the other, in a random order, each to the next place where
threads meet: a barrier, a reduction across threads, an operation of a warp. So what hangs on a
barrier that is missing shows. Blocks run in a random order, too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from ..build import as_int
from ..intrinsics import BLOCK, CLUSTERED
from ..nodes import THREADS, Block, Buffer, For, Intrinsic, Kind, Scope, Stmt, Var
from ..notes import CLUSTER, RESIDENT
from ..visit import walk
from ..warpgroups import WARPGROUP
from .clusters import check_ends
from .memory import Memory
from .phases import Pause, Phases, Products, deadlock
from .races import UndefinedError
from .scalar import Env
from .shadow import Shadow
from .tensors import TensorMemory
from .threads import Meeting, Run, Thread, ThreadCompiler


@dataclass(frozen=True, slots=True)
class Launch:
    """A chain of thread-bound loops, in the order of ``THREADS``, around a body that has none."""

    indices: Mapping[str, tuple[Var, int]]
    body: Stmt
    strided: bool = False  # any number of blocks in x will do
    clustered: frozenset[str] = frozenset()  # the indices whose blocks are a cluster

    @staticmethod
    def of(s: Stmt) -> Launch | None:
        """Return the launch that a statement is, if it is one."""
        indices: dict[str, tuple[Var, int]] = {}
        order, strided, clustered = iter(THREADS), False, set()
        while isinstance(s, For) and s.kind is Kind.THREAD:
            extent = as_int(s.extent)
            if s.thread not in order or extent is None:
                return None
            indices[s.thread] = s.var, extent
            strided |= RESIDENT.of(s) is not None
            clustered |= {s.thread} if CLUSTER.of(s) else set()
            s = s.body
        flat = not any(isinstance(x, Block) or (isinstance(x, For) and x.thread) for x in walk(s))
        strided &= any(isinstance(x, Intrinsic) and x.name == "grid_blocks" for x in walk(s))
        return Launch(indices, s, strided, frozenset(clustered)) if indices and flat else None

    def grid(self, order: random.Random) -> tuple[int, int, int]:
        """Blocks in x, y, z; in x any number where it does not matter."""
        x, y, z = self.extents("blockIdx")
        return order.randint(1, x) if self.strided else x, y, z

    def extents(self, word: str) -> tuple[int, int, int]:
        """Extents of ``blockIdx`` or ``threadIdx``: x, y, z."""
        found = (self.indices.get(f"{word}.{d}") for d in "xyz")
        x, y, z = (1 if pair is None else pair[1] for pair in found)
        return x, y, z

    def clusters(self, grid: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
        """Return the blocks that run together: by rank those of each cluster, else one by one."""
        inside = [f"blockIdx.{d}" in self.clustered for d in "xyz"]
        sizes = [n if own else 1 for n, own in zip(grid, inside, strict=True)]
        outside = (range(1 if own else n) for n, own in zip(grid, inside, strict=True))
        found = []
        for first in product(*outside):
            ranks = product(*map(range, reversed(sizes)))
            found.append([tuple(a + b for a, b in zip(first, r[::-1], strict=True)) for r in ranks])
        return found


def run_launch(
    launch: Launch,
    memory: dict[Buffer, Memory],
    symbols: Mapping[Var, int],
    order: random.Random,
    check_races: bool,
) -> None:
    """Run all blocks. With ``check_races``, two threads that meet unordered are an error."""
    shadow = Shadow(launch.body, launch.extents("threadIdx")) if check_races else None
    program = _Program(launch, memory, symbols, shadow)
    extents = launch.grid(order)
    program.compiler.blocks = extents[0]
    clusters = launch.clusters(extents)
    order.shuffle(clusters)
    for blocks in clusters:
        if shadow is not None:
            shadow.open_blocks()
        _run_blocks([program.threads(block) for block in blocks], blocks, order, shadow)
        if shadow is not None and shadow.unwritten is not None:
            raise shadow.unwritten
    for (counter, n), count in program.compiler.arrivals.items():
        if count:
            why = f"{count} blocks have arrived at {counter.name}[{n}] when the launch ends"
            raise UndefinedError("no block was the last one", why)


class _Program:
    """A compiled launch, and the environment in which a thread starts."""

    def __init__(
        self,
        launch: Launch,
        memory: dict[Buffer, Memory],
        symbols: Mapping[Var, int],
        shadow: Shadow | None,
    ) -> None:
        self.launch = launch
        self.compiler = compiler = ThreadCompiler(memory, shadow)
        values = {compiler.bind(v, (n, n)): n for v, n in symbols.items()}
        for v, extent in launch.indices.values():
            compiler.bind(v, (0, extent - 1))
        on_chip = [b for b in memory if b.scope is not Scope.GLOBAL]
        self.made = [compiler.make(b) for b in on_chip]
        self.run: Run = compiler.steps(launch.body)
        self.start: Env = [values.get(slot, 0) for slot in range(compiler.size)]

    def threads(self, block: tuple[int, ...]) -> list[Thread]:
        """Return the threads of a block, about to begin."""
        x, y, z = self.launch.extents("threadIdx")
        shared: dict[Buffer, list[object]] = {}
        shadow = self.compiler.shadow
        phases = Phases(shadow, TensorMemory(shadow))
        products: dict[int, Products] = {}
        made = []
        for n in range(math.prod((x, y, z))):
            own = products.setdefault(n // WARPGROUP, Products())
            place = n % x, n // x % y, n // (x * y)
            made.append(self.thread(Thread(n, [], iter(()), shared, phases, own), block, place))
        return made

    def thread(self, thread: Thread, block: tuple[int, ...], place: tuple[int, ...]) -> Thread:
        env = thread.env = list(self.start)
        thread.steps = self.run(env)
        env[self.compiler.me] = thread
        for name, values in (("blockIdx", block), ("threadIdx", place)):
            for d, value in zip("xyz", values, strict=True):
                if f"{name}.{d}" in self.launch.indices:
                    env[self.compiler.slots[self.launch.indices[f"{name}.{d}"][0]]] = value
        for slot, make in self.made:
            env[slot] = make(env)
        return thread


def _run_blocks(
    parts: list[list[Thread]],
    blocks: list[tuple[int, ...]],
    order: random.Random,
    shadow: Shadow | None,
) -> None:
    """Run the threads of the blocks of a cluster, each as far as it gets, in a random order.

    Threads stop where they meet others, and where a phase has to end first. What is in flight
    lands only when no thread can go on otherwise: a missing wait shows.
    """
    threads = [t for part in parts for t in part]
    for rank, part in enumerate(parts):
        for t in part:
            t.rank, t.peers = rank, [other[0].shared for other in parts]
    waiting: dict[Thread, Meeting] = {}
    paused: dict[Thread, Pause] = {}
    ready = list(threads)
    phases = threads[0].phases
    while ready:
        order.shuffle(ready)
        for t in ready:
            if shadow is not None:
                shadow.turn_to(blocks[t.rank], t.rank, t.number)
            match next(t.steps, None):
                case Meeting() as meeting:
                    waiting[t] = meeting
                case Pause() as pause:
                    paused[t] = pause
        ready = []
        for meeting, group in _complete(waiting, parts):
            if shadow is not None:
                shadow.turn_to(blocks[group[0].rank], group[0].rank, group[0].number)
            meeting.act(group)
            ready += group
        for t in ready:
            del waiting[t]
        ready += _awake(paused)
        while not ready and phases.flights:
            phases.flights.pop(order.randrange(len(phases.flights)))()
            ready += _awake(paused)
    if waiting and (error := _stuck(waiting, paused, parts)) is not None:
        raise error
    if paused:
        raise deadlock({t.number: pause for t, pause in paused.items()})
    _require_finished(parts)
    if shadow is not None and len(parts) > 1:
        check_ends(shadow, len(parts))


def _require_finished(parts: list[list[Thread]]) -> None:
    """Raise ``UndefinedError`` if something asynchronous is under way where the blocks end."""
    threads = [t for part in parts for t in part]
    if threads[0].phases.flights or any(t.products.boxes or t.stores.boxes for t in threads):
        what = "a block ends while a copy or a product is under way"
        raise UndefinedError(what, "nothing waits for it")
    for what in (part[0].phases.tensor.busy for part in parts):
        if what:
            raise UndefinedError(what, "tensor_free by one warp is missing, or a wait")


def _complete(
    waiting: Mapping[Thread, Meeting], parts: list[list[Thread]]
) -> Iterator[tuple[Meeting, list[Thread]]]:
    """Yield the meetings at which all threads of a group have arrived, each with the group."""
    for meeting in dict.fromkeys(waiting.values()):
        for group in _groups(meeting, parts):
            if all(waiting.get(t) is meeting for t in group):
                yield meeting, group


def _awake(paused: dict[Thread, Pause]) -> list[Thread]:
    """Threads whose phase has ended, which are not paused any more."""
    found = [t for t, pause in paused.items() if pause.over()]
    for t in found:
        t.phases.told(t.number, paused.pop(t).bar)
    return found


def _groups(m: Meeting, parts: list[list[Thread]]) -> list[list[Thread]]:
    if m.size == CLUSTERED:
        return [[t for part in parts for t in part]]
    size = len(parts[0]) if m.size == BLOCK else m.size
    return [part[n : n + size] for part in parts for n in range(0, len(part), size)]


def _stuck(
    waiting: Mapping[Thread, Meeting], paused: Mapping[Thread, Pause], parts: list[list[Thread]]
) -> UndefinedError | None:
    """Return the error of a meeting that a thread misses; None if it waits for a phase."""
    thread, meeting = min(waiting.items(), key=lambda item: item[0].number)
    group = next(g for g in _groups(meeting, parts) if thread in g)
    other = next(t for t in group if waiting.get(t) is not meeting)
    if other in paused:
        return None
    there = waiting.get(other)
    where = "has ended" if there is None else f"waits in `{there.text}` elsewhere"
    what = f"not all of {len(group)} threads reach `{meeting.text}`"
    why = f"thread {thread.number} waits there, thread {other.number} {where}"
    return UndefinedError(what, why)
