"""Which cores a timed run uses: the pool's workers and the main thread one each, none shared.

Left to itself the system puts a worker that wakes up beside a busy neighbour on the main thread's
core, and moves it away only after milliseconds. Until then a small kernel takes several times as
long as in a model that has been running for a while.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Barrier, BrokenBarrierError, get_native_id

from ...codegen.runtime.process import runtime

GATHER = 2.0  # seconds within which all threads of the pool should have met


@contextmanager
def placed(threads: int) -> Iterator[None]:
    """Run code of so many threads with every thread of it on a core of its own.

    Nothing is pinned where there are fewer cores than threads, or one thread only. Pool workers
    stay where they are put; the calling thread may go where it likes again afterwards.
    """
    before = _cores()
    if threads < 2 or len(before) < threads:
        yield
        return
    _spread(threads, tuple(sorted(before)))
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@cache
def _spread(threads: int, cores: tuple[int, ...]) -> None:
    """Start the pool's workers and pin each to a core, the first core left to the caller."""
    runtime().set_threads(threads)
    for worker, core in zip(_workers(threads), cores[1:threads], strict=False):
        os.sched_setaffinity(worker, {core})


def _workers(threads: int) -> list[int]:
    """The system's numbers of the pool's workers, all of which run from here on.

    As many chunks as threads, none of which ends before all have begun: each has one.
    """
    found: set[int] = set()
    all_here = Barrier(threads)

    def chunk(context: int | None, begin: int, end: int) -> None:
        found.add(get_native_id())
        with suppress(BrokenBarrierError):  # the system gave fewer threads
            all_here.wait(GATHER)

    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    launch = ctypes.CFUNCTYPE(None, signature, ctypes.c_void_p, ctypes.c_int64)
    launch(runtime().addresses["nw_parallel"])(signature(chunk), None, threads)
    return sorted(found - {get_native_id()})
