"""Straight-line segments of kernels and copies: submitted one by one, then replayed as CUDA graphs.

The operations of a segment depend on the addresses of the arguments and results. The first time
that a segment meets a set of addresses its operations are made and submitted; the second time they
are recorded as a graph, which is launched as a whole from then on; in it, operations that need
nothing of each other are side by side. Where recording fails, as it does when another library
meanwhile makes a call that recording forbids, the operations are submitted one by one.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias
from warnings import warn

import numpy as np

from ....ir.errors import NestwrightWarning, OutOfMemoryError, UnsupportedError
from ...plan.nodes import BufferSlice, CopyThunk, KernelThunk
from .branches import ANYTHING, START, Accesses, branches, needs, streams_asked
from .device import SYNC, Device
from .driver import DriverError
from .early import submit_early
from .kernels import DeviceFunction
from .steps import Segment
from .tensor_maps import MAP_BYTES, encoded

KEPT = 8  # sets of addresses per run
ATTEMPTS = 3  # to record a run, of which each may fail for what others do


@dataclass(frozen=True, slots=True)
class Places:
    """The device addresses of a call's memories."""

    params: list[int]
    results: list[int]
    arena: int
    constants: int

    def address(self, s: BufferSlice) -> int:
        """Return the address of a slice of the plan."""
        match s.memory:
            case "param":
                return self.params[s.index] + s.offset
            case "result":
                return self.results[s.index] + s.offset
            case "arena":
                return self.arena + s.offset
            case _:
                return self.constants + s.offset


@dataclass(frozen=True, slots=True, eq=False)
class LaunchOp:
    """A kernel with its arguments: ``words`` are their addresses, ``pointers`` those of
    the words and of the tensor ``maps``. ``accesses`` is the memory that it may access.
    """

    kernel: DeviceFunction
    words: np.ndarray[Any, np.dtype[np.uint64]]
    pointers: np.ndarray[Any, np.dtype[np.uint64]]
    name: str
    accesses: Accesses = ANYTHING
    maps: np.ndarray[Any, np.dtype[np.uint8]] | None = None

    def submit(self, device: Device, stream: Any, behind_launch: bool = False) -> None:
        """Submit the launch to a stream; it may begin early if nothing but a launch is before."""
        launch = self.kernel.launch
        if launch.overlaps and behind_launch:
            submit_early(device.driver, self.kernel, stream, int(self.pointers.ctypes.data))
            return
        device.driver.call(
            "cuLaunchKernel",
            self.kernel.function,
            *self.kernel.grid,
            *launch.block,
            launch.shared_bytes,
            stream,
            int(self.pointers.ctypes.data),
            0,
        )

    def __str__(self) -> str:
        of = f" of group {self.name}" if self.name else ""
        return f"kernel {self.kernel.launch.symbol}{of}"


@dataclass(frozen=True, slots=True, eq=False)
class CopyOp:
    """A copy on the device, or to the host if ``function`` says so."""

    function: str
    target: int
    source: int
    bytes: int
    name: str

    @property
    def accesses(self) -> Accesses:
        """The memory that it accesses."""
        read, written = (self.source, self.target)
        return Accesses(((read, read + self.bytes),), ((written, written + self.bytes),))

    def submit(self, device: Device, stream: Any, behind_launch: bool = False) -> None:
        """Submit the copy to a stream."""
        device.driver.call(self.function, self.target, self.source, self.bytes, stream)

    def __str__(self) -> str:
        return f"copy {self.name}".rstrip()


Op: TypeAlias = LaunchOp | CopyOp


def launch_op(
    kernel: DeviceFunction,
    addresses: Sequence[int],
    name: str,
    accesses: Accesses = ANYTHING,
) -> LaunchOp:
    """Return a launch on arguments at these addresses; each is one pointer to the kernel."""
    words = np.array(addresses or [0], np.uint64)
    first = int(words.ctypes.data)
    pointers = np.arange(first, first + words.nbytes, words.itemsize, dtype=np.uint64)
    if not kernel.launch.maps:
        return LaunchOp(kernel, words, pointers, name, accesses)
    maps = encoded(kernel.module.device.driver, kernel.launch.maps, addresses)
    start = int(maps.ctypes.data)
    values = np.arange(start, start + maps.nbytes, MAP_BYTES, dtype=np.uint64)
    return LaunchOp(kernel, words, np.concatenate([pointers, values]), name, accesses, maps)


