"""What loops over the threads of a GPU must keep to: where they stand, and who meets whom."""

from __future__ import annotations

from ..ir.loop.nodes import THREADS, Func, Kind
from .concurrent import lanes_disjoint
from .cursor import Path, blocks_under, extent_of, loop_of, loops_of
from .errors import Reason
from .legality import not_opaque

MAX_THREADS = 1024
MAX_GRID = {"blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535}
MAX_BLOCK = {"threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64}


def known_index(thread: str) -> Reason | None:
    """``thread`` is the name of a thread index."""
    if thread in THREADS:
        return None
    return Reason(f"there is no thread index {thread!r}", (), f"there are {', '.join(THREADS)}")


def is_grid(thread: str) -> bool:
    """Whether the index counts blocks of threads."""
    return thread.startswith("blockIdx")


def placed(path: Path, thread: str) -> Reason | None:
    """A loop over ``thread`` may stand at the end of ``path``: blocks of threads outermost, no more
    of them and of threads than a launch can have."""
    loop = loop_of(path)
    above = loops_of(path)[:-1]
    n = extent_of(loop) or 0
    most = {**MAX_GRID, **MAX_BLOCK}[thread]
    if not 0 < n <= most:
        return Reason(
            f"loop `{loop.var.name}` runs {n} times; {thread} takes 1 to {most}",
            (loop,),
            f"split it first: sch.split({loop.var.name}, [None, 256])",
        )
    for x in above:
        if x.kind in (Kind.PARALLEL, Kind.VECTOR):
            return Reason(f"loop `{x.var.name}` around it runs on a CPU's lanes", (x, loop))
        if is_grid(thread) and x.kind is not Kind.THREAD:
            return Reason(
                f"loop `{x.var.name}` around it is no loop over blocks of threads",
                (x, loop),
                "loops over blockIdx stand outermost: reorder first",
            )
        if is_grid(thread) and not is_grid(x.thread):
            return Reason(
                f"loop `{x.var.name}` around it is bound to {x.thread}",
                (x, loop),
                "loops over blockIdx stand around those over threadIdx",
            )
        if is_grid(thread) and x.thread == thread:
            return Reason(f"loop `{x.var.name}` around it is already {thread}", (x, loop))
    return _few_enough(path, thread, n)


def _few_enough(path: Path, thread: str, n: int) -> Reason | None:
    """All threads of the nest together are at most what a block can have."""
    most: dict[str, int] = {} if is_grid(thread) else {thread: n}
    loops = [x for p in blocks_under(path[:1]) for x in loops_of(p)]
    for x in loops:
        if x.kind is Kind.THREAD and not is_grid(x.thread):
            most[x.thread] = max(most.get(x.thread, 1), extent_of(x) or 1)
    total = 1
    for k in most.values():
        total *= k
    if total <= MAX_THREADS:
        return None
    return Reason(
        f"a block would have {total} threads; {MAX_THREADS} is the most",
        (loop_of(path),),
        "split the loop and bind a smaller one",
    )


def may_bind(func: Func, path: Path, thread: str) -> Reason | None:
    """The iterations of the loop may run at once."""
    return not_opaque(blocks_under(path)) or lanes_disjoint(func, path, private=True)
