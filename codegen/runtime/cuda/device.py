"""One GPU in this process: its context, stream and memory, and waiting for its work.

Waiting polls in Python, so that signals are handled: an exception of a handler ends the wait.
Submitted work goes on, and later work comes after it.

All work of this process on a device goes through one stream, in order, so that memory may be reused
as soon as its last user is submitted. The stream synchronizes with the default stream of other
libraries (PyTorch's, CuPy's). The context is the device's primary one, which those libraries share.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from time import perf_counter, sleep
from types import TracebackType
from typing import Any

from ....ir.errors import (
    DeviceError,
    NestwrightError,
    OutOfMemoryError,
    TargetError,
    UnsupportedError,
)
from ..interrupts import end_elsewhere
from ..process import runtime
from .driver import Driver, DriverError, driver
from .memory import NO_TIMING, DeviceMemory, Heap

NON_BLOCKING = 1  # a flag of cuStreamCreate
BRIEF = 2e-3  # seconds of a wait during which it does not sleep
LONGEST_NAP = 10e-3  # seconds
WAITS = ("cuStreamQuery", "cuEventQuery")
SYNC = "NESTWRIGHT_CUDA_SYNC"
"""If set, every kernel is waited for, so that a fault is reported with its kernel's name."""


class Device:
    """A GPU. ``with device:`` makes it current in this thread and keeps other threads out.

    A driver failure that nothing in the block handles is raised as our error.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.process = os.getpid()
        self.lock = RLock()
        self.fault: DeviceError | None = None
        self._depth = 0  # of ``with device``
        self._watch = _nothing
        self.in_progress: dict[str, None] = {}  # submitted since the last wait
        self._held: deque[tuple[Any, list[object]]] = deque()
        self._discarded: deque[tuple[str, Any]] = deque()
        handle = driver.call("cuDeviceGet", ordinal)
        name = driver.call("cuDeviceGetName", 128, handle)
        self.name = name.split(b"\0")[0].decode(errors="replace")
        self.capability = 10 * self._attribute(handle, "COMPUTE_CAPABILITY_MAJOR")
        self.capability += self._attribute(handle, "COMPUTE_CAPABILITY_MINOR")
        self.l2 = self._attribute(handle, "L2_CACHE_SIZE")
        self.shared_per_block = self._attribute(handle, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.multiprocessors = self._attribute(handle, "MULTIPROCESSOR_COUNT")
        self.context = driver.call("cuDevicePrimaryCtxRetain", handle)
        self.heap = Heap(driver, self.context, self.dispose, self.name)
        with self.during(f"GPU {ordinal} cannot be used"):
            self.heap.total = int(driver.call("cuMemGetInfo")[1])
            self.stream = driver.call("cuStreamCreate", 0)
            self.recorder = driver.call("cuStreamCreate", NON_BLOCKING)
        self._branches: list[Any] = []

    def _attribute(self, handle: Any, name: str) -> int:
        kind = self.driver.constant("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", kind, handle))

    def __enter__(self) -> Device:
        if os.getpid() != self.process:
            raise DeviceError(
                f"{self.name} cannot be used in a forked process",
                "CUDA does not survive a fork",
                hint="start children with multiprocessing's 'spawn'",
            )
        self.lock.acquire()
        try:
            self.check()
            if not self._depth:
                self._watch = _watch()
            self.driver.call("cuCtxPushCurrent", self.context)
            self._depth += 1
        except DriverError as error:
            failure = self.failed(error, f"{self.name} cannot be made current")
            self.lock.release()
            raise failure from error
        except BaseException:
            self.lock.release()
            raise
        if self._depth == 1 and (self._discarded or self.heap.returned):
            self._collect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        raised: NestwrightError | None = None
        try:
            self.driver.call("cuCtxPopCurrent")
        except DriverError as failure:
            if self.fault is None:
                raised = self.failed(failure, f"{self.name} cannot be let go")
        finally:
            self._depth -= 1
            outermost = not self._depth
            self.lock.release()
        if outermost and isinstance(error, DriverError):
            raise self.failed(error, f"work on {self.name} failed") from error
        if raised is not None and error is None:
            raise raised

    def during(self, what: str) -> Hold:
        """Return a ``with device`` that raises driver failures in its block as errors of
        ``what``.
        """
        return Hold(self, what)

    def check(self) -> None:
        """Raise ``DeviceError`` if an earlier fault made this device unusable for this process."""
        if self.fault is not None:
            raise DeviceError(
                f"{self.name} cannot be used any more in this process",
                f"an earlier run ended its context: {self.fault.what}: {self.fault.why}",
                hint="start a new process",
            )

    def failed(
        self, error: DriverError, what: str, where: str = "", hint: str = ""
    ) -> NestwrightError:
        """Return the error to raise for a failure; a fault, which ends the context, is recorded.

        A fault may surface at an unrelated call, whatever was in progress.
        """
        if error.out_of_memory:
            return OutOfMemoryError(what, error.why, where, hint)
        if not error.sticky:
            return UnsupportedError(what, error.why, where, hint)
        why = error.why
        if error.function not in WAITS:
            why += f"; an unrelated call reported it: {what}"
            what, where = f"earlier work on {self.name} failed", ""
        if self.in_progress:
            why += f"; in progress: {', '.join(self.in_progress)}"
        advice = f"with {SYNC}=1 in the environment, the kernel is named"
        made = DeviceError(what, why, where, hint or ("" if SYNC in os.environ else advice))
        self.fault = self.fault or made
        return made

    def allocate(self, nbytes: int, what: str = "memory") -> DeviceMemory:
        """Allocate at least ``nbytes``; the contents are undefined. ``OutOfMemoryError``."""
        with self.during(f"no memory for {what}"):
            return self.heap.allocate(nbytes, what)

    def call_with_retry(self, function: str, *args: object) -> Any:
        """Call; if out of memory, release the cached memory and call once more."""
        try:
            return self.driver.call(function, *args)
        except DriverError as error:
            if not error.out_of_memory:
                raise
        self.heap.release()
        return self.driver.call(function, *args)

    def release_kept(self) -> None:
        """Return cached memory to the driver."""
        with self.during("memory cannot be given back"):
            self.heap.release()

    def discard(self, function: str, handle: Any) -> None:
        """Enqueue a handle to be released by the next user of the device.

        For finalizers, which may run anywhere: it takes no lock and does not wait. Handles
        discarded by a forked process or after the context is lost are never released.
        """
        self._discarded.append((function, handle))

    def dispose(self, function: str, handle: Any) -> None:
        """Release a handle, with the device held. It raises nothing: a handle that cannot be
        released leaks.
        """
        if self.fault is None:
            try:
                self.driver.call(function, handle)
            except DriverError as error:
                if error.sticky:
                    self.failed(error, "a resource cannot be released")

    def _collect(self) -> None:
        """Release what was discarded; called with the device held by its first owner."""
        try:
            while self._discarded:
                self.dispose(*self._discarded.popleft())
            if self.fault is None:
                self.heap.collect()
            self.check()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def synchronize(self, what: str = "work on the GPU", where: str = "", hint: str = "") -> None:
        """Wait until all submitted work is done; its faults are raised here."""
        try:
            self.wait("cuStreamQuery", self.stream)
        except DriverError as error:
            raise self.failed(error, f"{what} failed", where, hint) from error
        self.in_progress.clear()

    def wait(self, query: str, handle: Any) -> None:
        """Wait until a query of a stream or an event succeeds.

        After ``BRIEF`` seconds it sleeps between two queries, for a small share of the time waited.
        """
        began = perf_counter()
        while not self.driver.ready(query, handle):
            self.raise_if_interrupted()
            waited = perf_counter() - began
            if waited > BRIEF:
                sleep(min(waited / 64, LONGEST_NAP))

    def raise_if_interrupted(self) -> None:
        """Raise ``KeyboardInterrupt`` if a SIGINT has arrived that ends this thread's call."""
        self._watch()

    def hold(self, foreign: list[object], where: str) -> None:
        """Keep other libraries' memory alive until the work submitted so far is done."""
        if foreign:
            event = None
            try:
                event = self.event(timing=False)
                self.driver.call("cuEventRecord", event, self.stream)
            except DriverError:  # without an event only the whole stream tells
                if event is not None:
                    self.dispose("cuEventDestroy", event)
                self.synchronize(where, where)
            else:
                self._held.append((event, foreign))
        self.let_go(where)

    def let_go(self, where: str) -> None:
        """Release the memory held for work that is done."""
        while self._held:
            try:
                if not self.driver.ready("cuEventQuery", self._held[0][0]):
                    return
            except DriverError as error:
                raise self.failed(error, f"{where} failed", where) from error
            event, _ = self._held.popleft()
            self.dispose("cuEventDestroy", event)

    def event(self, timing: bool = True) -> Any:
        """Return an event; the caller destroys it."""
        return self.driver.call("cuEventCreate", 0 if timing else NO_TIMING)

    def follow(self, stream: int) -> None:
        """Make work submitted from now on wait for the work given to another stream so far."""
        self._order(stream, self.stream)

    def lead(self, stream: int) -> None:
        """Make another stream's work from now on wait for the work submitted here so far."""
        self._order(self.stream, stream)

    def renew_recorder(self) -> None:
        """Replace the stream to record on, if its recording cannot be ended."""
        made = self.driver.call("cuStreamCreate", NON_BLOCKING)
        self.dispose("cuStreamDestroy", self.recorder)
        self.recorder = made

    def recorders(self, count: int) -> list[Any]:
        """Return so many streams to record on; the first one is ``recorder``."""
        while len(self._branches) < count - 1:
            self._branches.append(self.driver.call("cuStreamCreate", NON_BLOCKING))
        return [self.recorder, *self._branches[: count - 1]]

    def drop_branches(self) -> None:
        """Give up the streams beside ``recorder``, which a failed recording may have spoilt."""
        while self._branches:
            self.dispose("cuStreamDestroy", self._branches.pop())

    def _order(self, first: Any, then: Any) -> None:
        event = self.event(timing=False)
        try:
            self.driver.call("cuEventRecord", event, first)
            self.driver.call("cuStreamWaitEvent", then, event, 0)
        finally:
            self.dispose("cuEventDestroy", event)

    def __repr__(self) -> str:
        return f"<Device {self.ordinal}: {self.name}, sm_{self.capability}>"


