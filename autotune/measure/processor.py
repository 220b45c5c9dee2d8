"""Candidates on this CPU: aligned buffers, and calls that find the caches as in the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from ...codegen.driver.kernel import compile_object
from ...codegen.plan.nodes import ALIGNMENT
from ...codegen.runtime.function import NativeFunc
from ...codegen.targets.registry import load_function
from ...ir.arrays import HUGE, Array, aligned_zeros, alignment_of
from ...ir.dtypes import to_numpy
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import HERE, Target
from ..log.records import Json
from ..tasks.programs import Program
from .guarded_buffers import GuardedBuffers, same_bytes
from .host.pace import pace_of
from .host.peak import processor_peak, processor_rate, processor_stream
from .host.placement import placed
from .library import LibraryRun, library_call
from .machine import CheckedRun, Meter
from .memory.cache_state import CacheState, passing, room_for
from .memory.poison import poisoned
from .timing import SAMPLE, Clock, Regain, clock_for


class CpuMachine:
    """A program's buffers in memory; kernels run in this process."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Array],
        target: Target,
        reuse: Sequence[float] = (),
    ) -> None:
        """``reuse`` are reuse distances as of ``tasks.reuse``."""
        self.target = target
        self.program = program
        self.outputs = len(program.outputs)
        self.arguments = [np.ascontiguousarray(a) for a in arguments]
        self.buffers = _buffers(program.func.params, max(reuse, default=0.0))
        for buffer, given in zip(self.buffers, self.arguments, strict=False):
            buffer[...] = given
        self.steps = passing([b.nbytes for b in self.buffers], len(arguments), reuse, target)
        self.room = room_for(self.steps)
        self.clock: Clock = self._read if self.steps else clock_for(target.threads)
        self.sample = 0.0 if self.steps else SAMPLE
        self.spent = 0.0
        self.guarded = GuardedBuffers(program.func.params, target)

    def compile(self, func: Func) -> NativeRun:
        """Compile and load a schedule of the program's function."""
        kernel = load_function(compile_object(func, self.target))
        assert isinstance(kernel, NativeFunc)
        return NativeRun(kernel, poisoned(kernel), self)

    def library(self, name: str) -> LibraryRun:
        """Return a library function on the program's buffers."""
        call = library_call(self.program, name)
        return LibraryRun(call, self.buffers, self.steps, self.room, self.target, self.spend)

    def spend(self, seconds: float) -> None:
        """Add the time of a call that was timed alone to the clock."""
        self.spent += seconds

    def _read(self) -> float:
        """Return the seconds spent in calls so far, without what prepared the caches for them."""
        return self.spent

    def alone(self) -> AbstractContextManager[None]:
        """Return a context that pins threads to cores while code is timed."""
        return placed(self.target.threads)

    def regain(self, least: float) -> bool:
        """Wait until the cores run at their usual pace, as a ``Regain`` does."""
        return _regain(self.target)(least)


class NativeRun:
    """A kernel bound to its buffers, which keeps the memory behind raw addresses alive."""

    facts: Mapping[str, Json] = {}

    def __init__(self, kernel: NativeFunc, tried: NativeFunc, machine: CpuMachine) -> None:
        """``tried`` is the same code, instrumented for checked runs."""
        self.kernel, self._tried = kernel, tried
        self._machine = machine
        size = kernel.compiled.workspace
        work = aligned(size, (size,), np.dtype(np.uint8))
        self._bound, packed = kernel.bind(_pointers(machine.buffers))
        self._given = (*self._bound, *([work.ctypes.data] if size else []))
        self._work = work
        self._packed = packed
        steps, target = machine.steps, machine.target
        self._cache_state = CacheState(steps, machine.room, self._bound, target) if steps else None
        self._address = kernel.library.address(kernel.compiled.name)

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> CheckedRun:
        """Run once between guard pages, on stacks that are filled with a pattern."""
        return self._machine.guarded.run(self._tried, arguments, pattern, upper)

    def again(self, pattern: int) -> CheckedRun:
        """Run once more on the buffers that timing uses."""
        buffers, given = self._machine.buffers, self._machine.arguments
        outputs = buffers[len(given) :]
        for out in outputs:
            out.reshape(-1).view(np.uint8).fill(pattern)
        self.kernel.execute(self._bound, self._work.ctypes.data)
        pairs = zip(buffers, given, strict=False)
        spoiled = [n for n, (b, a) in enumerate(pairs) if not same_bytes(b, a)]
        return CheckedRun(outputs, f"it overwrites input {spoiled[0]}" if spoiled else "")

    def call(self, times: int) -> None:
        """Run ``times`` times, each on caches as in the model."""
        entry, given, state = self.kernel.entry, self._given, self._cache_state
        for _ in range(times):
            if state is None:
                entry(*given)
            else:
                self._machine.spend(state.seconds(self._address, given))


def aligned(size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a zeroed array of ``size`` bytes, aligned to ``ALIGNMENT``."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _buffers(params: Sequence[Buffer], run: float) -> list[Array]:
    """Return zeroed buffers for parameters, in one piece of memory as in an executable.

    It is in huge pages if that of a model which moves ``run`` bytes is.
    """
    sizes = [math.prod(b.shape) * b.dtype.bytes for b in params]
    starts, end = [], 0
    for n in sizes:
        step = alignment_of(n)
        starts.append(-(-end // step) * step)
        end = starts[-1] + n
    memory = aligned_zeros(max(end, HUGE if run >= HUGE else 0))
    parts = zip(params, starts, sizes, strict=True)
    return [memory[at : at + n].view(to_numpy(b.dtype)).reshape(b.shape) for b, at, n in parts]


def _pointers(buffers: Sequence[Array]) -> list[int]:
    return [b.ctypes.data for b in buffers]


def _clock(target: Target) -> Clock:
    return clock_for(target.threads)


def _placed(target: Target) -> AbstractContextManager[None]:
    return placed(target.threads)


@cache
def _regain(target: Target) -> Regain:
    return pace_of(target, clock_for(target.threads)).regain


def _kind(target: Target) -> str:
    here = Target.parse(HERE)
    caches = "+".join(f"{size >> 10}K" for size in (here.l1, here.l2, here.l3))
    return f"{here.key} {caches}"


METER = Meter(
    CpuMachine, _clock, _placed, _regain, processor_peak, processor_rate, processor_stream, _kind
)
