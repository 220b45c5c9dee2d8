"""Candidates on a GPU: sets of buffers in its memory, runs recorded as graphs, time by events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...codegen.code import DeviceCode
from ...codegen.device_kernel import CompiledDevice, compile_device
from ...codegen.packing import packers
from ...codegen.runtime.cuda.device import Device as Gpu
from ...codegen.runtime.cuda.device import Memory, device
from ...codegen.runtime.cuda.kernels import Kernel, load
from ...codegen.runtime.cuda.recording import LaunchOp, launch_op, record, submit
from ...codegen.runtime.cuda.staging import Staging
from ...codegen.sequence import Packer
from ...ir.dtypes import to_numpy
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..programs import Program
from ..records import Json
from .candidates import Rejected
from .machine import Array, copies
from .protocol import Outcome
from .timing import Clock

COPIES = 16  # most sets of buffers that timing rotates through
BATCH = 16  # runs in one graph: a launch from Python takes as long as a small kernel
SPILLED = 256  # bytes that a thread may keep in memory for lack of registers
UNWRITTEN = 0xA5


class Device:
    """A program's buffers in a GPU's memory. Kernels of this process run there."""

    def __init__(self, program: Program, arguments: Sequence[Array], target: Target) -> None:
        self.target = target
        self.gpu = device()
        self.clock: Clock = EventClock(self.gpu)
        self.staging = Staging(self.gpu)
        self.outputs = program.outputs
        self.arguments = [np.ascontiguousarray(a) for a in arguments]
        params = program.func.params
        sizes = [_bytes(b) for b in params]
        count = copies(sum(sizes), 4 * max(self.gpu.l2, target.l2), COPIES)
        with self.gpu:
            self.sets = [[self.gpu.allocate(n) for n in sizes] for _ in range(count)]
            for memories in self.sets:
                for memory, value in zip(memories, self.arguments, strict=False):
                    self.staging.upload(value, memory.address)

    def compile(self, func: Func) -> DeviceRun:
        """Compile and load a schedule of the program's function.

        ``Rejected`` for code that ptxas could not keep in registers: it need not be timed.
        """
        compiled = compile_device(func, self.target)
        code = compiled.code
        spills = max(code.spills, default=0)
        if spills > SPILLED:
            note = f"ptxas keeps {spills} bytes of each thread in memory for lack of registers"
            raise Rejected(Outcome("build", note=note, facts=facts(code)))
        return DeviceRun(self, compiled)


class DeviceRun:
    """Kernels bound to sets of buffers."""

    def __init__(self, machine: Device, compiled: CompiledDevice) -> None:
        self.facts: Mapping[str, Json] = facts(compiled.code)
        self._machine = machine
        self._gpu = gpu = machine.gpu
        self._work = gpu.allocate(compiled.workspace) if compiled.workspace else None
        self._packed = {i: self._upload(pack, i) for i, pack in packers(compiled.packs).items()}
        with gpu:
            kernels = load(compiled.code, machine.target.gpu.sm, gpu)
        self._runs = [self._ops(kernels, memories) for memories in machine.sets]
        self._graph: Any = None
        self._turn = 0

    def _upload(self, pack: Packer, index: int) -> Memory:
        """An argument as the kernel takes it, in memory of its own: constants are packed ahead."""
        made = pack(self._machine.arguments[index])
        memory = self._gpu.allocate(made.size)
        with self._gpu:
            self._machine.staging.upload(made, memory.address)
        return memory

    def _ops(self, kernels: tuple[Kernel, ...], memories: Sequence[Memory]) -> list[LaunchOp]:
        places = [self._packed.get(i, m).address for i, m in enumerate(memories)]
        if self._work is not None:
            places.append(self._work.address)
        return [launch_op(kernel, places, "") for kernel in kernels]

    def results(self) -> Sequence[Array]:
        """Every output of one run, of which nothing is left from before."""
        gpu, wanted = self._gpu, self._machine.outputs
        memories = self._machine.sets[0][-len(wanted) :]
        found = [np.empty(b.shape, to_numpy(b.dtype)) for b in wanted]
        with gpu:
            for memory in memories:  # so that an element never written shows
                size = max(1, memory.bytes)
                gpu.driver.call("cuMemsetD8Async", memory.address, UNWRITTEN, size, gpu.stream)
            self._submit(0)
            gpu.synchronize("a candidate", str(self._runs[0][0]))
            for memory, array in zip(memories, found, strict=True):
                self._machine.staging.download(memory.address, array)
        return found

    def call(self, times: int) -> None:
        """Submit so many runs, on one set of buffers after the other."""
        gpu = self._gpu
        batches, rest = divmod(times, BATCH)
        with gpu:
            if batches and self._graph is None:
                turns = [op for n in range(BATCH) for op in self._runs[n % len(self._runs)]]
                self._graph = record(gpu, turns, "a candidate")
            for _ in range(batches):
                gpu.driver.call("cuGraphLaunch", self._graph.handle, gpu.stream)
            for _ in range(rest):
                self._submit(self._turn)
                self._turn = (self._turn + 1) % len(self._runs)

    def _submit(self, number: int) -> None:
        for op in self._runs[number]:
            submit(self._gpu, op, self._gpu.stream, "a candidate")


class EventClock:
    """Seconds on the GPU's own time line: when all that was submitted so far is done."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._total = 0.0
        self._last: Any = None

    def __call__(self) -> float:
        """Wait, and tell the time. Differences count, and are by the events' clock."""
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


def facts(code: DeviceCode) -> dict[str, Json]:
    """What ptxas says of the kernels, launch by launch."""
    shared: list[Json] = [launch.shared_bytes for launch in code.launches]
    threads: list[Json] = [math.prod(launch.block) for launch in code.launches]
    told: dict[str, Json] = {"registers": list(code.registers), "spills": list(code.spills)}
    return told | {"shared": shared, "threads": threads}


def _bytes(b: Buffer) -> int:
    return math.prod(b.shape) * b.dtype.bytes
