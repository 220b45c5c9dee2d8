"""Checks of the notes that a schedule puts on loops and blocks for lowering.

Their declarations are in ``ir/loop/notes.py``: ``pipeline``, ``async``, ``min_blocks``,
``resident``, ``in_turn``, ``fetch``, ``fetch_ahead``, ``in_tiles``.
"""

from __future__ import annotations

from ..ir.loop.names import called
from ..ir.loop.nodes import Block, Const, Expr, For, Kind, Load, NoteValue, Op, Scope, Store
from ..ir.loop.notes import (
    ASYNC,
    BY_KEY,
    CLUSTER,
    FETCH,
    FETCH_AHEAD,
    IN_TILES,
    IN_TURN,
    MIN_BLOCKS,
    PIPELINE,
    RESIDENT,
    misfit,
)
from .errors import Reason


def sensible(node: For | Block, key: str, value: NoteValue) -> Reason | None:
    """Return why a note does not apply to a loop or block; a user's own keys always do."""
    note = BY_KEY.get(key)
    if note is not None and not note.scheduled:
        return Reason(
            f"`{key}` is not a note of a schedule",
            hint=f"take another key; `{key}` says: {note.says}",
        )
    if why := misfit(node, key, value):
        return Reason(why[0], hint=why[1])
    match node:
        case For() if note is PIPELINE and node.kind is not Kind.SERIAL:
            return Reason(
                f"loop `{called(node)}` does not run its iterations in order",
                (node,),
                hint="pipeline a serial loop around the copies to shared memory",
            )
        case For() if note in (FETCH, FETCH_AHEAD, IN_TILES) and node.kind is not Kind.SERIAL:
            return Reason(
                f"loop `{called(node)}` does not run its iterations in order",
                (node,),
                hint="note a serial loop around what it is about",
            )
        case For() if note in (MIN_BLOCKS, RESIDENT, IN_TURN) and node.thread != "blockIdx.x":
            return Reason(
                f"`{key}` is a note of a loop bound to blockIdx.x",
                (node,),
                hint='sch.bind(loop, "blockIdx.x") first',
            )
        case For() if note is CLUSTER and not node.over_blocks:
            return Reason(
                f"`{key}` is a note of a loop bound to an index of blocks",
                (node,),
                hint='sch.bind(loop, "blockIdx.y") first',
            )
        case Block() if note is ASYNC and not _copies_to_shared(node):
            return Reason(
                f"block `{node.name}` is not a copy from global to shared memory",
                (node,),
                hint="cache_read to shared makes one",
            )
    return None


def no_pipeline(loop: For) -> Reason | None:
    """Return a reason if the loop is pipelined, since its iterations must stay in order."""
    if not PIPELINE.of(loop):
        return None
    return Reason(
        f"the iterations of loop `{called(loop)}` are pipelined",
        (loop,),
        hint='unannotate "pipeline" first',
    )


def _copies_to_shared(node: Block) -> bool:
    match node.body:
        case Store(buffer=target, value=value) if target.scope is Scope.SHARED:
            source = _copied(value)
            return source is not None and source.buffer.scope is Scope.GLOBAL
    return False


def _copied(value: Expr) -> Load | None:
    """Return the load in ``load`` or ``select(condition, load, constant)``; None for others."""
    match value:
        case Load():
            return value
        case Op(name="select", args=(_, Load() as load, Const())):
            return load
        case _:
            return None
