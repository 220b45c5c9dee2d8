"""Candidates on this processor: aligned buffers, more of them than the caches hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...codegen.kernel import Kernel, compile_func
from ...ir.dtypes import to_numpy
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..programs import Program
from ..records import Json
from .cage import Cage, same_bytes
from .machine import Array, Trial, copies
from .timing import Clock, clock_for

ALIGNMENT = 64  # bytes
COPIES = 32  # most sets of buffers that timing rotates through


class Processor:
    """A program's buffers in memory. Kernels run in this process."""

    def __init__(self, program: Program, arguments: Sequence[Array], target: Target) -> None:
        self.target = target
        self.clock: Clock = clock_for(target.threads)
        self.outputs = len(program.outputs)
        self.arguments = [np.ascontiguousarray(a) for a in arguments]
        self.sets = _rotation(program, arguments, target)
        self.cage = Cage(program.func.params, target)

    def compile(self, func: Func) -> NativeRun:
        """Compile and load a schedule of the program's function."""
        return NativeRun(compile_func(func, self.target), self)


class NativeRun:
    """A kernel bound to its buffers; it holds the memory behind the bare addresses."""

    facts: Mapping[str, Json] = {}

    def __init__(self, kernel: Kernel, machine: Processor) -> None:
        self.kernel = kernel
        self._machine = machine
        size = kernel.compiled.workspace
        work = aligned(size, (size,), np.dtype(np.uint8))
        extra = [work.ctypes.data] if size else []
        self._bound = [kernel.bind(_pointers(s)) for s in machine.sets]
        self._sets = [(*pointers, *extra) for pointers, _ in self._bound]
        self._work = work

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> Trial:
        """One run between guard pages."""
        return self._machine.cage.run(self.kernel, arguments, pattern, upper)

    def again(self, pattern: int) -> Trial:
        """One more run in the first of the sets that timing rotates through."""
        buffers, given = self._machine.sets[0], self._machine.arguments
        outputs = buffers[len(given) :]
        for out in outputs:
            out.reshape(-1).view(np.uint8).fill(pattern)
        self.kernel.execute(self._bound[0][0], self._work.ctypes.data)
        pairs = zip(buffers, given, strict=False)
        spoiled = [n for n, (b, a) in enumerate(pairs) if not same_bytes(b, a)]
        return Trial(outputs, f"it overwrites input {spoiled[0]}" if spoiled else "")

    def call(self, times: int) -> None:
        """Run so many times, on one set of buffers after the other."""
        entry, sets = self.kernel.entry, self._sets
        for n in range(times):
            entry(*sets[n % len(sets)])


def aligned(size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A zeroed array of ``size`` bytes that starts at a multiple of ``ALIGNMENT``."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _buffer(b: Buffer) -> Array:
    return aligned(math.prod(b.shape) * b.dtype.bytes, b.shape, to_numpy(b.dtype))


def _rotation(program: Program, arguments: Sequence[Array], target: Target) -> list[list[Array]]:
    """Aligned sets of all parameters, enough of them that a set has left L2 when its turn comes."""
    size = sum(math.prod(b.shape) * b.dtype.bytes for b in program.func.params)
    caches = 8 * target.l2 * target.threads  # every thread has one of its own
    # What is this small is hot in the model too: its producer just ran.
    count = 1 if size < target.l1 else copies(size, caches, COPIES)
    sets = []
    for _ in range(count):
        buffers = [_buffer(b) for b in program.func.params]
        for buffer, value in zip(buffers, arguments, strict=False):
            buffer[...] = value
        sets.append(buffers)
    return sets


def _pointers(buffers: Sequence[Array]) -> list[int]:
    return [b.ctypes.data for b in buffers]
