"""Measured peaks of a CPU: FMA rate and copy bandwidth, as a scale for kernels.

Both are loops in LLVM IR, compiled for the target like any kernel: independent chains of vector
FMAs in registers, and a copy between buffers larger than L2. Several threads run the same loop
concurrently, and their rates are added. The best of a few repetitions counts.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...codegen.emit.llvm.template import render
from ...codegen.runtime import jit
from ...codegen.targets.cpu import toolchain as cpu
from ...ir.dtypes import f32
from ...ir.target import Target
from .lock import MachineLock

CHAINS = 16  # independent accumulators: more than latency times ports on any current CPU
TURNS = 800_000  # of the FMA loop, per call
REPEATS = 7
QUICK = 3  # repetitions if the rate is only needed as a bound
LEAST = 0.02  # seconds per repetition
COPIED = 64 << 20  # bytes each thread copies, at most; at least four times L2


@dataclass(frozen=True, slots=True)
class Peak:
    """FLOP per second in f32, and bytes per second read plus written, with ``threads`` threads.

    A ``nominal`` rate of operations is from a data sheet; everything else is measured.
    """

    threads: int
    flops: float
    bandwidth: float
    nominal: bool = False

    @property
    def origin(self) -> str:
        """The origin of the figures, in words."""
        return "copy measured, rate nominal" if self.nominal else "both measured"


def processor_peak(target: Target) -> Peak:
    """Measure the peaks of this machine's processor with the target's threads; about a second."""
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


def processor_rate(target: Target) -> float:
    """Measure the most f32 operations per second with the target's threads.

    A fraction of a second.
    """
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


def _rate(call: Callable[[int], object], threads: int, repeats: int = REPEATS) -> float:
    """Return the calls per second of all threads, the best of some repetitions.

    Each thread's rate is by its own CPU time, which excludes time taken by other processes.
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
