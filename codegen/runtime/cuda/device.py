"""One GPU in this process: its context and stream, its memory, and what it takes to wait for it.

Waiting asks again and again whether the work is done, in Python, so that signals are handled: what
their handlers raise ends the wait. What was submitted goes on, and later work comes after it.

All work of this process on a device goes through one stream, in order, so that memory may be used
again as soon as its last user is submitted. The stream is of the kind that keeps in step with the
default stream of other libraries (PyTorch's, CuPy's). The context is the device's primary one,
which those libraries share.
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
"""Set to anything, every kernel is waited for, so that a fault is told with its kernel's name."""


class Device:
    """A GPU. ``with device:`` makes it current in this thread and keeps other threads out.

    A failure of the driver that nothing in the block tells leaves it as our error.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.process = os.getpid()
        self.lock = RLock()
        self.fault: DeviceError | None = None
        self._depth = 0  # of ``with device``
        self._watch = _nothing
        self.under_way: dict[str, None] = {}  # what was submitted since something was waited for
        self._held: deque[tuple[Any, list[object]]] = deque()
        self._discarded: deque[tuple[str, Any]] = deque()
        handle = driver.call("cuDeviceGet", ordinal)
        name = driver.call("cuDeviceGetName", 128, handle)
        self.name = name.split(b"\0")[0].decode(errors="replace")
        self.capability = 10 * self._attribute(handle, "COMPUTE_CAPABILITY_MAJOR")
        self.capability += self._attribute(handle, "COMPUTE_CAPABILITY_MINOR")
        self.l2 = self._attribute(handle, "L2_CACHE_SIZE")
        self.shared_per_block = self._attribute(handle, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.context = driver.call("cuDevicePrimaryCtxRetain", handle)
        self.heap = Heap(driver, self.context, self.dispose, self.name)
        with self.during(f"GPU {ordinal} cannot be used"):
            self.heap.total = int(driver.call("cuMemGetInfo")[1])
            self.stream = driver.call("cuStreamCreate", 0)
            self.recorder = driver.call("cuStreamCreate", NON_BLOCKING)

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
            told = self.failed(error, f"{self.name} cannot be made current")
            self.lock.release()
            raise told from error
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
        told: NestwrightError | None = None
        try:
            self.driver.call("cuCtxPopCurrent")
        except DriverError as failure:
            if self.fault is None:
                told = self.failed(failure, f"{self.name} cannot be let go")
        finally:
            self._depth -= 1
            outermost = not self._depth
            self.lock.release()
        if outermost and isinstance(error, DriverError):
            raise self.failed(error, f"work on {self.name} failed") from error
        if told is not None and error is None:
            raise told

    def during(self, what: str, where: str = "") -> Hold:
        """``with device``, where a failure of the driver in the block is told as ``what``."""
        return Hold(self, what, where)

    def check(self) -> None:
        """Raise the fault that made this device unusable for this process, if there was one."""
        if self.fault is not None:
            raise DeviceError(
                f"{self.name} cannot be used any more in this process",
                f"an earlier run ended its context: {self.fault.what}: {self.fault.why}",
                hint="start a new process",
            )

    def failed(
        self, error: DriverError, what: str, where: str = "", hint: str = ""
    ) -> NestwrightError:
        """The error to raise for a failure; a fault, which ends the context, is remembered.

        A fault may show at a call that has nothing to do with it, whatever was under way.
        """
        if error.out_of_memory:
            return OutOfMemoryError(what, error.why, where, hint)
        if not error.sticky:
            return UnsupportedError(what, error.why, where, hint)
        why = error.why
        if error.function not in WAITS:
            why += f"; a call for something else told it: {what}"
            what, where = f"earlier work on {self.name} failed", ""
        if self.under_way:
            why += f"; under way were {', '.join(self.under_way)}"
        advice = f"with {SYNC}=1 in the environment, the kernel is named"
        made = DeviceError(what, why, where, hint or ("" if SYNC in os.environ else advice))
        self.fault = self.fault or made
        return made

    def allocate(self, nbytes: int, what: str = "memory") -> DeviceMemory:
        """Memory of at least ``nbytes``; its contents are undefined. ``OutOfMemoryError``."""
        with self.during(f"no memory for {what}"):
            return self.heap.allocate(nbytes, what)

    def roomy(self, function: str, *args: object) -> Any:
        """Call; where memory is short, once more without the memory that waits to be used again."""
        try:
            return self.driver.call(function, *args)
        except DriverError as error:
            if not error.out_of_memory:
                raise
        self.heap.release()
        return self.driver.call(function, *args)

    def release_kept(self) -> None:
        """Give memory that waits to be used again back to the driver."""
        with self.during("memory cannot be given back"):
            self.heap.release()

    def discard(self, function: str, handle: Any) -> None:
        """Have something given back by whoever uses the device next.

        For finalizers, which may run anywhere: it takes no lock and does not wait. What a forked
        process or a lost context discards is never given back.
        """
        self._discarded.append((function, handle))

    def dispose(self, function: str, handle: Any) -> None:
        """Give something back, with the device held. It raises nothing: what cannot be given back
        is lost."""
        if self.fault is None:
            try:
                self.driver.call(function, handle)
            except DriverError as error:
                if error.sticky:
                    self.failed(error, "something cannot be given back")

    def _collect(self) -> None:
        """Give back what was discarded; called with the device held by its first owner."""
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
        """Wait until all that was submitted is done; a fault of it shows here."""
        try:
            self.wait("cuStreamQuery", self.stream)
        except DriverError as error:
            raise self.failed(error, f"{what} failed", where, hint) from error
        self.under_way.clear()

    def wait(self, query: str, handle: Any) -> None:
        """Wait until a query of a stream or an event says that it is done.

        After ``BRIEF`` seconds it sleeps between two questions, for a small share of the time that
        it has waited.
        """
        began = perf_counter()
        while not self.driver.ready(query, handle):
            self.look()
            waited = perf_counter() - began
            if waited > BRIEF:
                sleep(min(waited / 64, LONGEST_NAP))

    def look(self) -> None:
        """Raise ``KeyboardInterrupt`` if a SIGINT has come that ends what this thread does."""
        self._watch()

    def hold(self, foreign: list[object], where: str) -> None:
        """Hold what other libraries own until the work that was submitted so far is done."""
        if foreign:
            event = None
            try:
                event = self.event(timing=False)
                self.driver.call("cuEventRecord", event, self.stream)
            except DriverError:  # then nothing marks the end of the work but the end of it all
                if event is not None:
                    self.dispose("cuEventDestroy", event)
                self.synchronize(where, where)
            else:
                self._held.append((event, foreign))
        self.let_go(where)

    def let_go(self, where: str) -> None:
        """Let go of what was held for work that is done."""
        while self._held:
            try:
                if not self.driver.ready("cuEventQuery", self._held[0][0]):
                    return
            except DriverError as error:
                raise self.failed(error, f"{where} failed", where) from error
            event, _ = self._held.popleft()
            self.dispose("cuEventDestroy", event)

    def event(self, timing: bool = True) -> Any:
        """An event; the caller destroys it."""
        return self.driver.call("cuEventCreate", 0 if timing else NO_TIMING)

    def follow(self, stream: int) -> None:
        """What is submitted from now on waits for what another stream has been given."""
        self._order(stream, self.stream)

    def lead(self, stream: int) -> None:
        """What another stream is given from now on waits for what was submitted here."""
        self._order(self.stream, stream)

    def renew_recorder(self) -> None:
        """Another stream to record on, for one that cannot be brought to end its recording."""
        made = self.driver.call("cuStreamCreate", NON_BLOCKING)
        self.dispose("cuStreamDestroy", self.recorder)
        self.recorder = made

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
    """A device held for what ``Device.during`` says."""

    device: Device
    what: str
    where: str

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
        told = self.device.failed(error, self.what, self.where)
        self.device.__exit__(type(told), told, at)
        raise told from error


def _nothing() -> None:
    """On the main thread Python itself raises what a signal's handler raises."""


def _watch() -> Callable[[], None]:
    """What a call looks at on this thread, from now on, to learn of a SIGINT."""
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
    """A GPU of this process, by number. ``TargetError`` where there is none."""
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
