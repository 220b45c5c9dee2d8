"""Peak rates of this machine's processor, by loops in LLVM IR.

The loops are compiled for the target like any kernel: independent chains of vector FMAs in
registers, a pass over a working set, a copy, a chain of steps of one cycle each, parallel loops
without work and of multiply-adds. Several threads run the same loop concurrently, each on a core of
its own, and their rates are added. The peaks of a bench and a calibration (``autotune/calibrate``)
are read here.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....codegen.emit.llvm.template import render
from ....codegen.runtime import jit
from ....codegen.runtime.process import runtime
from ....codegen.targets.cpu import toolchain as cpu
from ....ir.arrays import Array
from ....ir.dtypes import f32
from ....ir.target import Target
from ...log.units import rate
from .lock import MachineLock
from .placement import placed

CHAINS = 16  # independent accumulators at most: over latency times ports on any current CPU
BESIDE = 4  # registers that accumulators leave
STEPS = 32  # of one cycle each, in an iteration of their loop; even
TRIPS = 100_000  # of a loop in registers, per call
FORKS = 200  # parallel loops per call
BURST = (
    16_000  # iterations of the loop in registers in a burst of each thread: some 50 microseconds
)
LINE = 128  # bytes, of the longest cache line
REPEATS = 7
LEAST = 0.02  # seconds per repetition
COPIED = 64 << 20  # bytes each thread copies, at most; at least four times L2

PASSED = 64 << 20  # bytes at least that a call accesses, so that calls of threads rarely meet

Seconds: TypeAlias = Callable[[], float]
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


@dataclass(frozen=True, slots=True)
class LevelRoof:
    """A level of memory: the bytes it holds for all threads, the bytes per second copied in it."""

    level: str
    size: int
    bandwidth: float

    @property
    def name(self) -> str:
        """The level as people write it."""
        return self.level.upper() if self.level != "memory" else self.level


@dataclass(frozen=True, slots=True)
class Peak:
    """FLOP per second in f32, and bytes per second read plus written, with ``threads`` threads.

    A ``nominal`` rate of operations is from a data sheet; everything else is measured.
    ``bandwidth`` is that of memory, ``roofs`` are those of the caches, the nearest first, where
    they were measured.
    """

    threads: int
    flops: float
    bandwidth: float
    nominal: bool = False
    roofs: tuple[LevelRoof, ...] = ()

    @property
    def memory(self) -> LevelRoof:
        """The roof of memory, which holds everything."""
        return LevelRoof("memory", sys.maxsize, self.bandwidth)

    def roof_of(self, size: float) -> LevelRoof:
        """Return the roof of the nearest level that holds so many bytes."""
        return next((r for r in self.roofs if size <= r.size), self.memory)

    @property
    def told(self) -> str:
        """The rates in words, those of copies by level."""
        copied = (f"{rate(r.bandwidth)} in {r.name}" for r in (*self.roofs, self.memory))
        return f"{rate(self.flops)} GFLOP/s FMA; copy GB/s: {', '.join(copied)}"

    @property
    def origin(self) -> str:
        """The origin of the figures, in words."""
        return "copy measured, rate nominal" if self.nominal else "measured"


@dataclass(frozen=True, slots=True)
class Looping:
    """A loop that ``threads`` threads run at once: ``call(n)`` is a call of thread ``n``.

    ``amount`` is what one call does: operations, bytes, cycles. ``held`` keeps its memory alive.
    """

    call: Callable[[int], object]
    amount: float
    threads: int = 1
    held: Sequence[Array] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """Amounts per second of all threads in some repetitions.

    ``shares`` are the least share of its core that a thread had in each, in [0, 1].
    """

    rates: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def best(self) -> float:
        """The highest rate."""
        return max(self.rates, default=0.0)


@dataclass(frozen=True, slots=True)
class Clocks:
    """A thread's CPU time and the wall time, in seconds."""

    cpu: Seconds = time.thread_time
    wall: Seconds = time.perf_counter