@dataclass(frozen=True, slots=True)
class Hold:
    """A device held; driver failures in the block are raised as errors of ``what``."""

    device: Device
    what: str

    def __enter__(self) -> Device:
        return self.device.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if not isinstance(error, DriverError):
            self.device.__exit__(kind, error, at)
            return
        raised = self.device.failed(error, self.what)
        self.device.__exit__(type(raised), raised, at)
        raise raised from error


def _nothing() -> None:
    """Do nothing: on the main thread Python itself raises the exceptions of signal handlers."""


def _watch() -> Callable[[], None]:
    """Return a function that raises if a SIGINT for this thread has arrived since."""
    if threading.get_ident() == threading.main_thread().ident:
        return _nothing
    signals = runtime().signals
    before = signals.count()

    def look() -> None:
        nonlocal before
        now = signals.count()
        if now != before:
            before = now
            end_elsewhere()

    return look


_devices: dict[tuple[int, int], Device] = {}
_lock = RLock()


def device(ordinal: int = 0) -> Device:
    """Return a GPU of this process, by number. ``TargetError`` where there is none."""
    found = _devices.get((os.getpid(), ordinal))
    if found is not None:
        return found
    for other in tuple(_devices.values()):
        if other.process != os.getpid():
            other.__enter__()  # says why not; the lock may be another process's
    with _lock:
        found = _devices.get((os.getpid(), ordinal))
        if found is None:
            try:
                found = Device(driver(), ordinal)
            except DriverError as error:
                raise TargetError(f"GPU {ordinal} cannot be used", error.why) from error
            _devices[os.getpid(), ordinal] = found
        return found
