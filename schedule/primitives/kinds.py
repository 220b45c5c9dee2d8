"""Loop kinds: parallel, vectorize, unroll; and notes for lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...ir.loop.nodes import Block, For, Func, Kind, Notes, Stmt
from ...ir.loop.notes import BY_KEY
from ..concurrent import may_run_parallel, may_vectorize, nesting
from ..cursor import BlockRef, Change, LoopRef, edit, find_block, find_loop, loop_of, named
from ..declare import primitive
from ..errors import Reason, ScheduleError, require
from ..hints import no_pipeline, sensible
from ..legality import MAX_UNROLL, constant_extent, plain_loops

MAX_NOTE = 1000


@primitive
def parallel(func: Func, loop: LoopRef) -> Func:
    """Run the iterations of a loop on several threads of a CPU.

    Refused:
        - iterations that write the same elements, such as those of a reduction: ``rfactor`` gives
          each a partial result
        - a loop inside a parallel, vectorized or bound one
        - a loop that is pipelined, or already has another kind

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.parallel(i)
    """
    asked = f"run loop `{named(func, loop)}` in parallel"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, plain_loops((node,)), no_pipeline(node), nesting(path, Kind.PARALLEL))
    require(func, asked, may_run_parallel(func, path))
    return edit(func, [(path, _with_kind(Kind.PARALLEL))])


@primitive
def vectorize(func: Func, loop: LoopRef) -> Func:
    """Run the iterations of a loop as vector lanes.

    Refused:
        - a loop of more than 1024 iterations, or without a constant trip count: ``split`` it
        - iterations that depend on each other; a commutative reduction is legal
        - a loop with another vectorized or a parallel loop inside

    Example:
        sch = product()
        i, j = sch.get_loops("D")
        sch.vectorize(j)
    """
    asked = f"vectorize loop `{named(func, loop)}`"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, plain_loops((node,)), no_pipeline(node), nesting(path, Kind.VECTOR))
    require(func, asked, may_vectorize(func, path))
    return edit(func, [(path, _with_kind(Kind.VECTOR))])


@primitive
def unroll(func: Func, loop: LoopRef) -> Func:
    """Unroll a loop completely.

    Refused:
        - a loop of more than 1024 iterations, or without a constant trip count: ``split`` it
        - a loop that is pipelined, or already has another kind

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.unroll(k)
    """
    asked = f"unroll loop `{named(func, loop)}`"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, plain_loops((node,)), no_pipeline(node), constant_extent(node, MAX_UNROLL))
    return edit(func, [(path, _with_kind(Kind.UNROLLED))])


def _with_kind(kind: Kind) -> Change:
    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, kind=kind)

    return change


@primitive
def annotate(func: Func, ref: BlockRef | LoopRef, key: str, value: int | str) -> Func:
    """Put a note on a block or a loop, replacing a note of the same key.

    Lowering for a GPU reads ``pipeline``, ``async``, ``min_blocks``, ``resident``, the most blocks
    a multiprocessor that share out a loop over blocks, ``in_turn``, the iterations of such a loop
    that each block does, and ``cluster``, which has the blocks of a loop run together, so that what
    follows it joins them by their shared memory; that for a CPU reads ``fetch``, the bytes by which
    what an iteration reads in order is prefetched, ``fetch_ahead``, by which an iteration
    prefetches what the next one reads, and ``in_tiles``, on a loop whose sums of products may be
    made in tile registers. Other keys have no effect and are allowed on any block or loop.

    Refused:
        - a key that is empty, and a key or value of more than 1000 characters
        - ``pipeline``, ``async``, ``min_blocks``, ``resident``, ``in_turn``, ``cluster``,
          ``fetch``, ``fetch_ahead`` and ``in_tiles`` where they do not apply, or with values out
          of range, misspellings of declared keys, and keys for properties of blocks and functions,
          such as ``opaque``

    Example:
        sch = chain()
        sch.annotate("C", "reason", "the last one")
    """
    asked = f"annotate {_described(func, ref)} with {key!r}"
    if not key or len(key) > MAX_NOTE:
        raise ScheduleError(
            asked,
            "the key is empty or too long",
            nest=func,
            hint=f"a key is 1 to {MAX_NOTE} characters",
        )
    if len(str(value)) > MAX_NOTE:
        raise ScheduleError(
            asked,
            "the value is too long",
            nest=func,
            hint=f"a value has at most {MAX_NOTE} characters",
        )
    path = find_loop(func, ref, asked) if isinstance(ref, LoopRef) else find_block(func, ref, asked)
    node = path[-1]
    assert isinstance(node, For | Block)
    require(func, asked, sensible(node, key, value))
    return _with_notes(func, asked, ref, lambda notes: {**notes, key: value})


@primitive
def unannotate(func: Func, ref: BlockRef | LoopRef, key: str) -> Func:
    """Remove a note.

    Refused:
        - a note that does not exist, and one for a property of the block, such as ``opaque``

    Example:
        sch = chain()
        sch.annotate("C", "reason", "the last one")
        sch.unannotate("C", "reason")
    """
    asked = f"remove the note {key!r} from {_described(func, ref)}"

    def without(notes: Notes) -> Notes:
        if key not in notes or (key in BY_KEY and not BY_KEY[key].scheduled):
            have = ", ".join(sorted(notes)) or "none"
            reason = Reason(
                f"there is no note {key!r} to remove; notes: {have}",
                hint="unannotate removes what annotate added",
            )
            require(func, asked, reason)
        return {k: v for k, v in notes.items() if k != key}

    return _with_notes(func, asked, ref, without)


def _described(func: Func, ref: LoopRef | BlockRef) -> str:
    return f"loop `{named(func, ref)}`" if isinstance(ref, LoopRef) else f"block `{ref.name}`"


def _with_notes(
    func: Func, asked: str, ref: LoopRef | BlockRef, new: Callable[[Notes], Notes]
) -> Func:
    match ref:
        case LoopRef():
            path = find_loop(func, ref, asked)
        case BlockRef():
            path = find_block(func, ref, asked)

    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For | Block)
        return replace(s, notes=new(s.notes))

    return edit(func, [(path, change)])
