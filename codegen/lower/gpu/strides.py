"""Loops over blocks whose launch has as many blocks as the device holds, each doing several turns.

``for bx in thread("blockIdx.x", 4096, resident=2): f(bx)``  ->  every block does ``f(bx)``,
``f(bx + g)``, ``f(bx + 2 g)``, where g is the number of blocks of the launch. The loop keeps its
note and its extent, the most blocks that a launch may have: whoever launches knows the device, and
any number gives the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....ir.dtypes import index, s32
from ....ir.errors import UnsupportedError
from ....ir.loop.build import add, as_int, cast, floordiv, maximum, minimum, mul, sub, whole_of
from ....ir.loop.intrinsics import WARP
from ....ir.loop.nodes import (
    Alloc,
    AllReduce,
    Buffer,
    Const,
    For,
    Func,
    Intrinsic,
    Kind,
    Let,
    Load,
    Scope,
    Seq,
    Stmt,
    Var,
)
from ....ir.loop.notes import RESIDENT
from ....ir.loop.visit import seq, substitute, walk
from ..passes.launches import closed, opened
from ..passes.rebuild import with_body
from .joins import BLOCKS


def stride_blocks(func: Func) -> Func:
    """Return the flat function, whose noted loops over blocks are for any number of blocks."""
    return with_body(func, _launches(func.body, f"function {func.name}"))


def _launches(s: Stmt, where: str) -> Stmt:
    match s:
        case Seq(stmts=stmts):
            return seq(*(_launches(x, where) for x in stmts))
        case Alloc(body=body):
            return replace(s, body=_launches(body, where))
        case For(kind=Kind.THREAD):
            return _launch(s, where)
        case _:
            return s


def _launch(s: For, where: str) -> Stmt:
    loops, body = opened(s)
    noted = next((x for x in loops if RESIDENT.of(x) is not None), None)
    if noted is None:
        return s
    blocks = [x.thread for x in loops if x.thread in BLOCKS]
    if blocks != ["blockIdx.x"] or noted.thread != "blockIdx.x":
        _refuse(f"loops over {', '.join(blocks)}", "it counts blocks of blockIdx.x alone", where)
    if any(isinstance(x, Intrinsic) and x.name == "mbarrier_init" for x in walk(s)):
        _refuse("barriers with phases in it", "each is made once in a block", where)
    return closed(loops, _turns(noted, body))


def _turns(loop: For, body: Stmt) -> Stmt:
    """Return what a block does of a loop over blocks, one turn after the other."""
    count = Buffer("blocks", (1,), s32, Scope.REGISTER)
    own = whole_of(count)
    every, turn, block = Var("every"), Var("turn"), Var(loop.var.name)
    last = (as_int(loop.extent) or 1) - 1
    turns = floordiv(sub(add(every, last), loop.var), every)
    place = minimum(maximum(add(mul(turn, every), loop.var), 0), last)  # known to be in bounds
    again = Let(block, place, substitute(body, {loop.var: block}))
    step = maximum(cast(Load(count, (Const(0),)), index), 1)
    ask = Let(every, step, For(turn, turns, seq(again, *_apart(body))))
    return Alloc(count, seq(Intrinsic("grid_blocks", (own,)), ask))


def _apart(body: Stmt) -> Sequence[Stmt]:
    """Return what keeps a turn's use of shared memory from the one before."""
    return (Intrinsic("barrier"),) if any(map(_is_shared, walk(body))) else ()


def _is_shared(s: Stmt) -> bool:
    if isinstance(s, AllReduce):
        return s.threads > WARP
    return isinstance(s, Alloc) and s.buffer.scope is Scope.SHARED


def _refuse(what: str, why: str, where: str) -> None:
    hint = "bind one fused loop to blockIdx.x, or leave the note out"
    raise UnsupportedError(f"`{RESIDENT.key}` for a launch with {what}", why, where, hint)
