"""Data exchange between the threads of one launch: which accesses are legal.

Each top-level nest of a function with loops over threads is a launch. Such a loop runs its
iterations concurrently; loops over the same index elsewhere in the nest run on the same threads,
one loop after the other. From one such loop to the next, values pass

* in registers and in a thread's scratch memory, only to the same thread;
* in shared memory, to every thread of the same block of threads (lowering places the barriers);
* in global memory likewise, and from one block of threads to another only where a join reads it:
  what follows a loop over blocks inside of another one.

Within an iteration a thread sees what it wrote itself, and what loops inside exchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..ir.loop.names import called
from ..ir.loop.nodes import THREADS, AxisKind, Buffer, For, Func, Kind, Scope, Seq
from ..ir.loop.visit import walk
from .bindings import determined
from .cursor import (
    Path,
    block_of,
    blocks_under,
    contains,
    extent_of,
    loops_of,
    nest,
    reaches_of,
)
from .errors import Reason
from .fragments import inside, shared_out
from .legality import bound_vars, no_opaque_reduction, self_contained, sums_of_axes, writes
from .owners import depends, owned, thread_loops, writing_loops
from .threads import SHARING, few_enough, is_grid, is_shared, may_share, placed

GRID = tuple(t for t in THREADS if is_grid(t))
BLOCK = tuple(t for t in THREADS if not is_grid(t))
LAUNCHES = (
    "blocks of threads cannot wait for each other: they exchange values through global memory, "
    "from one top-level nest to the next"
)


@dataclass(frozen=True, slots=True)
class ThreadLaunch:
    """A top-level nest with loops over threads; ``sizes`` is the largest extent of each index."""

    func: Func
    blocks: tuple[Path, ...]
    sizes: Mapping[str, int]

    @property
    def threads(self) -> dict[str, int]:
        """The number of threads of each index.

        Threads that share a reduction combine in pairs, so theirs is rounded up to a power of two.
        """
        pairs = [
            x.thread == SHARING and is_shared(block_of(p), x)
            for p in self.blocks
            for x in loops_of(p)
        ]
        more = {SHARING: 1 << (self.sizes[SHARING] - 1).bit_length()} if any(pairs) else {}
        return {**self.sizes, **more}

    def users(self, buffer: Buffer) -> list[Path]:
        """Return the blocks of the launch that access a buffer."""
        return [
            p
            for p in self.blocks
            if any(r.buffer is buffer for r in (*block_of(p).reads, *block_of(p).writes))
        ]


def top_of(path: Path) -> Path:
    """Return the path of the top-level nest that contains the end of a path."""
    return path[:2] if isinstance(path[0], Seq) and len(path) > 1 else path[:1]


def launch_of(func: Func, top: Path) -> ThreadLaunch | None:
    """Return a top-level nest as a launch; None if no loop in it is bound to threads."""
    blocks = blocks_under(top)
    sizes: dict[str, int] = {}
    for p in blocks:
        for x in loops_of(p):
            if x.kind is Kind.THREAD:
                sizes[x.thread] = max(sizes.get(x.thread, 1), extent_of(x) or 1)
    return ThreadLaunch(func, blocks, sizes) if sizes else None


def check_launches(func: Func, paths: Iterable[Path]) -> Reason | None:
    """Require that the launches around ``paths`` compute what sequential loops would.

    Only statements under the ends of the paths are checked: the others have not changed.
    """
    changed: dict[int, tuple[Path, dict[str, Path]]] = {}
    for p in paths:
        top = top_of(p)
        _, blocks = changed.setdefault(id(top[-1]), (top, {}))
        blocks.update((block_of(b).name, b) for b in blocks_under(p))
    for top, blocks in changed.values():
        launch = launch_of(func, top)
        reason = None if launch is None else _check_launch(launch, blocks.values())
        if reason is not None:
            return reason
    return None


def _check_launch(launch: ThreadLaunch, changed: Collection[Path]) -> Reason | None:
    reason = _check_placement(launch)
    for path in changed:
        reason = reason or _check_block(path)
    if reason is not None:
        return reason
    written = {r.buffer for p in launch.blocks for r in block_of(p).writes}
    touched = [r.buffer for p in changed for r in (*block_of(p).reads, *block_of(p).writes)]
    for buffer in dict.fromkeys(touched):
        reason = _check_buffer(launch, buffer) if buffer in written else None
        if reason is not None:
            return reason
    return None


def _check_placement(launch: ThreadLaunch) -> Reason | None:
    seen: set[int] = set()
    threads = launch.threads
    for path in launch.blocks:
        for n, x in enumerate(path):
            if isinstance(x, For) and x.kind is Kind.THREAD and id(x) not in seen:
                seen.add(id(x))
                reason = placed(path[: n + 1], x.thread) or few_enough(threads, x)
                if reason is not None:
                    return reason
    return None


def _check_block(path: Path) -> Reason | None:
    """Require that a block may run on threads, and that iterations they share are independent."""
    block, inner = block_of(path), thread_loops(path)
    reason = no_opaque_reduction((path,), inner.values())
    for x in loops_of(path):
        if reason is not None or x.kind is not Kind.THREAD:
            continue
        if is_shared(block, x):
            reason = may_share(path, x)
        if reason is None and inner[x.thread] is not x:
            reason = _shares_iterations(path, x, inner[x.thread])
    return reason


def _shares_iterations(path: Path, outer: For, loop: For) -> Reason | None:
    """Require that the threads of ``outer`` may share the iterations of ``loop`` inside."""
    block, thread = block_of(path), loop.thread
    if depends(block, outer.var):
        return Reason(
            f"block `{block.name}` depends on the outer of two loops over {thread}, whose threads "
            "share the iterations of the inner one",
            (outer, loop, block),
            hint="compute the block for all threads (its buffer in shared memory), or bind the "
            "inner loop to another index",
        )
    if (extent_of(loop) or 0) > (extent_of(outer) or 0):
        return Reason(
            f"of two loops over {thread}, the inner one takes {extent_of(loop)} threads, and only "
            f"{extent_of(outer)} enter the outer one",
            (outer, loop, block),
            hint=f"split the inner one first: sch.split(loop, [None, {extent_of(outer)}])",
        )
    return None


@dataclass(slots=True)
class Traffic:
    """The accesses to a buffer in a launch, with facts about them computed on demand."""

    launch: ThreadLaunch
    buffer: Buffer
    users: list[Path]
    _owned: frozenset[str] | None = None
    _fed: list[Reason | None] = field(default_factory=list)

    def owned(self, thread: str) -> bool:
        """True if an element determines the thread that accesses it."""
        if self._owned is None:
            self._owned = owned(self.users, self.buffer)
        return thread in self._owned

    def fed(self) -> bool:
        """True if each iteration of common loops writes what it reads."""
        if not self._fed:
            self._fed.append(self_contained(self.launch.func, self.users))
        return self._fed[0] is None

    def pairs(self) -> list[tuple[Path, Path]]:
        """Return each writer with each other block that accesses the buffer."""
        own = [p for p in self.users if writes(block_of(p), self.buffer)]
        return [(w, r) for w in own for r in self.users if r is not w]


def _check_buffer(launch: ThreadLaunch, buffer: Buffer) -> Reason | None:
    t = Traffic(launch, buffer, launch.users(buffer))
    match buffer.scope:
        case Scope.WARP | Scope.WARPGROUP if shared_out(t.users, buffer):
            within = inside(buffer.scope, launch.threads)
            return _private(t, tuple(x for x in THREADS if x not in within))
        case Scope.REGISTER | Scope.WARP | Scope.WARPGROUP:
            return _private(t, THREADS)
        case Scope.SHARED | Scope.TENSOR:
            return _private(t, GRID) or _exchanged(t, BLOCK)
        case Scope.GLOBAL:
            if is_scratch(launch, buffer) and _private(t, THREADS) is None:
                return None
            return _exchanged(t, BLOCK) or _grid_disjoint(t, GRID)
        case Scope.COUNTER:
            blocks = tuple(map(block_of, t.users))
            return Reason(f"`{buffer}` would be a counter", blocks, hint="lowering makes them")


def joins(path: Path, loop: For) -> bool:
    """True if the end of a path follows a loop over blocks inside of another one."""
    above = [s for s, x in pairwise(path) if isinstance(s, Seq) and s.stmts[0] is not x]
    return any(x is loop for s in above for x in walk(s.stmts[0]))


def is_scratch(launch: ThreadLaunch, buffer: Buffer) -> bool:
    """True if an intermediate buffer is private to a thread.

    The same loops over threads surround all accesses, so it can be allocated inside them.
    """
    index = nest(launch.func)
    everyone = {*index.readers.get(buffer, ()), *index.writers.get(buffer, ())}
    users = launch.users(buffer)
    if buffer in launch.func.params or len(everyone) != len(users):
        return False
    loops = [{id(x) for x in thread_loops(p).values()} for p in users]
    return all(x == loops[0] for x in loops)


def is_own(launch: ThreadLaunch, buffer: Buffer) -> bool:
    """True if each thread has its own copy of a buffer."""
    if buffer.scope is Scope.GLOBAL:
        return is_scratch(launch, buffer)
    return buffer.scope is Scope.REGISTER


def _private(t: Traffic, indices: Sequence[str]) -> Reason | None:
    """Require that no value passes from one thread (or block) of the indices to another."""
    for w, r in t.pairs():
        for thread in indices:
            a, b = writing_loops(w).get(thread), thread_loops(r).get(thread)
            if a is None or t.launch.sizes.get(thread, 1) == 1:
                continue  # every thread computes it for itself
            if (a is b and _same_iteration(t, r)) or (b is not None and t.owned(thread)):
                continue
            return _crosses(t.buffer, thread, a, b, w, r)
    return None


def _same_iteration(t: Traffic, r: Path) -> bool:
    """True if what a block reads was written in the same iteration of the common loops."""
    return any(x.buffer is t.buffer for x in block_of(r).reads) and t.fed()


def _crosses(buffer: Buffer, thread: str, a: For, b: For | None, w: Path, r: Path) -> Reason:
    writer, reader = block_of(w), block_of(r)
    what = "block of threads" if is_grid(thread) else "thread"
    return Reason(
        f"`{buffer}` is in {buffer.scope.value} memory, which every {what} of {thread} has for "
        f"itself: `{reader.name}` would read in one what `{writer.name}` writes in another",
        (a, writer, reader) if b is None or b is a else (a, b, writer, reader),
        hint=LAUNCHES
        if is_grid(thread)
        else "set_scope to shared, or let the same thread do both: bind the reader's loop first",
    )


def _exchanged(t: Traffic, indices: Sequence[str]) -> Reason | None:
    """Require that no two threads of a loop race on an element in that loop."""
    for w in [p for p in t.users if writes(block_of(p), t.buffer)]:
        for thread, loop in writing_loops(w).items():
            if thread in indices:
                reason = _one_writer(t.buffer, w, loop, repeated=True)
                if reason is not None:
                    return reason
    for w, r in t.pairs():
        for thread in indices:
            a, b = writing_loops(w).get(thread), thread_loops(r).get(thread)
            if t.launch.sizes.get(thread, 1) == 1 or not _in_one_loop(a, b, w, r):
                continue
            if not (_same_iteration(t, r) or t.owned(thread)):
                return _race(t.buffer, thread, a or b, w, r)
    return None


def _in_one_loop(a: For | None, b: For | None, w: Path, r: Path) -> bool:
    """True if one of the loops over threads contains both the writer and the reader."""
    return (a is not None and contains(r, a)) or (b is not None and contains(w, b))


def _one_writer(buffer: Buffer, w: Path, loop: For, repeated: bool) -> Reason | None:
    """Require that the iterations of ``loop`` write different elements.

    With ``repeated``, they may also all write the same values.
    """
    block = block_of(w)
    if _different(w, loop) or (repeated and not depends(block, loop.var)):
        return None
    hint = ""
    if loop.var not in bound_vars(block, AxisKind.SPATIAL):
        hint = "it does not drive a spatial axis of the block"
    elif buffer.scope is Scope.SHARED:
        hint = "bind the outer loops first: compute_at then covers what all threads need"
    elif is_grid(loop.thread):
        hint = "give each block of threads its own: set_scope to shared, or a launch of its own"
    return Reason(
        f"the threads of {loop.thread} may write the same element of `{buffer}`",
        (loop, block),
        hint=hint,
    )


def repeated_by_all(w: Path, loop: For) -> bool:
    """True if each of several iterations of a loop repeats the block at the end of ``w``."""
    return extent_of(loop) != 1 and not depends(block_of(w), loop.var)


def _different(w: Path, loop: For) -> bool:
    loops = loops_of(w)
    extents = reaches_of(loops)
    outer = [x.var for x in loops[: next(n for n, x in enumerate(loops) if x is loop)]]
    sums = sums_of_axes(block_of(w), extents, AxisKind.SPATIAL)
    return loop.var in determined(sums, extents, outer)


def _race(buffer: Buffer, thread: str, loop: For | None, w: Path, r: Path) -> Reason:
    assert loop is not None
    writer, reader = block_of(w), block_of(r)
    return Reason(
        f"threads of {thread} race on `{buffer}`: one may be at `{writer.name}` while another is "
        f"at `{reader.name}` in the same loop `{called(loop)}`",
        (loop, writer, reader),
        hint="give each of the two blocks its own loop over the threads; a barrier then "
        "separates them",
    )


def _grid_disjoint(t: Traffic, indices: Sequence[str]) -> Reason | None:
    """Require that no block of threads accesses what another writes."""
    for w in [p for p in t.users if writes(block_of(p), t.buffer)]:
        for thread, loop in writing_loops(w).items():
            if thread in indices:
                reason = _one_writer(t.buffer, w, loop, repeated=False)
                if reason is not None:
                    return reason
    for w, r in t.pairs():
        for thread in indices:
            a, b = writing_loops(w).get(thread), thread_loops(r).get(thread)
            if t.launch.sizes.get(thread, 1) == 1 or (a is None and b is None):
                continue
            if a is not None and a is b and _same_iteration(t, r):
                continue
            if a is not None and b is None and joins(r, a):
                continue
            if a is None or b is None or not t.owned(thread):
                writer, reader = block_of(w), block_of(r)
                return Reason(
                    f"one block of threads of {thread} may be at `{writer.name}` while another "
                    f"is at `{reader.name}`, and both access `{t.buffer}`",
                    (*(x for x in (a, b) if x is not None), writer, reader),
                    hint=LAUNCHES,
                )
    return None
