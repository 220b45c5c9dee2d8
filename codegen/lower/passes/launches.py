"""The launches of a function: its outermost loops over indices of blocks and threads.

And where all threads of a block, or of a warp, meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ....ir.loop.nodes import For, Func, Intrinsic, Kind, Stmt
from ....ir.loop.visit import map_stmt, walk
from .rebuild import with_body

BARRIER, WARP_BARRIER = Intrinsic("barrier"), Intrinsic("warp_barrier")
PROXY_FENCE = Intrinsic("fence_proxy_async")
"""Makes a thread's stores to shared memory visible to asynchronous copies and products."""


def each_launch(func: Func, rewrite: Callable[[For], Stmt]) -> Func:
    """Return ``func`` with each launch, given as its outermost loop, rewritten."""

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind is Kind.THREAD:
            return rewrite(s)
        return map_stmt(s, stmt)

    return with_body(func, stmt(func.body))


def thread_loops(s: Stmt) -> Iterator[For]:
    """Yield the loops in a statement that are bound to indices of blocks or threads."""
    return (x for x in walk(s) if isinstance(x, For) and x.kind is Kind.THREAD)


def has_threads(s: Stmt) -> bool:
    """True if any part of a statement runs on threads."""
    return next(thread_loops(s), None) is not None


def opened(s: Stmt) -> tuple[list[For], Stmt]:
    """Return the loops of a launch that begins at ``s``, outermost first, and what is in them."""
    loops: list[For] = []
    while isinstance(s, For) and s.kind is Kind.THREAD:
        loops.append(s)
        s = s.body
    return loops, s


def closed(loops: Sequence[For], body: Stmt) -> Stmt:
    """Return ``body`` in loops that ``opened`` gave."""
    for loop in reversed(loops):
        body = loop if body is loop.body else replace(loop, body=body)
    return body
