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
import weakref
from collections.abc import Callable
from threading import RLock
from time import perf_counter, sleep
from types import TracebackType
from typing import Any

from ....ir.errors import DeviceError, NestwrightError, TargetError, UnsupportedError
from ..interrupts import end_elsewhere
from ..process import runtime
from .driver import OUT_OF_MEMORY, STICKY, Driver, DriverError, driver

GRANULE = 256  # bytes: the driver aligns allocations so
KEPT_BYTES = 1 << 30  # of memory that was given back and may serve again
NON_BLOCKING, NO_TIMING = 1, 2  # flags of cuStreamCreate and cuEventCreate
BRIEF = 2e-3  # seconds of a wait during which it does not sleep
LONGEST_NAP = 10e-3  # seconds
SYNC = "NESTWRIGHT_CUDA_SYNC"
"""Set to anything, every kernel is waited for, so that a fault is told with its kernel's name."""


class Memory:
    """Bytes on a device. They are given back when nothing refers to this any more."""

    __slots__ = ("__weakref__", "address", "bytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.bytes = nbytes


class Device:
    """A GPU. ``with device:`` makes it current in this thread and keeps other threads out."""

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.process = os.getpid()
        self.lock = RLock()
        self.fault: DeviceError | None = None
        self._depth = 0  # of ``with device``
        self._watch = _nothing
        self.under_way: dict[str, None] = {}  # what was submitted since something was waited for
        self._free: dict[int, list[int]] = {}
        self._kept = 0
        handle = driver.call("cuDeviceGet", ordinal)
        name = driver.call("cuDeviceGetName", 128, handle)
        self.name = name.split(b"\0")[0].decode(errors="replace")
        self.capability = 10 * self._attribute(handle, "COMPUTE_CAPABILITY_MAJOR")
        self.capability += self._attribute(handle, "COMPUTE_CAPABILITY_MINOR")
        self.l2 = self._attribute(handle, "L2_CACHE_SIZE")
        self.context = driver.call("cuDevicePrimaryCtxRetain", handle)
        with self:
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
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self.driver.call("cuCtxPopCurrent")
        except DriverError:
            if self.fault is None:
                raise
        finally:
            self._depth -= 1
            self.lock.release()

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
        """The error to raise for a failure; a fault, which ends the context, is remembered."""
        why = f"{error.function}: {error}"
        if error.status not in STICKY:
            return UnsupportedError(what, why, where, hint)
        names = f"under way were {', '.join(self.under_way)}; " if self.under_way else ""
        advice = f"{names}with {SYNC}=1 in the environment, the kernel is named"
        made = DeviceError(what, why, where, hint or ("" if SYNC in os.environ else advice))
        self.fault = self.fault or made
        return made

    def allocate(self, nbytes: int, what: str = "memory") -> Memory:
        """Memory of at least ``nbytes``; its contents are undefined. ``MemoryError``."""
        size = max(1, -(-nbytes // GRANULE)) * GRANULE
        with self:
            waiting = self._free.get(size)
            if waiting:
                address = waiting.pop()
                self._kept -= size
            else:
                address = self._fresh(size, what)
        memory = Memory(address, nbytes)
        weakref.finalize(memory, self._give_back, address, size).atexit = False
        return memory

    def _fresh(self, size: int, what: str) -> int:
        for last in (False, True):
            try:
                return int(self.driver.call("cuMemAlloc", size))
            except DriverError as error:
                if error.status != OUT_OF_MEMORY:
                    raise self.failed(error, f"no memory for {what}") from error
            if not last:
                self.release_kept()
        free, total = self.driver.call("cuMemGetInfo")
        raise MemoryError(
            f"{self.name} has no room for {what}: it takes {size} bytes; {free} of {total} are free"
        )

    def _give_back(self, address: int, size: int) -> None:
        if self._kept + size <= KEPT_BYTES:
            self._kept += size
            self._free.setdefault(size, []).append(address)
        else:
            self.dispose("cuMemFree", address)

    def release_kept(self) -> None:
        """Give memory that waits to be used again back to the driver."""
        with self:
            found, self._free, self._kept = self._free, {}, 0
            for addresses in found.values():
                for address in addresses:
                    self.dispose("cuMemFree", address)

    def dispose(self, function: str, handle: Any) -> None:
        """Give something back; a forked process and a lost context have nothing to give.

        For finalizers: it raises nothing.
        """
        if os.getpid() != self.process or self.fault is not None:
            return
        try:
            with self:
                self.driver.call(function, handle)
        except DriverError as error:
            self.failed(error, "something cannot be given back")

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

    def event(self, timing: bool = True) -> Any:
        """An event; the caller destroys it."""
        return self.driver.call("cuEventCreate", 0 if timing else NO_TIMING)

    def follow(self, stream: int) -> None:
        """What is submitted from now on waits for what another stream has been given."""
        self._order(stream, self.stream)

    def lead(self, stream: int) -> None:
        """What another stream is given from now on waits for what was submitted here."""
        self._order(self.stream, stream)

    def _order(self, first: Any, then: Any) -> None:
        event = self.event(timing=False)
        self.driver.call("cuEventRecord", event, first)
        self.driver.call("cuStreamWaitEvent", then, event, 0)
        self.driver.call("cuEventDestroy", event)

    def __repr__(self) -> str:
        return f"<Device {self.ordinal}: {self.name}, sm_{self.capability}>"


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
    with _lock:
        if _devices:
            made = next(iter(_devices.values()))
            if made.process != os.getpid():
                made.__enter__()  # says why not
        try:
            return _devices.setdefault((os.getpid(), ordinal), Device(driver(), ordinal))
        except DriverError as error:
            raise TargetError(
                f"GPU {ordinal} cannot be used", f"{error.function}: {error}"
            ) from error
