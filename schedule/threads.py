"""Placement of thread loops on a GPU, and limits on their extents.

Loops over blocks of threads (``blockIdx``) are outermost, and the blocks run in no order. What
follows such a loop inside of another one is a join: the last of its blocks to finish does it. Loops
over the threads of a block may be anywhere inside, also inside a loop over the same index, whose
iterations they then share.

Threads of ``threadIdx.x`` can share a reduction: each reduces its own terms, then the partial
results are combined. Then, from the reduction's outermost loop inward,

* there is no other loop over threads: those over elements of the result are outside;
* the loop over threads is the outermost, unless the terms may be reordered;
* nothing reads the result, which is complete only after the last term.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod

from ..ir.loop.build import FALSE
from ..ir.loop.names import called
from ..ir.loop.nodes import THREADS, AxisKind, Block, For, Kind, Seq
from .combiner import combiner_of
from .cursor import Path, block_of, extent_of, loop_of, loops_of
from .errors import Reason
from .guards import starting_guard
from .legality import KINDS, bound_vars, constant_extent, visits_once

MAX_THREADS = 1024
MAX_EXTENT: Mapping[str, int] = {
    "blockIdx.z": 65535,
    "blockIdx.y": 65535,
    "blockIdx.x": 2**31 - 1,
    "threadIdx.z": 64,
    "threadIdx.y": 1024,
    "threadIdx.x": 1024,
}
SHARING = "threadIdx.x"  # the index whose threads may share a reduction


def known_index(thread: str) -> Reason | None:
    """Require that ``thread`` is the name of a thread index."""
    if thread in THREADS:
        return None
    return Reason(f"unknown thread index {thread!r}", (), hint=f"known: {', '.join(THREADS)}")


def is_grid(thread: str) -> bool:
    """True if the index counts blocks of threads."""
    return thread.startswith("blockIdx")


def placed(path: Path, thread: str) -> Reason | None:
    """Require that the loop at the end of ``path`` may be bound to ``thread``.

    Its extent is within the index's limit, and blocks of threads are outermost.
    """
    loop = loop_of(path)
    n, most = extent_of(loop) or 0, MAX_EXTENT[thread]
    if not 0 < n <= most:
        return Reason(
            f"loop `{called(loop)}` runs {n} times; {thread} takes 1 to {most}",
            (loop,),
            hint=f'split it first: sch.split("{called(loop)}", [None, {min(most, 256)}])',
        )
    for x in loops_of(path)[:-1]:
        if x.kind in (Kind.PARALLEL, Kind.VECTOR):
            return Reason(
                f"loop `{called(x)}` around it is already {KINDS[x.kind]}",
                (x, loop),
                hint="a nest is either for a CPU or for a GPU",
            )
        if is_grid(thread):
            reason = _around_grid(x, loop, thread)
            if reason is not None:
                return reason
    return _alone(path) if is_grid(thread) else None


def _alone(path: Path) -> Reason | None:
    """Require that a launch has nothing beside a loop over blocks of threads, or what joins them.

    No block of threads would be in charge of it.
    """
    loop = loop_of(path)
    for s, inner in pairwise(path[1:]):
        if not isinstance(s, For) and not (isinstance(s, Seq) and s.stmts[0] is inner):
            beside = s.stmts if isinstance(s, Seq) else (s,)
            return Reason(
                f"loop `{called(loop)}` over {loop.thread or 'blocks of threads'} is not alone "
                "in the launch",
                (*(x for x in beside if all(x is not y for y in path)), loop),
                hint="everything in a launch is inside all loops over blockIdx: compute_at the "
                "innermost of them; what joins their results may follow",
            )
    return None


def _around_grid(outer: For, loop: For, thread: str) -> Reason | None:
    name = called(outer)
    if outer.kind is not Kind.THREAD:
        return Reason(
            f"loop `{name}` around it is not a loop over thread blocks",
            (outer, loop),
            hint="loops over blockIdx are outermost: reorder, or bind the outer loop",
        )
    if not is_grid(outer.thread):
        return Reason(
            f"loop `{name}` around it is bound to {outer.thread}",
            (outer, loop),
            hint="loops over blockIdx go around those over threadIdx: reorder first",
        )
    if outer.thread == thread:
        return Reason(
            f"loop `{name}` around it is already bound to {thread}",
            (outer, loop),
            hint="fuse the two loops first, and bind the fused one",
        )
    return None


def few_enough(sizes: Mapping[str, int], loop: For) -> Reason | None:
    """Require that a block has at most ``MAX_THREADS`` threads."""
    own = {name: n for name, n in sizes.items() if not is_grid(name)}
    total = prod(own.values())
    if total <= MAX_THREADS:
        return None
    listed = " x ".join(f"{n} ({name})" for name, n in own.items())
    return Reason(
        f"a block would have {listed} = {total} threads; {MAX_THREADS} is the most",
        (loop,),
        hint="split the loop and bind a smaller one",
    )


def is_shared(block: Block, loop: For) -> bool:
    """True if the threads of a loop share the block's reduction."""
    return loop.kind is Kind.THREAD and loop.var in bound_vars(block, AxisKind.REDUCE)


