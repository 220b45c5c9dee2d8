"""Candidates on a GPU: buffers in its memory, runs recorded as graphs, timing by events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.driver.kernel import compile_object
from ...codegen.plan.code.device import DeviceCode
from ...codegen.plan.function import CompiledFunc
from ...codegen.runtime.cuda.device import Device as Gpu
from ...codegen.runtime.cuda.device import device
from ...codegen.runtime.cuda.driver import driver
from ...codegen.runtime.cuda.kernels import load
from ...codegen.runtime.cuda.memory import DeviceMemory
from ...codegen.runtime.cuda.recording import LaunchOp, launch_op, record, submit
from ...codegen.runtime.cuda.staging import Staging
from ...codegen.runtime.packing import packers
from ...ir.arrays import Array
from ...ir.dtypes import to_numpy
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..log.records import Json
from ..tasks.programs import Program
from .candidates import Rejected
from .guarded_buffers import same_bytes
from .host.peak import REPEATS, Peak
from .machine import CheckedRun, Meter, copies
from .protocol import Outcome
from .timing import SAMPLE, Clock, Regain, at_pace

COPIES = 16  # most sets of buffers that timing rotates through
BATCH = 16  # runs in one graph: a launch from Python takes as long as a small kernel
SPILLED = 256  # bytes of register spills that a thread may have
MARGIN = 1 << 12  # bytes watched on either side of each buffer of a checked run


@dataclass(frozen=True, slots=True)
class Watched:
    """``size`` bytes in the middle of memory, with a margin on either side."""

    memory: DeviceMemory
    size: int

    @property
    def address(self) -> int:
        """The address of the first byte."""
        return self.memory.address + MARGIN


class GpuMachine:
    """A program's buffers in a GPU's memory; kernels run from this process."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Array],
        target: Target,
        reuse: Sequence[float] = (),
    ) -> None:
        """``reuse`` does not count here: nothing that a model used before is left in the caches."""
        self.target = target
        self.gpu = device()
        self.clock: Clock = EventClock(self.gpu)
        self.sample = SAMPLE
        self.staging = Staging(self.gpu)
        self.program = program
        self.arguments = [np.ascontiguousarray(a) for a in arguments]
        params = program.func.params
        sizes = [_bytes(b) for b in params]
        count = copies(sum(sizes), 4 * max(self.gpu.l2, target.l2), COPIES)
        with self.gpu:
            self.sets = [[self.gpu.allocate(n) for n in sizes] for _ in range(count)]
            for memories in self.sets:
                for memory, value in zip(memories, self.arguments, strict=False):
                    self.staging.upload(value, memory.address)
            self.guarded = [Watched(self.gpu.allocate(n + 2 * MARGIN), n) for n in sizes]

    def fill(self, memory: DeviceMemory, pattern: int) -> None:
        """Fill memory with a byte."""
        gpu, size = self.gpu, max(1, memory.bytes)
        gpu.driver.call("cuMemsetD8Async", memory.address, pattern, size, gpu.stream)

    def fetch(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Copy an array from the GPU's memory."""
        found = np.empty(shape, dtype)
        self.staging.download(address, found)
        return found

    def compile(self, func: Func) -> DeviceRun:
        """Compile and load a schedule of the program's function.

        Raises ``Rejected`` for code with many register spills, which is not worth timing.
        """
        compiled = compile_object(func, self.target)
        code = _device_code(compiled)
        spills = max(code.spills, default=0)
        if spills > SPILLED:
            note = f"ptxas keeps {spills} bytes of each thread in memory because registers ran out"
            raise Rejected(Outcome("build", note=note, facts=facts(code)))
        return DeviceRun(self, compiled)

    def library(self, name: str) -> DeviceRun:
        """Reject a library function: those run in the process."""
        raise Rejected(Outcome("invalid", note=f"library function {name}: not on a GPU"))

    def alone(self) -> AbstractContextManager[None]:
        """Return an empty context: the host needs no preparation."""
        return nullcontext()

    def regain(self, least: float) -> bool:
        """Return at once: a GPU's clock is left to the yardstick."""
        return at_pace(least)


class DeviceRun:
    """Kernels bound to sets of buffers."""

    def __init__(self, machine: GpuMachine, compiled: CompiledFunc) -> None:
        code = _device_code(compiled)
        self.facts: Mapping[str, Json] = facts(code)
        self._machine = machine
        self._gpu = gpu = machine.gpu
        size = compiled.workspace
        self._work = Watched(gpu.allocate(size + 2 * MARGIN), size) if size else None
        self._packers = packers(compiled.packs)
        given = machine.arguments
        self._packed = {i: self._upload(p.pack(given[i])) for i, p in self._packers.items()}
        with gpu:
            self._kernels = load(code, machine.target.gpu.sm, gpu)
        self._runs = [
            self._ops([self._packed.get(i, m).address for i, m in enumerate(memories)])
            for memories in machine.sets
        ]
        self._graph: Any = None
        self._turn = 0

    def _upload(self, made: Array) -> DeviceMemory:
        """Copy a packed constant to its own memory on the GPU."""
        memory = self._gpu.allocate(made.size)
        with self._gpu:
            self._machine.staging.upload(made, memory.address)
        return memory

    def _ops(self, addresses: Sequence[int]) -> list[LaunchOp]:
        places = list(addresses)
        if self._work is not None:
            places.append(self._work.address)
        return [launch_op(kernel, places, "") for kernel in self._kernels]

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> CheckedRun:
        """Run once in buffers with watched margins on either side."""
        machine, gpu = self._machine, self._gpu
        given = [np.ascontiguousarray(a) for a in arguments]
        packed = {i: p.pack(given[i]) for i, p in self._packers.items()}
        cells = machine.guarded
        with gpu:
            for cell in (*cells, *([self._work] if self._work else [])):
                machine.fill(cell.memory, pattern)
            for cell, value in zip(cells, given, strict=False):
                machine.staging.upload(value, cell.address)
            held = {i: self._upload(made) for i, made in packed.items()}
            ops = self._ops([held.get(i, cell).address for i, cell in enumerate(cells)])
            for op in ops:
                submit(gpu, op, gpu.stream, "a candidate")
            gpu.synchronize("a candidate", str(ops[0]))
            addresses = [cell.address for cell in cells]
            damage = self._overwritten(addresses, given)
            for i, made in packed.items():
                if not same_bytes(machine.fetch(held[i].address, made.shape, made.dtype), made):
                    damage = damage or f"it overwrites the packed constant {i}"
            return CheckedRun(self._results(addresses), damage or self._beside(pattern))

    def again(self, pattern: int) -> CheckedRun:
        """Run once more on the first of the sets that timing rotates through."""
        machine, gpu = self._machine, self._gpu
        memories = machine.sets[0]
        with gpu:
            for memory in memories[len(machine.arguments) :]:
                machine.fill(memory, pattern)
            self._submit(0)
            gpu.synchronize("a candidate", str(self._runs[0][0]))
            addresses = [m.address for m in memories]
            return CheckedRun(
                self._results(addresses), self._overwritten(addresses, machine.arguments)
            )

    def _results(self, addresses: Sequence[int]) -> list[Array]:
        wanted = self._machine.program.outputs
        return [
            self._machine.fetch(address, b.shape, to_numpy(b.dtype))
            for address, b in zip(addresses[-len(wanted) :], wanted, strict=True)
        ]

    def _overwritten(self, addresses: Sequence[int], given: Sequence[Array]) -> str:
        for n, (address, value) in enumerate(zip(addresses, given, strict=False)):
            if not same_bytes(self._machine.fetch(address, value.shape, value.dtype), value):
                return f"it overwrites input {n}"
        return ""

    def _beside(self, pattern: int) -> str:
        """Return a description of writes into the margins; "" if there are none."""
        for n, cell in enumerate(self._machine.guarded):
            if not self._intact(cell, pattern):
                return f"it writes outside parameter {n}"
        work = self._work
        return (
            "" if work is None or self._intact(work, pattern) else "it writes outside its workspace"
        )

    def _intact(self, cell: Watched, pattern: int) -> bool:
        starts = cell.address - MARGIN, cell.address + cell.size
        zones = (self._machine.fetch(a, (MARGIN,), np.dtype(np.uint8)) for a in starts)
        return not any(bool((zone != pattern).any()) for zone in zones)

    def call(self, times: int) -> None:
        """Submit ``times`` runs, rotating through the sets of buffers."""
        gpu = self._gpu
        batches, rest = divmod(times, BATCH)
        with gpu:
            if batches and self._graph is None:
                turns = [op for n in range(BATCH) for op in self._runs[n % len(self._runs)]]
                self._graph = record(gpu, [turns], "a candidate")
            for _ in range(batches):
                gpu.driver.call("cuGraphLaunch", self._graph.handle, gpu.stream)
            for _ in range(rest):
                self._submit(self._turn)
                self._turn = (self._turn + 1) % len(self._runs)

    def _submit(self, number: int) -> None:
        for op in self._runs[number]:
            submit(self._gpu, op, self._gpu.stream, "a candidate")


class EventClock:
    """A clock of the GPU: reads the time when all work submitted so far is done."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._total = 0.0
        self._last: Any = None

    def __call__(self) -> float:
        """Synchronize and return the time; only differences, measured by events, are meaningful."""
        gpu, call = self._gpu, self._gpu.driver.call
        with gpu:
            event = gpu.event()
            call("cuEventRecord", event, gpu.stream)
            gpu.synchronize("a candidate")
            if self._last is not None:
                self._total += float(call("cuEventElapsedTime", self._last, event)) * 1e-3
                call("cuEventDestroy", self._last)
            self._last = event
        return self._total


def _event_clock(target: Target) -> Clock:
    return EventClock(device())


def _nothing_to_arrange(target: Target) -> AbstractContextManager[None]:
    return nullcontext()


def _as_it_is(target: Target) -> Regain:
    """Return what never waits."""
    return at_pace


def _peak(target: Target) -> Peak:
    """Return the rate of operations by the data sheet, the bandwidth of a copy in the GPU's
    memory.
    """
    return Peak(1, target.gpu.f32_flops, _copies(), nominal=True)


def _no_rate(target: Target) -> float:
    """Tensor cores and clocks leave no one figure."""
    return 0.0


def _copies() -> float:
    """Bytes per second read plus written by the driver's own copy."""
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


def _kind(target: Target) -> str:
    """Return the GPU's name, which the driver tells without a context on it."""
    api = driver()
    name = api.call("cuDeviceGetName", 128, api.call("cuDeviceGet", 0))
    return f"{target.key} {name.split(bytes(1))[0].decode(errors='replace')}"


METER = Meter(
    GpuMachine, _event_clock, _nothing_to_arrange, _as_it_is, _peak, _no_rate, _no_rate, _kind
)


def _device_code(compiled: CompiledFunc) -> DeviceCode:
    assert isinstance(compiled.code, DeviceCode)
    return compiled.code


def facts(code: DeviceCode) -> dict[str, Json]:
    """Return ptxas's facts about the kernels, launch by launch."""
    shared: list[Json] = [launch.shared_bytes for launch in code.launches]
    threads: list[Json] = [math.prod(launch.block) for launch in code.launches]
    told: dict[str, Json] = {"registers": list(code.registers), "spills": list(code.spills)}
    return told | {"shared": shared, "threads": threads}


def _bytes(b: Buffer) -> int:
    return math.prod(b.shape) * b.dtype.bytes
