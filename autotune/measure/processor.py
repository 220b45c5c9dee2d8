"""Candidates on this CPU: aligned buffers in rotation, so that caches are as in the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...codegen.driver.kernel import compile_object
from ...codegen.runtime.native import NativeFunc
from ...codegen.targets.registry import load_function
from ...ir.dtypes import to_numpy
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..log.records import Json
from ..tasks.programs import Program
from .cage import Cage, same_bytes
from .machine import Array, CheckedRun, Meter, copies
from .peak import processor_peak, processor_rate
from .placement import placed
from .stain import stained
from .timing import Clock, clock_for

ALIGNMENT = 64  # bytes
COPIES = 256  # most sets of buffers that timing rotates through
ROTATED = 128 << 20  # bytes of all sets at most, unless a single set is larger


class CpuMachine:
    """A program's buffers in memory; kernels run in this process."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Array],
        target: Target,
        reach: Sequence[float] = (),
    ) -> None:
        """``reach`` is the reuse distance of each input in bytes."""
        self.target = target
        self.clock: Clock = clock_for(target.threads)
        self.outputs = len(program.outputs)
        self.arguments = [np.ascontiguousarray(a) for a in arguments]
        self.sets = _rotation(program, arguments, target, reach)
        self.cage = Cage(program.func.params, target)

    def compile(self, func: Func) -> NativeRun:
        """Compile and load a schedule of the program's function."""
        kernel = load_function(compile_object(func, self.target))
        assert isinstance(kernel, NativeFunc)
        return NativeRun(kernel, stained(kernel), self)

    def alone(self) -> AbstractContextManager[None]:
        """Return a context that pins threads to cores while code is timed."""
        return placed(self.target.threads)


class NativeRun:
    """A kernel bound to its buffers, which keeps the memory behind raw addresses alive."""

    facts: Mapping[str, Json] = {}

    def __init__(self, kernel: NativeFunc, tried: NativeFunc, machine: CpuMachine) -> None:
        """``tried`` is the same code, instrumented for checked runs."""
        self.kernel, self._tried = kernel, tried
        self._machine = machine
        size = kernel.compiled.workspace
        work = aligned(size, (size,), np.dtype(np.uint8))
        extra = [work.ctypes.data] if size else []
        sets = machine.sets
        self._bound, packed = kernel.bind(_pointers(sets[0]))
        self._sets = [(*self._bound, *extra)]
        self._work = work
        self._held: list[Any] = [packed]
        for buffers in sets[1:]:
            copies = [_copy(p) for p in packed]  # all sets hold the same values
            places = _pointers(buffers)
            for index, copy in zip(kernel.packs, copies, strict=True):
                places[index] = copy.ctypes.data
            self._sets.append((*places, *extra))
            self._held.append(copies)

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> CheckedRun:
        """Run once between guard pages, on stacks that are filled with a pattern."""
        return self._machine.cage.run(self._tried, arguments, pattern, upper)

    def again(self, pattern: int) -> CheckedRun:
        """Run once more on the first of the sets that timing rotates through."""
        buffers, given = self._machine.sets[0], self._machine.arguments
        outputs = buffers[len(given) :]
        for out in outputs:
            out.reshape(-1).view(np.uint8).fill(pattern)
        self.kernel.execute(self._bound, self._work.ctypes.data)
        pairs = zip(buffers, given, strict=False)
        spoiled = [n for n, (b, a) in enumerate(pairs) if not same_bytes(b, a)]
        return CheckedRun(outputs, f"it overwrites input {spoiled[0]}" if spoiled else "")

    def call(self, times: int) -> None:
        """Run ``times`` times, rotating through the sets of buffers."""
        entry, sets = self.kernel.entry, self._sets
        for n in range(times):
            entry(*sets[n % len(sets)])


def aligned(size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a zeroed array of ``size`` bytes, aligned to ``ALIGNMENT``."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _buffer(b: Buffer) -> Array:
    return aligned(math.prod(b.shape) * b.dtype.bytes, b.shape, to_numpy(b.dtype))


def _copy(data: Array) -> Array:
    made = aligned(data.nbytes, data.shape, data.dtype)
    made[...] = data
    return made


def _rotation(
    program: Program, arguments: Sequence[Array], target: Target, reach: Sequence[float]
) -> list[list[Array]]:
    """Return sets of aligned buffers for all parameters, through which timing rotates.

    Each input has as many copies as give it the reuse distance that it has in the model. Results
    have one, since an arena keeps them hot.
    """
    params = program.func.params
    sizes = [math.prod(b.shape) * b.dtype.bytes for b in params]
    counts = _counts(sizes, len(arguments), target, reach)
    lanes = []
    for number, (b, count) in enumerate(zip(params, counts, strict=True)):
        lane = [_buffer(b) for _ in range(count)]
        for buffer in lane if number < len(arguments) else ():
            buffer[...] = arguments[number]
        lanes.append(lane)
    return [[lane[n % len(lane)] for lane in lanes] for n in range(max(counts, default=1))]


def _counts(sizes: Sequence[int], inputs: int, target: Target, reach: Sequence[float]) -> list[int]:
    """Return the number of copies of each buffer."""
    total = max(1, sum(sizes))
    if len(reach) == inputs:
        wanted = [copies(total, int(r), COPIES) for r in reach] + [1] * (len(sizes) - inputs)
    else:  # without a model: small data is hot, other data is evicted from L2
        caches = 8 * target.l2 * target.threads  # each thread has its own L2
        wanted = [1 if total < target.l1 else copies(total, caches, COPIES)] * len(sizes)
    room = max(1.0, sum(n * s for n, s in zip(wanted, sizes, strict=True)) / ROTATED)
    return [max(1, int(n / room)) for n in wanted]


def _pointers(buffers: Sequence[Array]) -> list[int]:
    return [b.ctypes.data for b in buffers]


def _clock(target: Target) -> Clock:
    return clock_for(target.threads)


def _placed(target: Target) -> AbstractContextManager[None]:
    return placed(target.threads)


METER = Meter(CpuMachine, _clock, _placed, processor_peak, processor_rate)