class PeakLoops:
    """The loops, loaded for a target that this machine runs."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._library = jit.load([cpu.compile(module_text(target), target)])
        self._sink = [np.zeros(1024, np.float32) for _ in range(target.threads)]

    def fma(self, threads: int) -> Looping:
        """Return the loop of f32 multiply-adds; its amount is in operations."""
        fma = self._function("peak_fma", _INT, _POINTER)
        amount = 2.0 * chains_of(self.target) * self.target.lanes(f32) * TRIPS
        return Looping(lambda n: fma(TRIPS, self._sink[n].ctypes.data), amount, threads)

    def read(self, size: int, threads: int) -> Looping:
        """Return the loop that reads ``size`` bytes, others for each thread; in bytes."""
        read = self._function("peak_read", _POINTER, _INT, _INT, _POINTER)
        data, blocks, trips = self._blocks(size, threads)
        places = [(d.ctypes.data, s.ctypes.data) for d, s in zip(data, self._sink, strict=False)]

        def call(n: int) -> object:
            return read(places[n][0], blocks, trips, places[n][1])

        return Looping(call, float(trips * self._block), threads, data)

    def copy(self, size: int, threads: int) -> Looping:
        """Return the loop that copies half of ``size`` bytes to the other half; in bytes.

        Bytes read and bytes written both count.
        """
        copy = self._function("peak_copy", _POINTER, _POINTER, _INT, _INT)
        source, blocks, trips = self._blocks(size // 2, threads)
        goal, *_ = self._blocks(size // 2, threads)
        places = [(a.ctypes.data, b.ctypes.data) for a, b in zip(source, goal, strict=True)]

        def call(n: int) -> object:
            return copy(*places[n], blocks, trips)

        return Looping(call, 2.0 * trips * self._block, threads, [*source, *goal])

    @property
    def _block(self) -> int:
        """The bytes that one iteration of a loop over memory accesses."""
        return chains_of(self.target) * 4 * self.target.lanes(f32)

    def _blocks(self, size: int, threads: int) -> tuple[list[Array], int, int]:
        """Return a buffer for each thread, the blocks in it, and the trip count of a call."""
        blocks = max(1, size // self._block)
        return _buffers(blocks * self._block, threads), blocks, max(blocks, PASSED // self._block)

    def cycles(self) -> Looping:
        """Return the chain of steps of one cycle each."""
        steps = self._function("peak_steps", _INT, _INT, _INT)
        return Looping(lambda n: steps(TRIPS, 12345, 54321), float(STEPS * TRIPS))

    def forks(self) -> Looping:
        """Return the parallel loops without work, on all the target's threads; in loops."""
        forks = self._function("peak_forks", _POINTER, _INT, _INT)
        runtime().set_threads(self.target.threads)
        pool = runtime().addresses["nw_parallel"]
        return Looping(lambda n: forks(pool, FORKS, self.target.threads), float(FORKS))

    def burst(self) -> Looping:
        """Return one parallel loop of multiply-adds in the pool's threads; in operations."""
        burst = self._function("peak_burst", _POINTER, _INT, _POINTER)
        runtime().set_threads(self.target.threads)
        pool, threads = runtime().addresses["nw_parallel"], self.target.threads
        told = np.array([BURST, *(s.ctypes.data for s in self._sink)], np.int64)
        amount = 2.0 * chains_of(self.target) * self.target.lanes(f32) * BURST * threads
        return Looping(lambda n: burst(pool, self.target.threads, told.ctypes.data), amount)

    def _function(self, name: str, *parameters: Any) -> Callable[..., object]:
        return ctypes.CFUNCTYPE(None, *parameters)(self._library.address(name))


def _buffers(size: int, count: int) -> list[Array]:
    """Return buffers, each at the start of a line, whose pages the system has given."""
    raw = [np.ones(size + LINE, np.uint8) for _ in range(count)]
    starts = (-r.ctypes.data % LINE for r in raw)
    return [r[start : start + size] for r, start in zip(raw, starts, strict=True)]


def processor_peak(target: Target) -> Peak:
    """Measure the peaks of this machine's processor with the target's threads; about a second."""
    loops = PeakLoops(target)
    lock = MachineLock()
    try:
        with lock.timing():
            flops = repeat(loops.fma(target.threads)).best
            size = 2 * max(COPIED, 4 * target.l2) // 4096 * 4096
            copied = repeat(loops.copy(size, target.threads)).best
            roofs = tuple(_level_roofs(loops))
            return Peak(target.threads, flops, copied, roofs=roofs)
    finally:
        lock.close()


def _level_roofs(loops: PeakLoops) -> Iterator[LevelRoof]:
    """Yield the caches' roofs, measured as memory's is."""
    core, threads = loops.target.core, loops.target.threads
    for level, size in core.working_sets(threads, sys.maxsize).items():
        if level in core.caches:
            rate = repeat(loops.copy(size, threads)).best
            yield LevelRoof(level, core.held(level, threads), rate)


def processor_rate(target: Target) -> float:
    """Measure the most f32 operations per second with the target's threads.

    A fraction of a second.
    """
    loops = PeakLoops(target)
    lock = MachineLock()
    try:
        with lock.timing():
            return repeat(loops.fma(target.threads)).best
    finally:
        lock.close()


def processor_stream(target: Target) -> float:
    """Measure the most bytes per second from beyond L2 with the target's threads.

    A fraction of a second; the memory lies in L3, if there is one.
    """
    loops = PeakLoops(target)
    lock = MachineLock()
    try:
        with lock.timing():
            return repeat(loops.read(4 * target.l2, target.threads)).best
    finally:
        lock.close()


