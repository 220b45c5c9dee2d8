"""Placement of timed runs: the pool's workers and the main thread get a core and priority each.

Otherwise the system may wake a worker on the main thread's core and migrate it only after
milliseconds. Until then a small kernel takes several times as long as in a model that has been
running for a while. Where the system grants real-time priority, other programs wait meanwhile,
unless ``NESTWRIGHT_REALTIME`` is ``off``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Barrier, BrokenBarrierError, get_native_id

from ....codegen.runtime.process import runtime
from ....ir.errors import ArgumentError

GATHER = 2.0  # seconds within which all threads of the pool should reach the barrier
VARIABLE = "NESTWRIGHT_REALTIME"
PRIORITY = 1  # the least real-time one: any other program with one goes first
THROTTLE = Path("/proc/sys/kernel")
"""Where Linux tells the share of time that real-time threads may take."""


@contextmanager
def placed(threads: int) -> Iterator[None]:
    """Pin each thread of code with ``threads`` threads to a core of its own, with priority.

    Nothing is pinned if there are fewer cores than threads, or a single thread, or if the system
    does not allow it. The priority is raised where threads cannot get in each other's way, and if
    the system allows it. Pool workers stay pinned; everything else is undone afterwards.
    """
    before = _cores()
    pinned = threads > 1 and len(before) >= threads
    pinned = pinned and _spread(threads, tuple(sorted(before))) and _pin(0, {min(before)})
    timed = (0, *_workers(threads)) if pinned else (0,) if threads == 1 else ()
    raised = [t for t in timed if wanted() and _throttled() and _raise(t)]
    try:
        yield
    finally:
        for thread in raised:
            _schedule(thread, "SCHED_OTHER", 0)
        if pinned:
            _pin(0, before)


@contextmanager
def preferred() -> Iterator[None]:
    """Give all threads of this process priority for a while, whoever started them.

    Nothing is pinned. As for ``placed``, the priority is raised if the system allows it.
    """
    tasks = Path("/proc/self/task")
    threads = [int(t.name) for t in tasks.iterdir()] if wanted() and _throttled() else []
    raised = [t for t in threads if _raise(t)]
    try:
        yield
    finally:
        for thread in raised:
            _schedule(thread, "SCHED_OTHER", 0)


def priority() -> str:
    """Tell if timed code takes real-time priority here, and why not."""
    if not wanted():
        return f"off ({VARIABLE})"
    if not _throttled():
        return "not taken: the system would keep no time for other threads"
    if not _raise(0):
        return "not granted by the system"
    _schedule(0, "SCHED_OTHER", 0)
    return f"taken while code is timed ({VARIABLE}=off for none)"


def wanted() -> bool:
    """Return False if the environment turns priority off; ``ArgumentError`` for nonsense."""
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "on", "off"):
        raise ArgumentError(f"{VARIABLE}={text!r}", "it must be on or off")
    return text != "off"


def _raise(thread: int) -> bool:
    return _schedule(thread, "SCHED_FIFO", PRIORITY)


@cache
def _throttled() -> bool:
    """True if the system keeps time for other threads, so that the parent can end a hang."""
    try:
        period, share = (
            int((THROTTLE / f"sched_rt_{name}_us").read_text()) for name in ("period", "runtime")
        )
    except (OSError, ValueError):
        return False
    return 0 < share < period


def _schedule(thread: int, policy: str, priority: int) -> bool:
    """Set a thread's (0: this one's) policy; False if the system refuses or has none."""
    try:
        os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(priority))
    except (OSError, AttributeError):
        return False
    return True


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _pin(thread: int, cores: set[int]) -> bool:
    """Limit a thread (0: this one) to cores; False if the system refuses."""
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:  # a sandbox's filter, or a core that was taken away
        return False
    return True


@cache
def _spread(threads: int, cores: tuple[int, ...]) -> bool:
    """Start the pool's workers and pin each to a core, leaving the first one to the caller.

    False if the system refuses.
    """
    runtime().set_threads(threads)
    pairs = zip(_workers(threads), cores[1:threads], strict=False)
    return all([_pin(worker, {core}) for worker, core in pairs])


@cache
def _workers(threads: int) -> tuple[int, ...]:
    """Return the thread ids of the pool's workers, after starting them.

    There are as many chunks as threads, and none ends before all have started, so each thread has
    one.
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
    return tuple(sorted(found - {get_native_id()}))
