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
from ....ir.loop.tensor_memory import LANES, MOST_COLUMNS
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
        **{f"{of}.{axis}": "i64" for of in ("grid", "block", "ranks") for axis in "xyz"},
        "suspends": "i64",
        "shared_bytes": "i64",
        "granule": "i64",
        "count": "i64",
        "buffers": "ptr",
        "slots": "i64",
        "counters": "i64",
        "sites": "ptr",
        "hooks": "ptr",
    },
)
"""A launch. ``ranks``, blocks of a cluster, is 1 in x, y and z where blocks are on their own.
``granule`` is the log2 of the bytes that one cell of shared memory's shadow covers; ``slots`` is
the most operands that one thread deposits; ``counters`` are those of arrivals of blocks;
``hooks`` is null unless its threads wait at barriers for some of a block, or for the asynchronous
proxy."""

HOOKS = Struct(
    "hooks",
    dict.fromkeys(
        ("open", "begin", "end", "unordered", "unfenced", "meet", "progress", "stuck"), "ptr"
    ),
)
"""What a kernel's module adds to the runtime (``order.ll``): when a launch and a block begin
and end, what orders two threads, after threads met, when none can go on, and when nothing helps."""

CORE = Struct(
    "core",
    dict.fromkeys(("time", "thread", "self", "block", "block_since", "state", "launch"), "ptr"),
)
"""Where the runtime keeps its state, for hooks."""

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
    {
        "written": "i32",
        "by": "i32",
        "read": "i32",
        "one": "i32",
        "two": "i32",
        "part": "i32",
        "earlier": "i32",
    },
)
"""The shadow of a granule of memory: the time and thread of the last write (of a pending one, with
``PENDING``), the time of the last read, two readers, the buffer that was written, and when the
first of two readers read it. What the asynchronous proxy wrote is ``LANDED`` and the number of the
mbarrier that tells."""
PENDING, LANDED = 1 << 31, 1 << 30

ARRIVAL = Struct("arrival", {"counter": "i32", "since": "i32", "when": "i32"})
"""A block's last arrival: the counter, from 1 on, the times of the barrier before and of it."""

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

BAR = Struct(
    "bar",
    {
        "address": "i64",
        "phase": "i64",
        "expected": "i64",
        "pending": "i64",
        "bytes": "i64",
        "flying": "i64",
        "name": "ptr",
        "element": "i64",
        "maker": "i64",
    },
)
"""A barrier with phases: how many have ended, arrivals of a phase and of those the missing ones,
bytes that have yet to land, copies under way; name and element of the mbarrier, or the number of a
named one; the thread (from 1 on) that made it and has not fenced that. Four rows follow (see
``order.ll``)."""
NAMED_BARS, BARS = 16, 80  # named barriers come first; of mbarriers a block has at most the rest

FLIGHT = Struct(
    "flight",
    {
        "land": "ptr",
        "thread": "i64",
        "bar": "i64",
        "group": "i64",
        "to": "ptr",
        "target": "ptr",
        "source": "ptr",
        "box": "ptr",
        "column": "i64",
        "row": "i64",
    },
)
"""What is under way: the function that ends it, who began it, the barrier that it counts at; the
thread's group of copies, or a box: the record and address of shared memory, the matrix, the
description of both (``BOX``), and where the box lies in the matrix."""

BOX = Struct(
    "box",
    dict.fromkeys(("columns", "rows", "pitch", "wide", "high", "swizzle", "bytes"), "i64"),
)
"""The matrix and box of a bulk copy, in elements of ``bytes``; see the row ``tma_load``."""

ASYNC_READ = Struct(
    "async_read",
    {"thread": "i64", "kind": "i64", "group": "i64", "record": "ptr", "at": "ptr", "size": "i64"},
)
"""Shared memory that is read asynchronously (or sums, in registers or tensor memory, a left operand
in registers, registers that are loaded), by a thread's group of bulk stores or of products; of
products by the first of 128 threads."""
READ_BOX, READ_OPERAND, READ_SUMS, READ_HELD, READ_LOADED, READ_TENSOR = 0, 1, 2, 3, 4, 5
USED, ALLOCATED = 1, 2  # what a thread did in tensor memory since its fence
FUTURE = -16  # the time at which what is read asynchronously is read

LAYOUT = Struct("layout", dict.fromkeys(("turned", "swizzle", "leading", "stride", "table"), "i64"))
"""How an operand of a product lies in shared memory (``warpgroups.Descriptor``), and where the
values of its codes are, if they have one byte."""

