"""The part of emission that only GPU code has: launches, threads, shared memory, exchange.

A flat GPU function is a sequence of launches. The emitter writes the code of one thread as it
writes CPU code and leaves the rest to a ``DeviceEmitter``. There are two: NVPTX
(``targets.cuda.emit``) and the simulator, in which every thread is a coroutine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.errors import UnsupportedError, VerifyError
from ...ir.gpus import Gpu
from ...ir.loop.build import as_int
from ...ir.loop.nodes import (
    SHARED_ALIGN,
    THREADS,
    Alloc,
    AllReduce,
    Buffer,
    For,
    Func,
    Intrinsic,
    Scope,
    Seq,
    Stmt,
)
from ...ir.loop.notes import CLUSTER, RESIDENT
from ...ir.loop.visit import buffers_read, buffers_written, walk
from ..lower.gpu.limits import memory
from ..lower.gpu.overlap import WAIT, waits
from ..lower.passes.launches import has_threads, opened
from ..plan.code.device import LaunchConfig
from .llvm.core import IRValue
from .tensor_maps import tensor_maps


@dataclass(frozen=True)
class LaunchNest:
    """One launch: ``body`` has the thread loops, ``around`` are the buffers allocated outside of
    it.

    ``grid`` and ``block`` are extents of x, y, z. ``stored`` and ``loaded`` are the buffers that it
    writes and reads.
    """

    symbol: str
    body: Stmt
    around: tuple[Buffer, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stored: frozenset[Buffer]
    loaded: frozenset[Buffer]

    @property
    def loops(self) -> list[For]:
        """The thread loops, outermost first."""
        return opened(self.body)[0]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z

    @property
    def resident(self) -> int:
        """The ``RESIDENT`` note of its loop over blocks; 0 without one."""
        return next((n for x in self.loops if (n := RESIDENT.of(x)) is not None), 0)

    @property
    def cluster(self) -> tuple[int, int, int]:
        """Blocks of a cluster in x, y and z."""
        x, y, z = (
            n if any(c.thread == f"blockIdx.{d}" and CLUSTER.of(c) for c in self.loops) else 1
            for d, n in zip("xyz", self.grid, strict=True)
        )
        return x, y, z

    @property
    def is_early(self) -> bool:
        """True if it may begin while an earlier launch still writes what it reads."""
        return any(s == WAIT for s in walk(self.body))

    @property
    def exchanged(self) -> frozenset[Buffer]:
        """The buffers through which its threads may communicate."""
        if not any(isinstance(s, Intrinsic | AllReduce) for s in walk(self.body)):
            return frozenset()
        both = self.stored & self.loaded
        return frozenset(b for b in both if b.scope in (Scope.SHARED, Scope.GLOBAL))


class DeviceEmitter(ABC):
    """The emission of GPU-specific code. An implementation holds the emitter that calls it."""

    @abstractmethod
    def open_launch(self, nest: LaunchNest) -> None:
        """Begin ``em.function`` for a launch; ``em.buffers`` gets the parameters' addresses."""

    @abstractmethod
    def close_launch(self, nest: LaunchNest) -> None:
        """End a launch whose body has been emitted; its functions go into ``em.finished``."""

    @abstractmethod
    def module(self, nests: tuple[LaunchNest, ...]) -> str:
        """Return the module's text, once every launch is closed."""

    @abstractmethod
    def thread_index(self, name: str) -> IRValue:
        """Return this thread's or block's index in ``name``, one of ``THREADS``, as an s32."""

    @abstractmethod
    def shared(self, buffer: Buffer, offset: int) -> IRValue:
        """Return the address of a shared buffer at byte ``offset`` of the block's memory."""

    @abstractmethod
    def tensor(self, buffer: Buffer) -> IRValue:
        """Return the address of a block's tensor memory, if the device gives it one."""

    @abstractmethod
    def counters(self, buffer: Buffer) -> IRValue:
        """Return the address of a launch's counters of arrivals."""

    @abstractmethod
    def intrinsic(self, s: Intrinsic) -> None:
        """Emit a lane-level intrinsic."""

    @abstractmethod
    def all_reduce(self, s: AllReduce) -> None:
        """Emit a reduction across threads."""

    @abstractmethod
    def access(self, buffer: Buffer, pointer: IRValue, size: int, write: bool, depth: int) -> None:
        """Announce an access of ``size`` bytes to global or shared memory, emitted next in region
        ``depth``.

        Accesses to a thread's own memory are announced if the device ``watches`` it.
        """

    def watches(self, buffer: Buffer) -> bool:
        """True for registers whose accesses are to be announced."""
        return False