def operations(
    run: Segment, kernels: Mapping[str, tuple[DeviceFunction, ...]], places: Places, decision: int
) -> list[Op]:
    """Return a segment's operations; its decision goes to host address ``decision``.

    Launches of one kernel keep their order, as it may have memory of its own.
    """
    found: list[Op] = []
    numbers = {symbol: n for n, symbol in enumerate(kernels)}
    address = places.address
    for thunk in run.thunks:
        match thunk:
            case KernelThunk(symbol=symbol, args=args, name=name):
                words = [address(s) for s in args]
                spans = [(at, at + s.bytes) for at, s in zip(words, args, strict=True)]
                cut = len(args) - thunk.outputs
                own = -1 - numbers[symbol], -numbers[symbol]  # counters, which no address tells of
                used = Accesses(tuple(spans[:cut]), (own, *spans[cut:]))
                found += [launch_op(kernel, words, name, used) for kernel in kernels[symbol]]
            case CopyThunk(source=source, target=target, name=name) if source.bytes:
                to, start = address(target), address(source)
                if to != start:  # an argument that is updated in place is there already
                    found.append(CopyOp("cuMemcpyDtoDAsync", to, start, source.bytes, name))
    if run.decision is not None:
        place = address(run.decision)
        size = run.decision.bytes
        found.append(CopyOp("cuMemcpyDtoHAsync", decision, place, size, "decision"))
    return found


@dataclass(slots=True)
class _Prepared:
    ops: list[Op]
    graph: DeviceGraph | None = None
    failed: int = 0  # attempts to record it


@dataclass(slots=True)
class _Known:
    """The arguments and results that a segment accesses, and the operations made for their
    addresses.
    """

    outside: Callable[[list[int]], object]
    prepared: OrderedDict[object, _Prepared] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class Recorder:
    """The operations and graphs of a program's segments. Used with the device held."""

    device: Device
    kernels: Mapping[str, tuple[DeviceFunction, ...]]
    decision: int
    where: str
    _known: dict[Segment, _Known] = field(default_factory=dict)

    def submit(self, run: Segment, places: Places) -> None:
        """Submit a segment on memories at these addresses."""
        self.device.in_progress[self.where] = None
        if run not in self._known:
            self._known[run] = _Known(_outside(run, len(places.params)))
        known = self._known[run].prepared
        key = self._known[run].outside(places.params + places.results)
        found = known.get(key)
        if found is None:
            found = _Prepared(operations(run, self.kernels, places, self.decision))
            known[key] = found
            while len(known) > KEPT:
                known.popitem(last=False)
            self._one_by_one(found.ops)
            return
        known.move_to_end(key)
        if len(found.ops) < 2 or SYNC in os.environ:
            self._one_by_one(found.ops)
            return
        if found.graph is None and found.failed < ATTEMPTS:
            try:
                found.graph = record(self.device, [found.ops], self.where)
            except (UnsupportedError, OutOfMemoryError) as error:
                found.failed += 1
                warn(f"{error}; it runs one by one", NestwrightWarning, stacklevel=2)
        if found.graph is None:
            self._one_by_one(found.ops)
        else:
            found.graph.launch(self.where)

    def together(self, runs: Sequence[tuple[Segment, Places]]) -> DeviceGraph:
        """Return one graph that runs all of these, one after the other."""
        made = (operations(run, self.kernels, at, self.decision) for run, at in runs)
        return record(self.device, list(made), self.where)

    def _one_by_one(self, ops: Sequence[Op]) -> None:
        for n, op in enumerate(ops):
            behind = n > 0 and isinstance(ops[n - 1], LaunchOp)
            submit(self.device, op, self.device.stream, self.where, behind)
            if SYNC in os.environ:
                self.device.synchronize(str(op), self.where)


def submit(
    device: Device, op: Op, stream: Any, where: str = "", behind_launch: bool = False
) -> None:
    """Submit one operation; ``where`` names the program in errors."""
    try:
        op.submit(device, stream, behind_launch)
    except DriverError as error:
        raise device.failed(error, f"{op} cannot be launched", where) from error


