"""What native code of the runtime reads and Python fills: the structures that both go by."""

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
        "flags": "i64",
        "threads": "i32",
        "failure": "ptr",
        "type_offset": "i64",
        "ndarray": "ptr",
        "masked_array": "ptr",
    },
)
"""An executable, as ``nw_call`` and ``nw_run`` get it. ``arena`` is the slot of the kept one, null
while it is used; ``type_offset`` is where an object's type is, ``dtype_name`` the string."""

RELEASE_GIL, AS_TUPLE = 1, 2  # flags of an entry

PARAMETER = Struct(
    "parameter", {"rank": "i64", "itemsize": "i64", "code": "i32", "dtype": "ptr", "dims": "ptr"}
)
"""A parameter of an entry. ``code`` has the characters its buffer format may begin with; ``dtype``
is null, or the very object that the array must have where no format says its type."""

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
"""A call that can be interrupted (see ``interrupts_ir``). ``stop`` is 1 once the call has to end,
``seen`` and ``interrupts`` are the counters as the call knows them, ``next`` is when to look at the
handlers, ``thread`` Python's thread state; what a handler raised is the three after ``outer``."""

JOB = Struct(
    "job", {"body": "ptr", "context": "ptr", "count": "i64", "chunks": "i64", "record": "ptr"}
)
"""What the pool's threads work on, stable from a launch until its last chunk is done; ``record`` is
the caller's."""

SEGMENT = Struct("segment", {"below": "ptr", "size": "i64", "used": "i64", "start": "i64"})
"""The head of a piece of scratch memory, of which a thread has a stack: the one below, its size,
the bytes given out, and those given out below it."""
