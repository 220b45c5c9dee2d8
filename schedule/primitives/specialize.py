"""Warps of a GPU with roles: specialize."""

from __future__ import annotations

from ...ir.loop.names import called
from ...ir.loop.nodes import For, Func, Stmt
from ...ir.loop.notes import ASYNC, PIPELINE, PRODUCERS
from ...ir.loop.visit import walk
from ..cursor import (
    LoopRef,
    Path,
    block_of,
    blocks_under,
    edit,
    find_loop,
    loop_of,
    loops_of,
    named,
)
from ..declare import primitive
from ..errors import Reason, require
from ..legality import constant_extent


@primitive
def specialize(func: Func, loop: LoopRef, warps: int) -> Func:
    """Give the copies of a pipelined loop to warps of their own, and its work to the others.

    ``warps`` more warps, 1 to 8, than the loops bound to threads ask for copy into the places of
    the pipeline; the others compute with what is there. They wait for each other at mbarriers: for
    a place to be full, and for it to be empty again. Lowering refuses a GPU without mbarriers, a
    number of warps that does not fit the threads, and launches that reduce over threads.

    Refused:
        - a loop that is not pipelined, or has no asynchronous copies to shared memory in it
        - a second such loop of a nest, and a loop inside one without a constant trip count
        - a loop that no threads are bound in or around

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.bind(i, "threadIdx.y")
        sch.bind(j, "threadIdx.x")
        step, _ = sch.split(k, [None, 2])
        a = sch.cache_read("C", 2, "shared")
        sch.compute_at(a, step)
        sch.bind(sch.get_loops(a)[-1], "threadIdx.x")
        sch.annotate(a, "async", 1)
        sch.annotate(step, "pipeline", 2)
        sch.specialize(step, 1)
    """
    asked = f"specialize loop `{named(func, loop)}`"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, _pipelined(node), _only_one(path), _warps(warps))
    require(func, asked, *(constant_extent(x) for x in loops_of(path)))
    require(func, asked, _copies(path), _threads(path))

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return PRODUCERS.put(s, warps)

    return edit(func, [(path, change)])


def _pipelined(node: For) -> Reason | None:
    if PIPELINE.of(node):
        return None
    hint = 'annotate "pipeline", with the number of places, before'
    return Reason(f"loop `{called(node)}` is not pipelined", (node,), hint=hint)


def _only_one(path: Path) -> Reason | None:
    """Require that no other loop of the launch has warps of its own."""
    node = loop_of(path)
    inside = walk(loops_of(path)[0])
    others = [x for x in inside if isinstance(x, For) and PRODUCERS.of(x)]
    if not others:
        return None
    return Reason(
        f"loop `{called(others[0])}` has such warps already",
        (others[0], node),
        hint="specialize one loop of a nest",
    )


def _warps(warps: int) -> Reason | None:
    if PRODUCERS.form.fits(warps):
        return None
    return Reason(f"{warps} warps cannot copy", hint="1 to 8 warps")


def _copies(path: Path) -> Reason | None:
    if any(ASYNC.of(block_of(p)) for p in blocks_under(path)):
        return None
    return Reason(
        f"no copy in loop `{called(loop_of(path))}` is asynchronous",
        (loop_of(path),),
        hint='annotate the blocks that copy to shared memory with "async"',
    )


def _threads(path: Path) -> Reason | None:
    loops = [x for p in blocks_under(path) for x in loops_of(p)]
    if any(x.over_threads for x in loops):
        return None
    hint = "bind the loops of its copies and of its work"
    return Reason("no threads are bound in or around it", (loop_of(path),), hint=hint)