def may_share(path: Path, loop: For) -> Reason | None:
    """Require that the threads of ``loop`` may share the reduction at the end of ``path``."""
    block = block_of(path)
    loops = loops_of(path)
    reduce = bound_vars(block, AxisKind.REDUCE)
    over = [x for x in loops if (x.var in reduce and extent_of(x) != 1) or x is loop]
    inner = loops[next(n for n, x in enumerate(loops) if x is over[0]) :]
    return (
        _right_index(block, loop)
        or _one_share(block, loop, inner)
        or _known_combiner(block, loop, over)
        or next((r for x in over if (r := constant_extent(x)) is not None), None)
        or visits_once(block, loops, [x for x in inner if extent_of(x) != 1])
        or _guarded_throughout(block)
    )


def still_shared(path: Path) -> Reason | None:
    """Require that every shared reduction at the end of a path is legal."""
    shared = [x for x in loops_of(path) if is_shared(block_of(path), x)]
    return next((r for x in shared if (r := may_share(path, x)) is not None), None)


def _right_index(block: Block, loop: For) -> Reason | None:
    if loop.var in bound_vars(block, AxisKind.SPATIAL):
        return Reason(
            f"loop `{called(loop)}` drives both spatial and reduction axes of `{block.name}`",
            (loop, block),
            hint="split off a loop of the reduction alone, and bind that",
        )
    if loop.thread == SHARING:
        return None
    return Reason(
        f"loop `{called(loop)}` is a reduction loop of `{block.name}`; only the threads of "
        f"{SHARING} can combine their results",
        (loop, block),
        hint=f"bind it to {SHARING}, or rfactor to give each iteration a partial result",
    )


def _one_share(block: Block, loop: For, inner: tuple[For, ...]) -> Reason | None:
    other = next((x for x in inner if x.kind is Kind.THREAD and x is not loop), None)
    if other is None:
        return None
    return Reason(
        f"loop `{called(other)}` over {other.thread} is among the reduction loops of "
        f"`{block.name}`, whose result threads share",
        (other, loop, block),
        hint="reorder it outward, and fuse the reduction loops that threads share",
    )


def _known_combiner(block: Block, loop: For, over: list[For]) -> Reason | None:
    if block.init is None:
        return Reason(
            f"block `{block.name}` has no init of its own",
            (loop, block),
            hint="bind before decompose_reduction",
        )
    how = combiner_of(block)
    if how is None:
        return Reason(
            f"it is not known how to combine two partial results of block `{block.name}`",
            (loop, block),
            hint="sums, products, maxima, minima and associative combinations of several values "
            "can be shared; any other reduction takes a serial loop",
        )
    if how.commutes or loop is over[0]:
        return None
    return Reason(
        f"the terms of block `{block.name}` must stay in order, and `{called(over[0])}` is "
        f"outside of `{called(loop)}`",
        (over[0], loop, block),
        hint=f"split so that `{called(loop)}` is the outermost reduction loop",
    )


def _guarded_throughout(block: Block) -> Reason | None:
    if starting_guard(block) != FALSE:
        return None
    return Reason(
        f"the guard of block `{block.name}` is too complex",
        (block,),
        hint="bind before the splits that guard it",
    )
