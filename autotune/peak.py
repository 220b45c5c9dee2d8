"""What this machine can do at best: measured FMA rate and copy bandwidth, to judge kernels by.

Both are loops in LLVM IR, made for the target like any kernel: independent chains of vector FMAs
in registers, and a copy between buffers that no L2 cache holds. Several threads run the same
loop at once; the rates add up. The best of a few repetitions counts.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..codegen.emit.llvm.template import render
from ..codegen.runtime import jit
from ..codegen.targets.cpu import toolchain as cpu
from ..ir.dtypes import f32
from ..ir.target import Target
from .measure.lock import MachineLock

CHAINS = 16  # independent accumulators: more than latency times ports on any current CPU
TURNS = 800_000  # of the FMA loop, per call
REPEATS = 7
QUICK = 3  # repetitions where the rate only has to bound what can be
LEAST = 0.02  # seconds per repetition
COPIED = 64 << 20  # bytes each thread copies, at most; at least four times L2


@dataclass(frozen=True, slots=True)
class Peak:
    """FLOP per second in f32, and bytes per second read plus written, with ``threads`` threads.

    Where the rate of operations is ``nominal``, a data sheet gives it; all else is measured.
    """

    threads: int
    flops: float
    bandwidth: float
    nominal: bool = False

    @property
    def origin(self) -> str:
        """Where the figures come from."""
        return "copy measured, rate nominal" if self.nominal else "both measured"


@cache
def measure_peak(target: Target) -> Peak:
    """The peaks of this machine with the target's threads; about a second.

    A GPU's FLOP rate is the nominal one; its bandwidth is that of a copy in its memory.
    """
    if target.kind == "cuda":
        return Peak(1, target.gpu.f32_flops, _device_copies(), nominal=True)
    lanes = target.lanes(f32)
    library = jit.load([cpu.compile(module_text(target), target)])
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        library.address("peak_copy")
    )
    size = max(COPIED, 4 * target.l2) // 4096 * 4096
    lock = MachineLock()
    try:
        with lock.timing():
            flops = _fma_rate(target, library)
            source = [np.ones(size, np.uint8) for _ in range(target.threads)]
            goal = [np.ones(size, np.uint8) for _ in range(target.threads)]
            vectors = size // (4 * lanes)
            copies = _rate(
                lambda n: copy(source[n].ctypes.data, goal[n].ctypes.data, vectors), target.threads
            )
    finally:
        lock.close()
    return Peak(target.threads, flops, 2.0 * size * copies)


@cache
def measure_rate(target: Target) -> float:
    """Most f32 operations per second of this processor with the target's threads.

    0 for a GPU, whose tensor cores and clocks leave no one figure. A fraction of a second.
    """
    if target.is_gpu:
        return 0.0
    lock = MachineLock()
    try:
        with lock.timing():
            return _fma_rate(target, jit.load([cpu.compile(module_text(target), target)]), QUICK)
    finally:
        lock.close()


def _fma_rate(target: Target, library: jit.JitLibrary, repeats: int = REPEATS) -> float:
    fma = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(library.address("peak_fma"))
    sink = [np.zeros(1024, np.float32) for _ in range(target.threads)]
    rate = _rate(lambda n: fma(TURNS, sink[n].ctypes.data), target.threads, repeats)
    return 2.0 * CHAINS * target.lanes(f32) * TURNS * rate


def _device_copies() -> float:
    """Bytes per second read plus written by the driver's own copy."""
    from ..codegen.runtime.cuda.device import device  # what it brings is an extra
    from .measure.device import EventClock

    gpu = device()
    clock, size = EventClock(gpu), 1 << 29
    source, goal = gpu.allocate(size), gpu.allocate(size)
    best = 0.0
    with gpu:
        for _ in range(REPEATS):
            began = clock()
            gpu.driver.call("cuMemcpyDtoDAsync", goal.address, source.address, size, gpu.stream)
            best = max(best, 2.0 * size / (clock() - began))
    return best


def _rate(call: Callable[[int], object], threads: int, repeats: int = REPEATS) -> float:
    """Calls per second of all threads, the best of some repetitions.

    Each thread's rate is by its own processor time: what other processes steal does not count.
    """
    call(0)
    began = time.thread_time()
    call(0)
    times = max(1, round(LEAST / max(1e-6, time.thread_time() - began)))
    best = 0.0
    for _ in range(repeats):
        rates = [0.0] * threads
        workers = [
            threading.Thread(target=_repeat, args=(call, n, times, rates)) for n in range(threads)
        ]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        best = max(best, sum(rates))
    return best


def _repeat(call: Callable[[int], object], number: int, times: int, rates: list[float]) -> None:
    began = time.thread_time()
    for _ in range(times):
        call(number)
    rates[number] = times / (time.thread_time() - began)


def module_text(target: Target) -> str:
    """Return the LLVM module of both loops."""
    lanes = target.lanes(f32)
    v = f"<{lanes} x float>"
    start = "  %s{n} = fadd {v} %j, {number}"
    phi = "  %a{n} = phi {v} [ %s{n}, %entry ], [ %b{n}, %loop ]"
    step = "  %b{n} = call {v} @llvm.fma.v{lanes}f32({v} %a{n}, {v} %j, {v} %j)"
    store = "  %p{n} = getelementptr {v}, ptr %sink, i64 {n}\n  store {v} %b{n}, ptr %p{n}, align 4"

    def chains(line: str) -> str:
        numbers = (", ".join([f"float {n}.0"] * lanes) for n in range(CHAINS))
        return "\n".join(
            line.format(n=n, v=v, lanes=lanes, number=f"<{number}>")
            for n, number in enumerate(numbers)
        )

    names = {
        "triple": target.triple,
        "v": v,
        "lanes": lanes,
        "starts": chains(start),
        "phis": chains(phi),
        "steps": chains(step),
        "stores": chains(store),
    }
    return render(__package__, "peak.ll", names=names)
