"""How a loop runs: parallel, vectorized, unrolled; and notes for lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...ir.loop.nodes import Block, For, Func, Kind, Notes, Stmt
from ...ir.loop.notes import BY_KEY
from ..concurrent import may_run_parallel, may_vectorize, nesting
from ..cursor import BlockRef, Change, LoopRef, edit, find_block, find_loop, loop_of
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
          each its own
        - a loop inside a parallel, vectorized or bound one
        - a loop that is pipelined, or runs in another way already

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.parallel(i)
    """
    asked = f"run loop `{loop.var.name}` in parallel"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, plain_loops((node,)), no_pipeline(node), nesting(path, Kind.PARALLEL))
    require(func, asked, may_run_parallel(func, path))
    return edit(func, [(path, _with_kind(Kind.PARALLEL))])


@primitive
def vectorize(func: Func, loop: LoopRef) -> Func:
    """Run the iterations of a loop as the lanes of vectors.

    Refused:
        - a loop of more than 1024 iterations, or of no constant number: ``split`` it
        - iterations that depend on each other; a reduction whose updates can be exchanged is legal
        - a loop with another vectorized or a parallel loop inside

    Example:
        sch = product()
        i, j = sch.get_loops("D")
        sch.vectorize(j)
    """
    asked = f"vectorize loop `{loop.var.name}`"
    path = find_loop(func, loop, asked)
    node = loop_of(path)
    require(func, asked, plain_loops((node,)), no_pipeline(node), nesting(path, Kind.VECTOR))
    require(func, asked, may_vectorize(func, path))
    return edit(func, [(path, _with_kind(Kind.VECTOR))])


@primitive
def unroll(func: Func, loop: LoopRef) -> Func:
    """Write the iterations of a loop out, one after the other.

    Refused:
        - a loop of more than 1024 iterations, or of no constant number: ``split`` it
        - a loop that is pipelined, or runs in another way already

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.unroll(k)
    """
    asked = f"unroll loop `{loop.var.name}`"
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
    """Put a note on a block or a loop; one of the same key is replaced.

    Lowering for a GPU reads ``pipeline``, ``async`` and ``min_blocks``. Keys of your own mean
    nothing and may be put on any block or loop.

    Refused:
        - a key that is empty, and a key or value of more than 1000 characters
        - ``pipeline``, ``async`` and ``min_blocks`` where they make no sense, or with values out of
          their range, keys that look like a declared one misspelt, and keys that say what a block
          or function is, such as ``opaque``

    Example:
        sch = chain()
        sch.annotate("C", "reason", "the last one")
    """
    asked = f"annotate {_named(ref)} with {key!r}"
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
            "a note is an int or a string of moderate length",
            nest=func,
            hint=f"a value is at most {MAX_NOTE} characters long",
        )
    path = find_loop(func, ref, asked) if isinstance(ref, LoopRef) else find_block(func, ref, asked)
    node = path[-1]
    assert isinstance(node, For | Block)
    require(func, asked, sensible(node, key, value))
    return _with_notes(func, asked, ref, lambda notes: {**notes, key: value})


@primitive
def unannotate(func: Func, ref: BlockRef | LoopRef, key: str) -> Func:
    """Take a note away.

    Refused:
        - a note that is not there, and one that says what the block is, such as ``opaque``

    Example:
        sch = chain()
        sch.annotate("C", "reason", "the last one")
        sch.unannotate("C", "reason")
    """
    asked = f"remove the note {key!r} from {_named(ref)}"

    def without(notes: Notes) -> Notes:
        if key not in notes or (key in BY_KEY and not BY_KEY[key].scheduled):
            have = ", ".join(sorted(notes)) or "none"
            reason = Reason(
                f"there is no note {key!r} that could be removed; notes: {have}",
                hint="unannotate takes away what annotate put there",
            )
            require(func, asked, reason)
        return {k: v for k, v in notes.items() if k != key}

    return _with_notes(func, asked, ref, without)


def _named(ref: LoopRef | BlockRef) -> str:
    return f"loop `{ref.var.name}`" if isinstance(ref, LoopRef) else f"block `{ref.name}`"


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
