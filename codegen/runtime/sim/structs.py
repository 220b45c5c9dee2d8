"""The interface of the simulator's runtime and the code it runs: structures, states, fault kinds.

A kernel's module describes each launch and each of its buffers in constants; the runtime keeps a
record of every buffer while the launch runs, gives the threads their indices through ``%sim``, and
writes faults into one report that Python reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from ....ir.loop.nodes import THREADS
from ...plan.struct_table import Struct

SIM = Struct(
    "sim", {**dict.fromkeys(THREADS, "i64"), "args": "ptr", "shared": "ptr", "buffers": "ptr"}
)
"""A thread's view: its indices, the kernel's arguments, the block's memory, the records."""

LAUNCH = Struct(
    "launch",
    {
        "name": "ptr",
        "body": "ptr",
        **{f"{of}.{axis}": "i64" for of in ("grid", "block") for axis in "xyz"},
        "suspends": "i64",
        "shared_bytes": "i64",
        "granule": "i64",
        "count": "i64",
        "buffers": "ptr",
        "slots": "i64",
        "sites": "ptr",
    },
)
"""A launch. ``granule`` is the log2 of the bytes that one cell of shared memory's shadow covers;
``slots`` is the most operands that one thread deposits."""

BUFFER = Struct(
    "buffer",
    {
        "name": "ptr",
        "arg": "i64",
        "offset": "i64",
        "bytes": "i64",
        "shift": "i64",
        "shadowed": "i64",
    },
)
"""A buffer: ``arg`` is the number of the argument that contains it, -1 for shared memory."""

RECORD = Struct(
    "sim_record",
    {
        "base": "ptr",
        "bytes": "i64",
        "cells": "ptr",
        "shift": "i64",
        "static": "ptr",
        "others": "ptr",
    },
)
"""A buffer of the running launch. ``others`` points to the time since which other blocks' accesses
are unordered."""

CELL = Struct(
    "cell",
    {"written": "i32", "by": "i32", "read": "i32", "one": "i32", "two": "i32", "part": "i32"},
)
"""The shadow of a granule of memory: the time and thread of the last write (of a pending one, with
``PENDING``), the time of the last read, two readers, and the buffer that was written."""
PENDING = 1 << 31

QUEUE = Struct(
    "queue",
    {"entries": "ptr", "capacity": "i64", "first": "i64", "count": "i64", "group": "i64"},
)
"""A thread's asynchronous copies, a ring of ``COPY``; ``group`` is the open one."""

COPY = Struct(
    "copy",
    {
        "target": "ptr",
        "source": "ptr",
        "bytes": "i64",
        "real": "i64",
        "group": "i64",
        "record": "ptr",
    },
)
"""A copy in progress; ``real`` bytes are copied, the rest is zero-filled."""

SITE = Struct("site", {"name": "ptr", "scope": "i64", "action": "ptr"})
"""A place where threads wait for each other: ``scope`` is one of ``WARP`` and ``BLOCK``."""
WARP, BLOCK, BARRIER = 0, 1, 2  # BARRIER is added if it orders memory too

STOPPED = "nw_sim_stopped"  # a function of the runtime: true if the call was interrupted

DONE, READY, FIRST_SITE = 0, 1, 2  # states of a thread; from FIRST_SITE on it waits at a site

WRITES, ALIGNED = 1, 2  # flags of an access

REPORT = Struct(
    "report",
    {
        "kind": "i64",
        "launch": "ptr",
        "subject": "ptr",
        "element": "i64",
        "thread": "i64",
        "block": "i64",
        "other": "i64",
        "other_block": "i64",
        "write": "i64",
        "other_write": "i64",
        "elements": "i64",
        "other_site": "ptr",
    },
)
"""The fault of a run: ``kind`` is a ``FaultKind``, or 0 if there is none."""


class FaultKind(IntEnum):
    """The kinds of faults."""

    RACE = 1
    UNWRITTEN = 2
    BOUNDS = 3
    PENDING = 4
    DIVERGED = 5
    MISALIGNED = 6


_CODES = {
    **{f"kind.{kind.name}": kind.value for kind in FaultKind},
    "state.DONE": DONE,
    "state.READY": READY,
    "state.FIRST_SITE": FIRST_SITE,
    "scope.BLOCK": BLOCK,
    "scope.WARP_ORDERED": WARP + BARRIER,
    "scope.BLOCK_ORDERED": BLOCK + BARRIER,
    "how.WRITES": WRITES,
    "how.ALIGNED": ALIGNED,
    "how.WRITES_ALIGNED": WRITES | ALIGNED,
    "PENDING_BIT": PENDING - (1 << 32),
    "WRITER_BITS": PENDING - 1,
}
_STRUCTS = (SIM, LAUNCH, BUFFER, RECORD, CELL, QUEUE, COPY, SITE, REPORT)

NAMES: Mapping[str, int] = MappingProxyType(
    dict(item for table in (*(s.names for s in _STRUCTS), _CODES) for item in table.items())
)
"""Every offset and number by its name in the runtime's templates."""
