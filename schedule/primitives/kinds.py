"""How a loop runs: parallel, vectorized, unrolled; and notes for lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ...ir.loop.nodes import Block, For, Func, Kind, Stmt
from ..concurrent import may_run_parallel, may_vectorize, nesting
from ..cursor import BlockRef, Change, LoopRef, edit, find_block, find_loop, loop_of
from ..errors import Reason, ScheduleError, require
from ..hints import no_pipeline, sensible
from ..legality import MAX_UNROLL, constant_extent, plain_loops

MAX_NOTE = 1000
Notes: TypeAlias = Mapping[str, int | str]


def parallel(func: Func, ref: LoopRef) -> Func:
    """``for i in range(n)``  ->  ``for i in parallel(n)``: the iterations are independent."""
    asked = f"run loop `{ref.var.name}` in parallel"
    path = find_loop(func, ref, asked)
    loop = loop_of(path)
    require(func, asked, plain_loops((loop,)), no_pipeline(loop), nesting(path, Kind.PARALLEL))
    require(func, asked, may_run_parallel(func, path))
    return edit(func, [(path, _with_kind(Kind.PARALLEL))])


def vectorize(func: Func, ref: LoopRef) -> Func:
    """``for i in range(n)``  ->  ``for i in vectorize(n)``: lanes of vectors."""
    asked = f"vectorize loop `{ref.var.name}`"
    path = find_loop(func, ref, asked)
    loop = loop_of(path)
    require(func, asked, plain_loops((loop,)), no_pipeline(loop), nesting(path, Kind.VECTOR))
    require(func, asked, may_vectorize(func, path))
    return edit(func, [(path, _with_kind(Kind.VECTOR))])


def unroll(func: Func, ref: LoopRef) -> Func:
    """``for i in range(n)``  ->  ``for i in unroll(n)``."""
    asked = f"unroll loop `{ref.var.name}`"
    path = find_loop(func, ref, asked)
    loop = loop_of(path)
    require(func, asked, plain_loops((loop,)), no_pipeline(loop), constant_extent(loop, MAX_UNROLL))
    return edit(func, [(path, _with_kind(Kind.UNROLLED))])


def _with_kind(kind: Kind) -> Change:
    def change(s: Stmt) -> Stmt:
        assert isinstance(s, For)
        return replace(s, kind=kind)

    return change


def annotate(func: Func, ref: LoopRef | BlockRef, key: str, value: int | str) -> Func:
    """Put a note on a loop or block; one of the same key is replaced.

    Those that lowering for a GPU reads (see ``hints``) stand only where they make sense.
    """
    asked = f"annotate {_named(ref)} with {key!r}"
    if not key or len(key) > MAX_NOTE or key == "opaque":
        raise ScheduleError(asked, "the key is empty, too long, or `opaque`", nest=func)
    if type(value) not in (int, str) or len(str(value)) > MAX_NOTE:
        raise ScheduleError(asked, "a note is an int or a string of moderate length", nest=func)
    path = find_loop(func, ref, asked) if isinstance(ref, LoopRef) else find_block(func, ref, asked)
    require(func, asked, sensible(path, key, value))
    return _with_notes(func, asked, ref, lambda notes: {**notes, key: value})


def unannotate(func: Func, ref: LoopRef | BlockRef, key: str) -> Func:
    """Take a note away."""
    asked = f"remove the note {key!r} from {_named(ref)}"

    def without(notes: Notes) -> Notes:
        if key not in notes or key == "opaque":
            have = ", ".join(sorted(notes)) or "none"
            reason = Reason(f"there is no note {key!r} that could be removed; notes: {have}")
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