def repeat(work: Looping, repeats: int = REPEATS, clocks: Clocks | None = None) -> Reading:
    """Return the rate of all threads of a loop, in some repetitions of ``LEAST`` seconds.

    Each thread's rate is by its own CPU time, which excludes time taken by other processes.
    """
    clocks = clocks or Clocks()
    work.call(0)
    began = clocks.cpu()
    work.call(0)
    times = max(1, round(LEAST / max(1e-6, clocks.cpu() - began)))
    rates, shares = [], []
    for _ in range(repeats):
        pairs = _together(work, times, clocks)
        rates.append(sum(rate for rate, _ in pairs) * work.amount)
        shares.append(min(share for _, share in pairs))
    return Reading(tuple(rates), tuple(shares))


def repeat_forks(
    work: Looping, threads: int, repeats: int = REPEATS, clocks: Clocks | None = None
) -> Reading:
    """Return parallel loops per second, by the wall clock, with the pool's threads on cores."""
    clocks = clocks or Clocks()
    rates, shares = [], []
    with placed(threads):
        for _ in range(repeats):
            work.call(0)  # the threads are awake
            cpu, wall = clocks.cpu(), clocks.wall()
            work.call(0)
            passed = max(clocks.wall() - wall, 1e-9)
            rates.append(work.amount / passed)
            shares.append(min(1.0, (clocks.cpu() - cpu) / passed))
    return Reading(tuple(rates), tuple(shares))


def _together(work: Looping, times: int, clocks: Clocks) -> list[tuple[float, float]]:
    """Run a loop in all its threads; return the calls per second and the share of each.

    An exception here, as of Ctrl-C, ends their calls first: the caller lets go of that code.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    spread = cores if len(cores) >= work.threads else []
    ready, stopped = threading.Barrier(work.threads), threading.Event()
    calling = [threading.Lock() for _ in range(work.threads)]

    def run(number: int) -> tuple[float, float]:
        if spread:
            os.sched_setaffinity(0, {spread[number]})
        ready.wait()
        with calling[number]:
            cpu, wall = clocks.cpu(), clocks.wall()
            for _ in range(times):
                if stopped.is_set():
                    break
                work.call(number)
            spent, passed = clocks.cpu() - cpu, clocks.wall() - wall
        return times / max(spent, 1e-9), min(1.0, spent / max(passed, 1e-9))

    # By locks, not Thread.join: of one that was interrupted, Python 3.11 takes the thread for
    # ended; and where a thread's start is interrupted, the pool does not know the thread.
    with ThreadPoolExecutor(work.threads) as pool:
        try:
            running = [pool.submit(run, n) for n in range(work.threads)]
            return [r.result() for r in running]
        except BaseException:
            stopped.set()
            ready.abort()
            for lock in calling:
                lock.acquire()
                lock.release()
            raise


def chains_of(target: Target) -> int:
    """Return the accumulators of a loop: no more than stay in registers."""
    return min(CHAINS, target.registers - BESIDE)


def module_text(target: Target) -> str:
    """Return the LLVM module of the loops."""
    lanes, count = target.lanes(f32), chains_of(target)
    v = f"<{lanes} x float>"
    start = "  %s{n} = fadd {v} %j, {number}"
    phi = "  %a{n} = phi {v} [ %s{n}, %entry ], [ %b{n}, %loop ]"
    step = "  %b{n} = call {v} @llvm.fmuladd.v{lanes}f32({v} %a{n}, {v} %j, {v} %j)"
    store = "  %p{n} = getelementptr {v}, ptr %sink, i64 {n}\n  store {v} %b{n}, ptr %p{n}, align 4"
    read = (
        "  %q{n} = getelementptr {v}, ptr %from, i64 {n}\n"
        "  %r{n} = load {v}, ptr %q{n}, align 4\n  %b{n} = fadd {v} %a{n}, %r{n}"
    )
    copy = (
        "  %p{n} = getelementptr {v}, ptr %from, i64 {n}\n"
        "  %q{n} = getelementptr {v}, ptr %to, i64 {n}\n"
        "  %r{n} = load {v}, ptr %p{n}, align 4\n  store {v} %r{n}, ptr %q{n}, align 4"
    )

    def chains(line: str) -> str:
        numbers = (", ".join([f"float {n}.0"] * lanes) for n in range(count))
        return "\n".join(
            line.format(n=n, v=v, lanes=lanes, number=f"<{number}>")
            for n, number in enumerate(numbers)
        )

    names = {
        "triple": target.triple,
        "v": v,
        "lanes": lanes,
        "chains": count,
        "starts": chains(start),
        "phis": chains(phi),
        "steps": chains(step),
        "stores": chains(store),
        "reads": chains(read),
        "copies": chains(copy),
        "steps_in_an_iteration": STEPS,
        "one_cycle_steps": "\n".join(_one_cycle(n) for n in range(STEPS)),
    }
    return render(__package__, "peak.ll", names=names)


def _one_cycle(n: int) -> str:
    """Return a step that depends on the one before; sums alternate, so that none can be joined."""
    return f"  %x{n + 1} = {'xor' if n % 2 else 'add'} i64 %x{n}, {'%b' if n % 2 else '%a'}"
