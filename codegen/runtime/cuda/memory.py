"""A caching allocator for GPU memory.

All our work goes through one stream, so our memory may be reused at once. Memory that another
library has held may still be read on streams of its own: its reuse is deferred until all work that
the context had been given by then is done. Nothing here takes a lock or calls the driver on behalf
of the garbage collector: what is freed is queued, and the next user of the device processes the
queue.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....ir.errors import OutOfMemoryError
from .driver import Driver, DriverError

GRANULE = 256  # bytes: the driver aligns allocations so
SHARE = 8  # at most one part in so many of a device's memory is cached
RECURRING_SHARE = 2  # the same with sizes that are requested repeatedly
NO_TIMING = 2  # a flag of cuEventCreate
NO_SUCH_CALL = (-1, 500, 801)  # the bindings have none, NOT_FOUND, NOT_SUPPORTED


@dataclass(slots=True, eq=False)
class Allocation:
    """An allocation. It is ``lent`` once another library has been given its address."""

    address: int
    bytes: int
    lent: bool = False


class DeviceMemory:
    """Bytes on a device, freed when the last reference to this is dropped."""

    __slots__ = ("__weakref__", "address", "block", "bytes")

    def __init__(self, block: Allocation, nbytes: int) -> None:
        self.block = block
        self.address = block.address
        self.bytes = nbytes

    def lend(self) -> None:
        """Note that another library will use it, on streams that only it knows."""
        self.block.lent = True


class Heap:
    """A device's allocations, and cached free memory; used with the device held.

    ``dispose(function, handle)`` releases a handle through the driver and raises nothing.
    """

    def __init__(
        self, driver: Driver, context: Any, dispose: Callable[[str, Any], None], name: str
    ) -> None:
        self.driver = driver
        self.context = context
        self.name = name
        self.returned: deque[Allocation] = deque()
        self.total = 0  # bytes of the device
        self._dispose = dispose
        self._free: dict[int, list[int]] = {}  # addresses by size, the last freed size last
        self._kept = 0  # bytes of them
        self._deferred: deque[tuple[Any, list[Allocation]]] = (
            deque()
        )  # lent, and the events after it
        self._dropped: set[int] = set()  # sizes that were returned to the driver
        self._recurring: set[int] = set()  # those of them that were requested again

    def allocate(self, nbytes: int, what: str) -> DeviceMemory:
        """Allocate at least ``nbytes``; the contents are undefined. ``OutOfMemoryError``."""
        size = max(1, -(-nbytes // GRANULE)) * GRANULE
        self.collect()
        waiting = self._free.get(size)
        if waiting:
            address = waiting.pop()
            self._kept -= size
        else:
            address = self._fresh(size, what)
        block = Allocation(address, size)
        memory = DeviceMemory(block, nbytes)
        weakref.finalize(memory, self.returned.append, block).atexit = False
        return memory

    def collect(self) -> None:
        """Cache what was freed, and lent memory whose other users are done by now."""
        lent = []
        while self.returned:
            block = self.returned.popleft()
            if block.lent:
                lent.append(block)
            else:
                self._keep(block)
        if lent:
            self._defer(lent)
        while self._deferred and self._is_done(self._deferred[0][0]):
            event, blocks = self._deferred.popleft()
            self._dispose("cuEventDestroy", event)
            for block in blocks:
                self._keep(block)
        self._trim()

    def release(self) -> None:
        """Return all cached memory to the driver, which waits for the device."""
        self.collect()
        for size in list(self._free):
            self._drop(size)
        blocks = [b for _, lent in self._deferred for b in lent] + list(self.returned)
        for event, _ in self._deferred:
            self._dispose("cuEventDestroy", event)
        self._deferred.clear()
        self.returned.clear()
        for block in blocks:
            self._dispose("cuMemFree", block.address)
        self._recurring.clear()
        self._dropped.clear()

    def _fresh(self, size: int, what: str) -> int:
        if size in self._dropped:
            self._recurring.add(size)
        for last in (False, True):
            try:
                return int(self.driver.call("cuMemAlloc", size))
            except DriverError as error:
                if not error.out_of_memory:
                    raise
                if last:
                    raise self._full(size, what) from error
                self.release()
        raise AssertionError  # the second attempt returns or raises

    def _full(self, size: int, what: str) -> OutOfMemoryError:
        try:
            free, total = self.driver.call("cuMemGetInfo")
        except DriverError:
            left = f"the driver does not report how much of {self.total} is free"
        else:
            left = f"{free} of {total} are free"
        return OutOfMemoryError(
            f"{self.name} has no room for {what}", f"it takes {size} bytes; {left}"
        )

    def _keep(self, block: Allocation) -> None:
        waiting = self._free.pop(block.bytes, [])
        waiting.append(block.address)
        self._free[block.bytes] = waiting
        self._kept += block.bytes

    def _defer(self, lent: list[Allocation]) -> None:
        """Defer reuse until all work that any stream of the context has been given is done.

        An event on the consumer's stream would not do: the stream may have been destroyed, and the
        array may have been passed on to others. A driver before CUDA 12.5 has no event for a
        context; there ``cuMemFree`` waits. Where the event is refused for now, for example while a
        graph is being recorded, the next call tries again.
        """
        event = None
        try:
            event = self.driver.call("cuEventCreate", NO_TIMING)
            self.driver.call("cuCtxRecordEvent", self.context, event)
        except DriverError as error:
            if event is not None:
                self._dispose("cuEventDestroy", event)
            if error.function == "cuCtxRecordEvent" and error.number in NO_SUCH_CALL:
                for block in lent:
                    self._dispose("cuMemFree", block.address)
                return
            self.returned.extend(lent)
            if error.sticky:
                raise
        else:
            self._deferred.append((event, lent))

    def _is_done(self, event: Any) -> bool:
        try:
            return self.driver.ready("cuEventQuery", event)
        except DriverError as error:
            if error.sticky:
                raise
            return False

    def _trim(self) -> None:
        """Return memory to the driver where too much is cached, the least recently used sizes
        first.

        It trims down to one half of the bound, so that not every call waits for the device. A size
        that was released before and requested again is spared, as long as there is room.
        """
        share = self.total // SHARE
        if self._kept > share:
            self._trim_to(share, [s for s in self._free if s not in self._recurring])
        share = self.total // RECURRING_SHARE
        if self._kept > share:
            self._trim_to(share, list(self._free))

    def _trim_to(self, most: int, sizes: list[int]) -> None:
        for size in sizes:
            if self._kept <= most // 2:
                return
            self._drop(size)

    def _drop(self, size: int) -> None:
        for address in self._free.pop(size):
            self._kept -= size
            self._dispose("cuMemFree", address)
        self._dropped.add(size)
