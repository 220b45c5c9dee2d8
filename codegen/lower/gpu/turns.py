"""Loops over blocks of which a fixed number do several iterations each, one after the other.

``for bx in thread("blockIdx.x", 17, in_turn=2): f(bx)``  ->  ``for bx in thread("blockIdx.x", 9):
for turn in range((25 - bx) // 9): f(turn * 9 + bx)``: blocks that run at the same time do
neighboring iterations, and where the number does not divide, the last blocks have one fewer. The
passes that follow see a serial loop, so that warps that only copy run ahead over its iterations. A
number that the device decides is the note ``resident``.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.errors import UnsupportedError
from ....ir.loop.build import add, as_int, floordiv, minimum, mul, sub
from ....ir.loop.nodes import Alloc, Const, For, Func, Kind, Let, Scope, Seq, Stmt, Var
from ....ir.loop.notes import CLUSTER, IN_TURN, RESIDENT
from ....ir.loop.visit import seq, substitute
from ..passes.rebuild import with_body


def deal_turns(func: Func) -> Func:
    """Return the function, whose threads are bound, with fewer blocks in the launches noted so."""
    return with_body(func, _launches(func.body, f"function {func.name}"))


def _launches(s: Stmt, where: str) -> Stmt:
    match s:
        case Seq(stmts=stmts):
            return seq(*(_launches(x, where) for x in stmts))
        case Alloc(buffer=b, body=body) if b.scope in (Scope.GLOBAL, Scope.COUNTER):
            return replace(s, body=_launches(body, where))
        case For(kind=Kind.THREAD):
            return _launch(s, where)
        case _:
            return s


def _launch(s: For, where: str) -> Stmt:
    chain = [s]
    while isinstance(chain[-1].body, For) and chain[-1].body.kind is Kind.THREAD:
        chain.append(chain[-1].body)
    noted = next((x for x in chain if IN_TURN.of(x) is not None), None)
    if noted is None:
        return s
    for note in (CLUSTER, RESIDENT):
        if any(note.of(x) is not None for x in chain):
            why = f"the note `{note.key}` counts on a block for each iteration"
            raise UnsupportedError(f"`{IN_TURN.key}` for a launch with `{note.key}`", why, where)
    count = as_int(noted.extent) or 1
    blocks = -(-count // min(IN_TURN.of(noted) or 1, count))
    fewer = replace(IN_TURN.drop(noted), extent=Const(blocks))
    body = _in_turn(noted.var, chain[-1].body, count, blocks)
    for x in reversed(chain):
        body = replace(fewer if x is noted else x, body=body)
    return body


def _in_turn(block: Var, body: Stmt, count: int, blocks: int) -> Stmt:
    """Return what a block does: each iteration whose number it is, modulo the ``blocks``."""
    turn, number = Var("turn"), Var(block.name)
    turns = floordiv(sub(count - 1 + blocks, block), blocks)
    at = minimum(add(mul(turn, blocks), block), count - 1)  # known to be in bounds
    return For(turn, turns, Let(number, at, substitute(body, {block: number})))
