"""The notes that lowering for a GPU reads: where each may stand, and what it may say.

``pipeline=<stages>`` on a serial loop: the shared buffers made and used in an iteration get that
many places, and the copies into them run ahead. ``async=1`` on a block that copies from global to
shared memory: it may copy asynchronously. ``min_blocks=<n>`` on a loop over blockIdx.x: registers
are rationed so that n blocks fit a multiprocessor. None of them changes what is computed.
"""

from __future__ import annotations

from ..ir.loop.nodes import Block, Const, Expr, For, Kind, Load, Op, Scope, Store
from .cursor import Path
from .errors import Reason, did_you_mean

PIPELINE = "pipeline"
ASYNC = "async"
MIN_BLOCKS = "min_blocks"
KEYS = (PIPELINE, ASYNC, MIN_BLOCKS)
OPAQUE = "opaque"  # of a block that may only be annotated; te writes it

MAX_STAGES = 8
MAX_BLOCKS = 32
ALIKE = 0.8  # of two keys, of which one is then taken to be misspelt


def sensible(path: Path, key: str, value: int | str) -> Reason | None:
    """The note may stand at the end of ``path``; so may any whose key is nothing like these."""
    node = path[-1]
    if key == PIPELINE:
        return _between(key, value, 2, MAX_STAGES) or _serial(node)
    if key == ASYNC:
        return _between(key, value, 1, 1) or _copies_to_shared(node)
    if key == MIN_BLOCKS:
        return _between(key, value, 1, MAX_BLOCKS) or _over_grid(node)
    near = did_you_mean(key, KEYS, ALIKE)
    return (
        Reason(f"`{key}` means nothing, but looks like a note that does", hint=near)
        if near
        else None
    )


def no_pipeline(loop: For) -> Reason | None:
    """A loop whose iterations are to overlap runs them in order."""
    if PIPELINE not in loop.notes:
        return None
    return Reason(
        f"the iterations of loop `{loop.var.name}` are pipelined",
        (loop,),
        hint='unannotate "pipeline" first',
    )


def _between(key: str, value: int | str, low: int, high: int) -> Reason | None:
    if type(value) is int and low <= value <= high:
        return None
    want = str(low) if low == high else f"{low} to {high}"
    return Reason(f"`{key}` takes {want}, not {value!r}", hint=f"sch.annotate(ref, {key!r}, {low})")


def _serial(node: object) -> Reason | None:
    match node:
        case For(kind=Kind.SERIAL):
            return None
        case For(var=var) as loop:
            return Reason(
                f"loop `{var.name}` does not run its iterations in order",
                (loop,),
                hint="pipeline a serial loop around the copies to shared memory",
            )
        case _:
            return Reason(
                "only a loop can be pipelined",
                hint="give the loop around the copies to shared memory",
            )


def _over_grid(node: object) -> Reason | None:
    if isinstance(node, For) and node.thread == "blockIdx.x":
        return None
    blame = (node,) if isinstance(node, For | Block) else ()
    return Reason(
        "`min_blocks` stands on a loop bound to blockIdx.x",
        blame,
        hint='sch.bind(loop, "blockIdx.x") first',
    )


def _copies_to_shared(node: object) -> Reason | None:
    if not isinstance(node, Block):
        return Reason(
            "only a block can copy asynchronously",
            hint="give the block of a copy, as cache_read does",
        )
    match node.body:
        case Store(buffer=target, value=value) if target.scope is Scope.SHARED:
            source = _copied(value)
            if source is not None and source.buffer.scope is Scope.GLOBAL:
                return None
    return Reason(
        f"block `{node.name}` is not a copy from global to shared memory",
        (node,),
        hint="cache_read to shared makes one",
    )


def _copied(value: Expr) -> Load | None:
    """The load of ``load`` or of ``select(condition, load, constant)``."""
    match value:
        case Load():
            return value
        case Op(name="select", args=(_, Load() as load, Const())):
            return load
        case _:
            return None