def nests(func: Func) -> tuple[LaunchNest, ...]:
    """Return the launches of a flat function in order."""
    found = []
    for number, (body, around) in enumerate(_split(func.body, ())):
        symbol = f"{func.name}_{number}" if number else func.name
        found.append(_nest(symbol, body, around))
    return tuple(found)


def _split(s: Stmt, around: tuple[Buffer, ...]) -> Iterator[tuple[Stmt, tuple[Buffer, ...]]]:
    """Yield the bodies of launches; a statement bound to no thread is a launch of one thread."""
    match s:
        case Seq(stmts=stmts) if has_threads(s):
            for x in stmts:
                yield from _split(x, around)
        case Alloc(buffer=buffer, body=body) if has_threads(s):
            yield from _split(body, (*around, buffer))
        case _:
            yield s, around


def _nest(symbol: str, body: Stmt, around: tuple[Buffer, ...]) -> LaunchNest:
    extents: dict[str, int] = {}
    loops, inner = opened(body)
    for loop in loops:
        known, count = list(map(THREADS.index, extents)), as_int(loop.extent)
        if count is None or THREADS.index(loop.thread) in known:
            raise VerifyError(f"loop over {loop.thread} in {symbol}", "not in its flat form")
        if known and THREADS.index(loop.thread) < known[-1]:
            raise VerifyError(f"loop over {loop.thread} in {symbol}", "out of order")
        extents[loop.thread] = count
    if has_threads(inner):
        raise UnsupportedError(
            f"thread loops inside of other statements in {symbol}", "a launch has them outermost"
        )

    def of(index: str) -> tuple[int, int, int]:
        x, y, z = (extents.get(f"{index}.{axis}", 1) for axis in "xyz")
        return x, y, z

    blocks, threads = of("blockIdx"), of("threadIdx")
    stored, loaded = buffers_written(body), buffers_read(body)
    return LaunchNest(symbol, body, around, blocks, threads, stored, loaded)


_COPIES = ("copy_async", "commit_async", "fence_proxy_async")
_QUIET = ("mma.", "ldmatrix.", "stmatrix.", "wgmma", "grid_blocks", "load_remote", *_COPIES)


def synchronizes(s: Stmt) -> bool:
    """True if other threads' writes may become visible at this statement itself."""
    if isinstance(s, Intrinsic):
        return not s.name.startswith(_QUIET)
    return isinstance(s, AllReduce)


def launches(flat: Func) -> tuple[LaunchConfig, ...]:
    """Return the launches of a function that was lowered for a GPU."""
    return tuple(
        LaunchConfig(
            *(n.symbol, n.grid, n.block, shared_bytes(n.body)),
            *(tensor_maps(n.body, flat.params), n.resident, waits(n.body)),
        )
        for n in nests(flat)
    )


def launched(nest: LaunchNest, gpu: Gpu) -> tuple[int, int, int]:
    """Return the grid of a launch on the board that the table has of an architecture."""
    given = LaunchConfig(nest.symbol, nest.grid, nest.block, 0, resident=nest.resident)
    return given.on(gpu.multiprocessors)


def shared_bytes(s: Stmt) -> int:
    """Return the bytes of shared memory of a block; buffers that never coexist share a place."""
    return memory(s, (Scope.SHARED,), SHARED_ALIGN)