def record(device: Device, runs: Sequence[Sequence[Op]], where: str = "") -> DeviceGraph:
    """Record runs of operations, one after the other, as a graph, on streams that nothing else
    uses.

    ``UnsupportedError`` names the operation that could not be recorded; the device is as before.
    """
    driver, tape = device.driver, _Tape(device)
    mode = driver.constant("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_RELAXED")
    ended = False
    try:
        driver.call("cuStreamBeginCapture", device.recorder, mode)
        for ops in runs:
            tape.add(ops)
        tape.doing = "recording ended"
        graph = driver.call("cuStreamEndCapture", device.recorder)
        ended, tape.doing = True, "a graph was made of it"
        try:
            return DeviceGraph(device, device.call_with_retry("cuGraphInstantiate", graph, 0))
        finally:
            device.dispose("cuGraphDestroy", graph)
    except DriverError as error:
        what = f"nothing can be recorded: the driver refused when {tape.doing}"
        raise device.failed(error, what, where) from error
    finally:
        tape.close()
        if not ended:
            _end_recording(device)


@dataclass(slots=True)
class _Tape:
    """A recording under way; ``doing`` is what was done last."""

    device: Device
    doing: str = "recording began"
    events: list[Any] = field(default_factory=list)

    def add(self, ops: Sequence[Op]) -> None:
        """Record operations, side by side where they may be, after all that was recorded before."""
        driver, count = self.device.driver, streams_asked()
        active = driver.constant("CUstreamCaptureStatus", "CU_STREAM_CAPTURE_STATUS_ACTIVE")
        made = branches(needs([op.accesses for op in ops]), count)
        streams = self.device.recorders(max((p.stream for p in made.places), default=0) + 1)
        marked = {START: self.mark(streams[0])} if START in made.marks else {}
        last: dict[int, Op] = {}
        for n, (op, place) in enumerate(zip(ops, made.places, strict=True)):
            self.doing = f"{op} was recorded"
            stream = streams[place.stream]
            for before in place.waits:
                driver.call("cuStreamWaitEvent", stream, marked[before], 0)
            behind = not place.waits and isinstance(last.get(place.stream), LaunchOp)
            op.submit(self.device, stream, behind)
            last[place.stream] = op
            if driver.call("cuStreamIsCapturing", self.device.recorder) != active:
                raise DriverError("cuStreamIsCapturing", "the recording is not valid any more")
            if n in made.marks:
                marked[n] = self.mark(stream)
        for end in made.ends:
            driver.call("cuStreamWaitEvent", streams[0], marked[end], 0)

    def mark(self, stream: Any) -> Any:
        """Return an event of the work recorded on a stream so far."""
        event = self.device.event(timing=False)
        self.events.append(event)
        self.device.driver.call("cuEventRecord", event, stream)
        return event

    def close(self) -> None:
        """Destroy the events, which a graph does not need."""
        for event in self.events:
            self.device.dispose("cuEventDestroy", event)


def _end_recording(device: Device) -> None:
    """Make the recorder ready for the next recording after one that failed."""
    if device.fault is not None:
        return
    driver = device.driver
    none = driver.constant("CUstreamCaptureStatus", "CU_STREAM_CAPTURE_STATUS_NONE")
    with suppress(DriverError):
        if driver.call("cuStreamIsCapturing", device.recorder) == none:
            device.drop_branches()
            return
    with suppress(DriverError):
        device.dispose("cuGraphDestroy", driver.call("cuStreamEndCapture", device.recorder))
    with suppress(DriverError):
        if driver.call("cuStreamIsCapturing", device.recorder) != none:
            device.renew_recorder()
    device.drop_branches()


class DeviceGraph:
    """A graph that can be launched; destroyed with its last reference."""

    def __init__(self, device: Device, handle: Any) -> None:
        self.device = device
        self.handle = handle
        weakref.finalize(self, device.discard, "cuGraphExecDestroy", handle).atexit = False

    def launch(self, where: str) -> None:
        """Launch the graph, with the device held."""
        try:
            self.device.driver.call("cuGraphLaunch", self.handle, self.device.stream)
        except DriverError as error:
            raise self.device.failed(error, "a graph cannot be launched", where) from error


def _outside(run: Segment, params: int) -> Callable[[list[int]], object]:
    """Return a function that selects the addresses of the arguments and results that a segment
    accesses.
    """
    found = {s.index for s in _slices(run) if s.memory == "param"}
    found |= {params + s.index for s in _slices(run) if s.memory == "result"}
    return itemgetter(*sorted(found)) if found else lambda addresses: None


def _slices(run: Segment) -> list[BufferSlice]:
    found = [] if run.decision is None else [run.decision]
    for thunk in run.thunks:
        match thunk:
            case KernelThunk(args=args):
                found += args
            case CopyThunk(source=source, target=target):
                found += [source, target]
    return found