PRODUCT = Struct(
    "product",
    {
        **dict.fromkeys(("columns", "depth", "bytes", "kind", "whole", "held"), "i64"),
        **dict.fromkeys("ab", f"[{len(LAYOUT.fields)} x i64]"),
    },
)
"""A product of 128 threads: columns, depth, operands' bytes and kind, 1 if of integers, 1 if the
left operand is in registers, and a ``LAYOUT`` of each operand."""
ELEMENTS = ("byte", "bf16", "f16", "tf32")  # kinds of operands

SITE = Struct("site", {"name": "ptr", "scope": "i64", "action": "ptr"})
"""A place where threads wait for each other: ``scope`` is ``WARP``, ``BLOCK``, ``GROUP`` or
``CLUSTER``."""
WARP, BLOCK, BARRIER, GROUP = 0, 1, 2, 4  # BARRIER is added if it orders memory too
CLUSTER = 8

STOPPED = "nw_sim_stopped"  # a function of the runtime: true if the call was interrupted

DONE, READY, FIRST_SITE = 0, 1, 2  # states of a thread; from FIRST_SITE on it waits at a site
BLOCKED = 1 << 30  # from here on, it waits for a barrier with a number, or in nobody's sight

WRITES, ALIGNED, PROXY = 1, 2, 4  # flags of an access; PROXY: it is asynchronous

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
        "phase": "i64",
        "expected": "i64",
        "pending": "i64",
        "missing": "i64",
        "waiting": "i64",
        "other_element": "i64",
        "named": "i64",
    },
)
"""The fault of a run: ``kind`` is a ``FaultKind``, or 0 if there is none. The last ones tell of a
barrier with phases (``BAR``), and how many wait there."""


class FaultKind(IntEnum):
    """The kinds of faults."""

    RACE = 1
    UNWRITTEN = 2
    BOUNDS = 3
    PENDING = 4
    DIVERGED = 5
    MISALIGNED = 6
    DEADLOCK = 7
    UNFENCED = 8
    UNWAITED = 9
    EARLY = 10
    LEFT = 11
    COUNTS = 12
    TOO_MANY = 13
    BARE = 14
    ARRIVALS = 15
    LEFT_READ = 16
    DIFFERS = 17
    UNFENCED_SUMS = 18
    SUMS = 19
    BUSY = 20
    UNJOINED = 21
    NO_BLOCK = 22
    ENDED = 23
    HELD = 24
    NO_COLUMNS = 25
    COLUMNS = 26
    KEPT = 27
    STALE = 28
    UNSENT = 29
    SUMS_EARLY = 30
    AGAIN = 31
    FRESH = 32
    REPLACED = 33


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
    "how.PROXY": PROXY,
    "how.WRITES_PROXY": WRITES | PROXY,
    "scope.GROUP": GROUP,
    "scope.CLUSTER": CLUSTER,
    "scope.CLUSTER_ORDERED": CLUSTER + BARRIER,
    "scope.WIDE": BLOCK | CLUSTER,
    "read.BOX": READ_BOX,
    "read.OPERAND": READ_OPERAND,
    "read.SUMS": READ_SUMS,
    "read.HELD": READ_HELD,
    "read.LOADED": READ_LOADED,
    "read.TENSOR": READ_TENSOR,
    "open.USED": USED,
    "open.ALLOCATED": ALLOCATED,
    "LANES": LANES,
    "LAST_LANE": LANES - 1,
    "COLUMNS": MOST_COLUMNS,
    "FUTURE": FUTURE,
    **{f"element.{name.upper()}": n for n, name in enumerate(ELEMENTS)},
    "state.BLOCKED": BLOCKED,
    "state.SITES": BLOCKED - FIRST_SITE,
    "LANDED_BIT": LANDED,
    "NUMBER_BITS": LANDED - 1,
    "NAMED_BARS": NAMED_BARS,
    "BARS": BARS,
    "PADDED_BARS": BARS + 7,
    "SIGN": int.from_bytes(b"mbarrier"[:4], "little") << 32,
    "PENDING_BIT": PENDING - (1 << 32),
    "WRITER_BITS": PENDING - 1,
}
_STRUCTS = (
    SIM,
    LAUNCH,
    HOOKS,
    CORE,
    BUFFER,
    RECORD,
    CELL,
    ARRIVAL,
    QUEUE,
    COPY,
    SITE,
    REPORT,
    BAR,
    FLIGHT,
    BOX,
    ASYNC_READ,
    LAYOUT,
    PRODUCT,
)

NAMES: Mapping[str, int] = MappingProxyType(
    dict(item for table in (*(s.names for s in _STRUCTS), _CODES) for item in table.items())
)
"""Every offset and number by its name in the runtime's templates."""
