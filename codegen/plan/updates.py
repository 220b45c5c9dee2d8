"""Arguments that a plan may overwrite with results: what it copies first and then updates.

A cache of keys comes in as an argument and leaves with a row more as a result. The plan copies it
and writes the row. A caller who passes the same array as argument and result has no use for
the copy, and the row may be written where the cache is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .nodes import BufferSlice, CopyThunk, Plan, Thunk, accesses, children
from .signature import slots

Updates: TypeAlias = frozenset[tuple[int, int]]
"""Pairs of an argument and a result, by slot, that may be the same memory."""


def updated_in_place(plan: Plan) -> Updates:
    """Return the pairs of an argument and a result of a plan that may be the same memory.

    The result begins as a copy of the argument, and nothing reads the argument once something else
    has been written to the result.
    """
    copies = [
        (n, t.source, t.target)
        for n, t in enumerate(plan.thunks)
        if isinstance(t, CopyThunk) and (t.source.memory, t.target.memory) == ("param", "result")
    ]
    if not copies:
        return frozenset()
    params, results = slots(plan.params), slots(plan.results)
    accessed = [tuple(map(set, _slots(t))) for t in plan.thunks]
    found = set[tuple[int, int]]()
    for n, a, b in copies:
        if not a.bytes == params[a.index].bytes == results[b.index].bytes:
            continue
        source, target = ("param", a.index), ("result", b.index)
        if any(target in read | written for read, written in accessed[:n]):
            continue
        writes = [k for k, (_, written) in enumerate(accessed) if k > n and target in written]
        reads = [k for k, (read, _) in enumerate(accessed) if k != n and source in read]
        if max(reads, default=-1) < min(writes, default=len(accessed)):
            found.add((a.index, b.index))
    return frozenset(found)


def _slots(thunk: Thunk) -> tuple[Iterator[tuple[str, int]], Iterator[tuple[str, int]]]:
    """Return the memories that a thunk and those inside it read, and those that they write."""
    read: list[BufferSlice] = []
    written: list[BufferSlice] = []
    waiting = [thunk]
    while waiting:
        t = waiting.pop()
        a, b = accesses(t)
        read += a
        written += b
        waiting += [x for part in children(t) for x in part]
    return ((s.memory, s.index) for s in read), ((s.memory, s.index) for s in written)
