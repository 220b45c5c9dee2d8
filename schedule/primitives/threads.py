"""Loops for the threads of a GPU: bind."""

from __future__ import annotations

from dataclasses import replace

from ...ir.loop.nodes import For, Func, Kind, Stmt
from ..cursor import LoopRef, edit, find_loop, loop_of
from ..errors import require
from ..hints import no_pipeline
from ..legality import constant_extent, plain_loops
from ..threads import known_index, may_bind, placed


def bind(func: Func, ref: LoopRef, thread: str) -> Func:
    """``for i in range(n)``  ->  ``for i in thread("threadIdx.x", n)``: one iteration a thread.

    ``thread`` is one of ``nodes.THREADS``. Inside a loop over the same index, the iterations are
    shared among the same threads: what they do may not depend on the outer loop.
    """
    asked = f"bind loop `{ref.var.name}` to {thread}"
    path = find_loop(func, ref, asked)
    loop = loop_of(path)
    require(func, asked, known_index(thread), plain_loops((loop,)), no_pipeline(loop))
    require(func, asked, constant_extent(loop))

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, kind=Kind.THREAD, thread=thread)

    require(func, asked, placed(path, thread), may_bind(func, path, thread))
    return edit(func, [(path, change)])
