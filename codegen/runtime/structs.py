"""Structures that Python fills and the native code of the runtime reads."""

from __future__ import annotations

from ..plan.struct_table import Struct

ENTRY = Struct(
    "entry",
    {
        "parameters_count": "i64",
        "parameters": "ptr",
        "results_count": "i64",
        "results": "ptr",
        "run": "ptr",
        "arena_bytes": "i64",
        "arena": "ptr",
        "constants": "ptr",
        "slow": "ptr",
        "dtype_name": "ptr",
        "out_name": "ptr",
        "flags": "i64",
        "threads": "i32",
        "failure": "ptr",
        "type_offset": "i64",
        "ndarray": "ptr",
        "exchange": "ptr",
    },
)
"""An executable, as passed to ``nw_call`` and ``nw_run``. ``arena`` is the cached arena's slot,
null while in use; ``type_offset`` is the offset of an object's type, ``dtype_name`` and
``out_name`` are the strings ``"dtype"`` and ``"out"``; ``exchange`` is null or a type of arrays
that is read by DLPack. The table of parameters continues with the results, as ``out=`` needs
them."""

RELEASE_GIL, AS_TUPLE = 1, 2  # flags of an entry

PARAMETER = Struct(
    "parameter",
    {
        "rank": "i64",
        "itemsize": "i64",
        "bytes": "i64",
        "updates": "i64",
        "code": "i32",
        "dlpack": "i32",
        "dtype": "ptr",
        "dims": "ptr",
    },
)
"""A parameter of an entry, or a result. ``updates`` is the number of the parameter whose memory a
result may have, or -1 (``plan.updates``); ``code`` has the characters that the buffer format may
begin with; ``dtype`` is null, or the very object that the array must have if its type has no
format; ``dlpack`` is DLPack's element type as a number, or 0, and is set with the entry's
``exchange``."""

RESULT = Struct("result", {"allocator": "ptr", "arguments": "[2 x ptr]"})
"""A result of an entry: the function that makes it, and its arguments, shape and dtype."""

PY_BUFFER = Struct(
    "Py_buffer",
    {
        "buf": "ptr",
        "obj": "ptr",
        "len": "i64",
        "itemsize": "i64",
        "readonly": "i32",
        "ndim": "i32",
        "format": "ptr",
        "shape": "ptr",
        "strides": "ptr",
        "suboffsets": "ptr",
        "internal": "ptr",
    },
)
"""CPython's view of an object's memory."""

RECORD = Struct(
    "record",
    {
        "stop": "i32",
        "seen": "i32",
        "next": "i64",
        "thread": "ptr",
        "outer": "ptr",
        "type": "ptr",
        "value": "ptr",
        "traceback": "ptr",
        "interrupts": "i32",
    },
)
"""A call that can be interrupted (``targets.cpu.calls``). ``stop`` is 1 once the call has to end,
``seen`` and ``interrupts`` are the counters as the call knows them, ``next`` is the time of the
next check of the handlers, ``thread`` Python's thread state; the three fields after ``outer`` are a
handler's exception."""

JOB = Struct(
    "job", {"body": "ptr", "context": "ptr", "count": "i64", "chunks": "i64", "record": "ptr"}
)
"""The job of the pool's threads, constant from a launch until its last chunk is done; ``record`` is
the caller's."""

SEGMENT = Struct("segment", {"below": "ptr", "size": "i64", "used": "i64", "start": "i64"})
"""The header of a piece of scratch memory (a thread has a stack of them): the piece below, its
size, the bytes in use, and those in use below it."""

POOL = Struct(
    "pool",
    {
        "ticket": "[8 x i64]",
        "done": "[16 x i32]",
        "sleepers": "[16 x i32]",
        "threads": "[16 x i32]",
        "job": "[8 x i64]",
        "busy": "i32",
        "owner": "i32",
        "started": "i32",
        "born": "i32",
    },
)
"""A pool of threads, at a multiple of 64 bytes. What its threads share comes first, each in a cache
line of its own: the ticket, the chunks done, the workers asleep, the threads to use, the job
(``JOB``). ``started`` workers were created, ``born`` of them run, in process ``owner``."""

SEAT = Struct("seat", {"pool": "ptr", "scratch": "ptr"})
"""A thread inside a call of an instance: the instance's pool, and the thread's newest segment."""
