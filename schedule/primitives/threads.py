"""Loops for the threads of a GPU: bind."""

from __future__ import annotations

from dataclasses import replace

from ...ir.loop.nodes import For, Func, Kind, Stmt
from ..cursor import LoopRef, Path, blocks_under, edit, find_loop, loop_of, loops_of, nest
from ..errors import Reason, require
from ..hints import no_pipeline
from ..launches import threads_hold
from ..legality import constant_extent, plain_loops
from ..threads import known_index, placed


def bind(func: Func, ref: LoopRef, thread: str) -> Func:
    """``for i in range(n)``  ->  ``for i in thread("threadIdx.x", n)``: one iteration a thread.

    ``thread`` is one of ``nodes.THREADS``. Inside a loop over the same index, the iterations are
    shared among the same threads: what they do may not depend on the outer loop.
    """
    asked = f"bind loop `{ref.var.name}` to {thread}"
    path = find_loop(func, ref, asked)
    loop = loop_of(path)
    require(func, asked, known_index(thread), plain_loops((loop,)), no_pipeline(loop))
    require(func, asked, constant_extent(loop), placed(path, thread), _only_threads(path))

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, kind=Kind.THREAD, thread=thread)

    new = edit(func, [(path, change)])
    require(new, asked, threads_hold(new, (nest(new).loops[loop.var],)))
    return new


def _only_threads(path: Path) -> Reason | None:
    for p in blocks_under(path):
        for x in loops_of(p)[len(loops_of(path)) :]:
            if x.kind is Kind.PARALLEL:
                return Reason(
                    f"loop `{x.var.name}` inside it runs in parallel on a CPU", (loop_of(path), x)
                )
    return None
