"""Structures that the probe of a profile writes and Python reads."""

from __future__ import annotations

from ...plan.struct_table import Struct

PROBE = Struct(
    "probe",
    {
        "totals": "ptr",
        "events": "ptr",
        "capacity": "i64",
        "count": "i64",
        "current": "i64",
        "parallel": "i64",
    },
)
"""What a probed program writes: ``totals`` of each thunk and up to ``capacity`` ``events``, of
which there were ``count``; ``current`` is the thunk that runs, ``parallel`` is 1 in a parallel
loop."""

TOTAL = Struct("total", {"seconds": "i64", "calls": "i64", "busy": "i64", "parts": "i64"})
"""Nanoseconds and calls of a thunk; those of all threads in the parts of its parallel loops."""

EVENT = Struct(
    "event", {"thunk": "i64", "part": "i64", "thread": "i64", "begin": "i64", "end": "i64"}
)
"""A thunk, or with ``part`` 1 a part of its parallel loop, on a thread; clock times in ns."""
