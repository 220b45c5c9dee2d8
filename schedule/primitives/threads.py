"""Binding loops to the threads of a GPU: bind."""

from __future__ import annotations

from dataclasses import replace

from ...ir.loop.names import called
from ...ir.loop.nodes import For, Func, Kind, Stmt
from ..cursor import LoopRef, Path, blocks_under, edit, find_loop, loop_of, loops_of, named, nest
from ..declare import primitive
from ..errors import Reason, require
from ..hints import no_pipeline
from ..launches import check_launches
from ..legality import constant_extent, plain_loops
from ..threads import known_index, placed


@primitive
def bind(func: Func, loop: LoopRef, thread: str) -> Func:
    """Bind a loop to threads, or to blocks of threads, of a GPU.

    ``thread`` is one of ``blockIdx.x/y/z`` and ``threadIdx.x/y/z``. Inside a loop over the same
    index, the same threads share the iterations, which may not depend on the outer loop. What
    follows a loop over blocks, inside of another one, is done by the last of its blocks to finish.

    Refused:
        - a loop without a constant trip count, or with more iterations than the index allows
        - a loop over the grid inside a loop over threads or a serial one
        - threads that would read the registers of another thread, or write the same element
        - a reduction that is not over ``threadIdx.x``, or whose updates cannot be combined

    Example:
        sch = product()
        i, j = sch.get_loops("D")
        sch.bind(i, "blockIdx.x")
    """
    asked = f"bind loop `{named(func, loop)}` to {thread}"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, known_index(thread), plain_loops((node,)), no_pipeline(node))
    require(func, asked, constant_extent(node), placed(path, thread), _only_threads(path))

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, kind=Kind.THREAD, thread=thread)

    new = edit(func, [(path, change)])
    require(new, asked, check_launches(new, (nest(new).loops[node.var],)))
    return new


def _only_threads(path: Path) -> Reason | None:
    for p in blocks_under(path):
        for x in loops_of(p)[len(loops_of(path)) :]:
            if x.kind is Kind.PARALLEL:
                return Reason(
                    f"loop `{called(x)}` inside it runs in parallel on a CPU",
                    (loop_of(path), x),
                    hint="bind another loop, or drop parallel, which is for a CPU",
                )
    return None
