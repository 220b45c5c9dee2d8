"""A stand-in for the CUDA driver: what tests of the runtime for GPUs run on.

Memory on the "device" is memory of this process, so that a kernel can be native code for its
processor. Work is done late, when something waits for it, as a device would: who reads a result
without waiting reads what was there before. To wait is to ask twice in a row whether it is done.
A graph does its work in an order of
its own, in which what was recorded last comes first if it may. Every call is written down.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.code.device import DeviceCode, LaunchConfig
from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.cuda import device as device_module
from nestwright.codegen.runtime.cuda.driver import Driver
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.runtime.sim.process import watching
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

Status = IntEnum(
    "Status",
    {
        "CUDA_SUCCESS": 0,
        "CUDA_ERROR_INVALID_VALUE": 1,
        "CUDA_ERROR_OUT_OF_MEMORY": 2,
        "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
        "CUDA_ERROR_INVALID_PTX": 218,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
        "CUDA_ERROR_CONTAINED": 226,
        "CUDA_ERROR_ILLEGAL_STATE": 401,
        "CUDA_ERROR_NOT_FOUND": 500,
        "CUDA_ERROR_NOT_READY": 600,
        "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701,
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": 900,
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": 901,
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": 904,
        "CUDA_ERROR_EXTERNAL_DEVICE": 911,
        "CUDA_ERROR_UNKNOWN": 999,
    },
)
Work = Callable[[], None]


class Names:
    """An enumeration of which only the names matter."""

    def __getattr__(self, name: str) -> str:
        return name


@dataclass
class Recording:
    """Work, and by number what comes before each."""

    origin: Stream
    work: list[Work] = field(default_factory=list)
    before: list[set[int]] = field(default_factory=list)

    def in_late_order(self) -> list[Work]:
        """All work; of what may come next, always the last that was recorded."""
        left, done = set(range(len(self.work))), list[int]()
        while left:
            done.append(max(n for n in left if self.before[n] <= set(done)))
            left.remove(done[-1])
        return [self.work[n] for n in done]


@dataclass
class Stream:
    number: int
    waiting: list[Work] = field(default_factory=list)
    recording: Recording | None = None
    before: set[int] = field(default_factory=set)  # what is recorded next
    invalid: bool = False  # what is recorded has been spoilt


@dataclass
class Event:
    done: bool = True
    others: bool = False  # it also stands behind what other libraries do
    recording: Recording | None = None
    before: set[int] = field(default_factory=set)


@dataclass
class FakeApi:
    """The functions of ``cuda.bindings.driver`` that the runtime calls, on one device.

    ``kernels`` are native functions by symbol, which get the words that they were launched on;
    ``failing`` maps a function to the statuses of its next calls.
    """

    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)
    failing: dict[str, list[Status]] = field(default_factory=dict)
    capability: int = 90
    multiprocessors: int = 132
    total: int = 1 << 30
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    launched: list[tuple[str, tuple[int, ...], list[int]]] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)
    pinned: dict[int, Any] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)
    modules: dict[int, bytes] = field(default_factory=dict)
    graphs: int = 0
    captured: int = 0  # recordings as graphs that cannot be launched yet
    static: int = 0  # bytes of shared memory that each kernel has of its own
    busy: bool = False  # other libraries' streams are at work
    broken: Status | None = None
    clock: float = 0.0
    log: str = ""
    waits: int = 0  # for all that a stream was given

    CUdevice_attribute = Names()
    CUlaunchAttributeID = Names()
    CUjit_option = Names()
    CUfunction_attribute = Names()
    CUstreamCaptureMode = Names()
    CUstreamCaptureStatus = Names()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu"):
            return found

        def told(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, args))
            waiting = self.failing.get(name)
            if waiting and (status := waiting.pop(0)):
                return status, None
            if self.broken is not None and name not in ("cuGetErrorString", "cuCtxPopCurrent"):
                return self.broken, None
            answer = found(*args)
            return answer if isinstance(answer, tuple) else (Status.CUDA_SUCCESS, answer)

        return told

    def count(self) -> Counter[str]:
        """How often each function was called."""
        return Counter(n for n, _ in self.calls)

    def executable(self, text: str, **launch: Any) -> Executable:
        """A model for an sm_90 of which the kernels are the processor's, with one launch each.

        ``launch`` are changes to what each launch asks for.
        """
        native = build(parse(text))
        library = native.loaded().library  # type: ignore[attr-defined]
        codes = {}
        for number, (symbol, thunk) in enumerate(sorted(kernels(native.plan).items())):
            function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(thunk.args))(
                library.address(symbol)
            )
            function.words = len(thunk.args)  # type: ignore[attr-defined]
            function.library = library  # type: ignore[attr-defined]
            self.kernels[symbol] = function
            plain = LaunchConfig(symbol, (2 + number, 1, 1), (32, 2, 1), 512)
            codes[symbol] = DeviceCode("// the PTX", (replace(plain, **launch),))
        bundle = replace(
            native.bundle,
            target=Target.parse("cuda -arch=sm_90"),
            kernels=codes,
            program=b"",
            runtime=(),
        )
        return Executable(bundle, lambda: native.module)

    def simulated(self, text: str) -> Executable:
        """A model as it is built for an sm_90, of which each group's first launch runs the group's
        kernels in the simulator; the launches after it only say on what they were made."""
        module = parse(text)
        made = build(module, "cuda -arch=sm_90")
        library = build(module, "cuda-sim -arch=sm_90").loaded().library  # type: ignore[attr-defined]
        for symbol, thunk in kernels(made.plan).items():
            native = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(thunk.args))(
                library.address(symbol)
            )
            code = made.bundle.kernels[symbol]
            assert isinstance(code, DeviceCode)
            for launch in code.launches:
                self.kernels[launch.symbol] = _watched(native, launch.symbol == symbol, library)
        return made

    def fail(self, function: str, status: str) -> None:
        """The next call of a function fails."""
        self.failing.setdefault(function, []).append(Status[f"CUDA_ERROR_{status}"])

    def fault(self) -> None:
        """A kernel has touched what it may not: from now on every call fails."""
        self.broken = Status.CUDA_ERROR_ILLEGAL_ADDRESS

    def cuGetErrorString(self, status: Status) -> Any:
        return f"told of {status.name}".encode()

    def cuInit(self, flags: int) -> None: ...

    def cuDeviceGetCount(self) -> int:
        return 1

    def cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def cuDeviceGetName(self, length: int, device: int) -> bytes:
        return b"Imaginary GPU".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: str, device: int) -> int:
        if attribute.endswith("MAJOR"):
            return self.capability // 10
        if attribute.endswith("OPTIN"):
            return 227 << 10
        if attribute.endswith("MULTIPROCESSOR_COUNT"):
            return self.multiprocessors
        return self.capability % 10 if attribute.endswith("MINOR") else 1 << 20

    def cuDevicePrimaryCtxRetain(self, device: int) -> str:
        return "primary"

    def cuCtxPushCurrent(self, context: str) -> None:
        self.contexts.append(context)

    def cuCtxPopCurrent(self) -> Any:
        return self.contexts.pop()

    def cuStreamCreate(self, flags: int) -> Any:
        self.streams.append(Stream(7 + len(self.streams)))
        return Handle(self.streams[-1])

    def _submit(self, handle: Any, work: Work) -> None:
        assert self.contexts, "no context is current"
        stream = handle.value
        if stream.recording is None:
            stream.waiting.append(work)
            return
        stream.recording.before.append(set(stream.before))
        stream.before.add(len(stream.recording.work))
        stream.recording.work.append(work)

    def _drain(self) -> Any:
        for stream in self.streams:
            todo, stream.waiting = stream.waiting, []
            for work in todo:
                work()
        return Status.CUDA_SUCCESS if self.broken is None else self.broken, None

    def cuStreamQuery(self, stream: Any) -> Any:
        if stream.value.waiting and not self._asked_again():
            return (Status.CUDA_ERROR_NOT_READY,)
        self.waits += 1
        return self._drain()

    def _asked_again(self) -> bool:
        (name, args), (before, others) = self.calls[-1], self.calls[-2]
        return name == before and args[0] is others[0]

    def cuMemAlloc(self, size: int) -> Any:
        if self.used + size > self.total:
            return Status.CUDA_ERROR_OUT_OF_MEMORY, None
        return self._allocate(self.memory, size, 256)

    @property
    def used(self) -> int:
        return sum(len(m) for m in self.memory.values())

    def _allocate(self, where: dict[int, Any], size: int, alignment: int) -> int:
        held = (ctypes.c_uint8 * (size + alignment))()
        address = -(-ctypes.addressof(held) // alignment) * alignment
        ctypes.memset(address, 0xA5, size)
        where[address] = held
        return address

    def cuMemFree(self, address: int) -> None:
        self._drain()
        del self.memory[address]

    def cuMemGetInfo(self) -> Any:
        return Status.CUDA_SUCCESS, self.total - self.used, self.total

    def cuMemHostAlloc(self, size: int, flags: int) -> int:
        return self._allocate(self.pinned, size, 64)

    def cuMemFreeHost(self, address: int) -> None:
        self._drain()
        del self.pinned[address]

    def _copy(self, target: int, source: int, size: int, stream: Any) -> None:
        assert size > 0
        self._submit(stream, lambda: ctypes.memmove(target, source, size) and None)

    cuMemcpyHtoDAsync = cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = _copy

    def cuMemsetD8Async(self, target: int, value: int, size: int, stream: Any) -> None:
        self._submit(stream, lambda: ctypes.memset(target, value, size) and None)

    def cuEventCreate(self, flags: int) -> Event:
        return Event()

    def cuEventRecord(self, event: Event, stream: Any) -> None:
        event.done, event.recording = False, None
        if isinstance(stream, Handle) and stream.value.recording is not None:
            event.recording, event.before = stream.value.recording, set(stream.value.before)
        elif isinstance(stream, Handle):
            self._submit(stream, lambda: setattr(event, "done", True))

    def cuCtxRecordEvent(self, context: str, event: Event) -> None:
        assert context == "primary"
        event.done = False
        event.others = True
        self._submit(Handle(self.streams[0]), lambda: setattr(event, "done", True))

    def cuEventQuery(self, event: Event) -> Any:
        if event.others and self.busy:
            return (Status.CUDA_ERROR_NOT_READY,)
        if not event.done and self._asked_again():
            self._drain()
        return (Status.CUDA_SUCCESS if event.done else Status.CUDA_ERROR_NOT_READY,)

    def cuEventElapsedTime(self, start: Event, end: Event) -> float:
        assert start.done and end.done
        self.clock += 1.0
        return self.clock

    def cuEventDestroy(self, event: Event) -> None: ...

    def cuStreamWaitEvent(self, stream: Any, event: Event, flags: int) -> None:
        if event.recording is not None:
            assert stream.value.recording in (None, event.recording)
            stream.value.recording = event.recording
            stream.value.before |= event.before

    def cuModuleLoadData(self, image: bytes) -> int:
        return self._load(image)

    def _load(self, image: bytes) -> int:
        number = len(self.calls)  # of this one: no other module has it
        self.modules[number] = image
        return number

    def cuModuleLoadDataEx(self, image: bytes, n: int, options: Any, values: Any) -> Any:
        assert n == len(options) == len(values) and image.endswith(b"\0")
        if self.log:
            values[0][: len(self.log)] = self.log.encode()
            return Status.CUDA_ERROR_INVALID_PTX, None
        return self._load(image)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        assert module in self.modules
        return name.decode()

    def cuModuleUnload(self, module: int) -> None:
        del self.modules[module]

    def cuFuncGetAttribute(self, attribute: str, function: str) -> int:
        assert attribute == "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES"
        return self.static

    def cuFuncSetAttribute(self, function: str, attribute: str, value: int) -> None: ...

    def cuLaunchKernel(self, function: str, *rest: Any) -> None:
        *shape, stream, params, extra = rest
        assert extra == 0 and len(shape) == 7
        action = self.kernels.get(function)
        count = getattr(action, "words", 0)
        pointers = (ctypes.c_void_p * count).from_address(params)
        words = [ctypes.c_uint64.from_address(p).value for p in pointers]
        self.launched.append((function, tuple(shape), words))
        if action is not None:
            self._submit(stream, lambda: action(*words))

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace()

    def CUlaunchAttribute(self) -> Any:
        return SimpleNamespace(value=SimpleNamespace())

    def cuLaunchKernelEx(self, config: Any, function: str, params: int, extra: int) -> None:
        (attribute,) = config.attrs
        assert config.numAttrs == attribute.value.programmaticStreamSerializationAllowed == 1
        assert attribute.id == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        grid = (getattr(config, f"gridDim{d}") for d in "XYZ")
        block = (getattr(config, f"blockDim{d}") for d in "XYZ")
        shape = (*grid, *block, config.sharedMemBytes)
        self.cuLaunchKernel(function, *shape, config.hStream, params, extra)

    def cuStreamBeginCapture(self, stream: Any, mode: str) -> None:
        assert mode == "CU_STREAM_CAPTURE_MODE_RELAXED"
        stream.value.recording, stream.value.before = Recording(stream.value), set()

    def cuStreamIsCapturing(self, stream: Any) -> str:
        state = "INVALIDATED" if stream.value.invalid else "ACTIVE"
        return f"CU_STREAM_CAPTURE_STATUS_{'NONE' if stream.value.recording is None else state}"

    def cuStreamEndCapture(self, stream: Any) -> Any:
        recorded, before = stream.value.recording, stream.value.before
        assert recorded.origin is stream.value
        others = [s for s in self.streams if s.recording is recorded]
        joined = all(s.before <= before for s in others)
        for s in others:
            s.recording, s.before = None, set()
        if stream.value.invalid:
            stream.value.invalid = False
            return Status.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, None
        if not joined:
            return Status.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, None
        self.captured += 1
        return recorded.in_late_order()

    def cuStreamDestroy(self, stream: Any) -> None: ...

    def cuGraphInstantiate(self, graph: list[Work], flags: int) -> list[Work]:
        self.graphs += 1
        return list(graph)

    def cuGraphDestroy(self, graph: list[Work]) -> None:
        self.captured -= 1

    def cuGraphLaunch(self, graph: list[Work], stream: Any) -> None:
        for work in graph:
            self._submit(stream, work)

    def cuGraphExecDestroy(self, graph: list[Work]) -> None:
        self.graphs -= 1


def _watched(native: Any, runs: bool, library: Any) -> Callable[..., None]:
    def kernel(*words: int) -> None:
        if runs:
            with watching(library):
                native(*words)

    kernel.words = len(native.argtypes)  # type: ignore[attr-defined]
    return kernel


@dataclass
class Handle:
    """What stands for a stream; its number is what other libraries are told."""

    value: Stream

    def __int__(self) -> int:
        return self.value.number


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """The stand-in, in the place of this machine's driver; its device is made when asked for."""
    api = FakeApi()
    monkeypatch.setattr(device_module, "driver", lambda: Driver(api))
    monkeypatch.setattr(device_module, "_devices", {})
    yield api
    assert not api.contexts, "a context was left current"
