"""What the simulator's runtime and the code it runs agree on: structures, states, kinds of fault.

A kernel's module describes each launch and each of its buffers in constants; the runtime keeps a
record of every buffer while the launch runs, tells the threads their numbers through ``%sim``, and
leaves what went wrong in one report that Python reads.
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
"""What a thread sees: its numbers, the kernel's arguments, the block's memory, the records."""

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
"""A launch. ``granule`` is the logarithm of the bytes that the shadow of shared memory counts in;
``slots`` are the operands that one thread deposits at most."""

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
"""A buffer: ``arg`` is the number of the argument it lies in, -1 for shared memory."""

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
"""A buffer of the launch that runs. ``others`` points to the time since which threads of other
blocks count as unordered."""

CELL = Struct(
    "cell",
    {"written": "i32", "by": "i32", "read": "i32", "one": "i32", "two": "i32", "part": "i32"},
)
"""The shadow of a granule of memory: when it was written and by whom (or by whom it is about to be,
with ``PENDING``), when it was read last, two readers, and the buffer that the write was a part of.
"""
PENDING = 1 << 31

QUEUE = Struct(
    "queue",
    {"entries": "ptr", "capacity": "i64", "first": "i64", "count": "i64", "group": "i64"},
)
"""A thread's asynchronous copies, a ring of ``COPY``; ``group`` is the one that is open."""

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
"""A copy under way; ``real`` bytes are there to be copied, the rest becomes zero."""

SITE = Struct("site", {"name": "ptr", "scope": "i64", "action": "ptr"})
"""A place where threads wait for each other: ``scope`` is one of ``WARP`` and ``BLOCK``."""
WARP, BLOCK, BARRIER = 0, 1, 2  # BARRIER is added where memory is ordered too

STOPPED = "nw_sim_stopped"  # a function of the runtime: whether the call was interrupted

DONE, READY, FIRST_SITE = 0, 1, 2  # states of a thread; from FIRST_SITE on it waits at a site

WRITES, ALIGNED = 1, 2  # how an access is made

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
"""What went wrong: ``kind`` is a ``FaultKind``, or 0 as long as nothing has."""


class FaultKind(IntEnum):
    """What went wrong."""

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
"""Every offset and number under the name that the runtime's templates call it by."""
