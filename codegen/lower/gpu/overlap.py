"""Launches that begin while the ones before them end: where each waits for what those wrote.

A launch that waits may be made before the launch before it has ended: its blocks take the places
that become free, and their threads wait at ``launch_wait``. Behind that, nothing of earlier
launches is under way, since the one before has waited as well. Only then may the next launch
begin (``launch_next``), so that at most one launch waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....ir.errors import VerifyError
from ....ir.loop.nodes import (
    Alloc,
    Buffer,
    For,
    Func,
    Intrinsic,
    Kind,
    Let,
    Scope,
    Seq,
    Stmt,
)
from ....ir.loop.visit import own_reads, own_writes, seq, walk
from ....ir.target import Target
from ..passes.rebuild import with_body

WAIT, NEXT = Intrinsic("launch_wait"), Intrinsic("launch_next")


def overlap_launches(func: Func, target: Target) -> Func:
    """Return the flat function, whose launches wait for earlier ones if they may overlap."""
    return with_body(func, _launches(func.body)) if target.overlap else func


def _launches(s: Stmt) -> Stmt:
    match s:
        case Seq(stmts=stmts):
            return seq(*map(_launches, stmts))
        case Alloc(body=body):
            return replace(s, body=_launches(body))
        case For(kind=Kind.THREAD, body=body):
            inner = isinstance(body, For) and body.kind is Kind.THREAD
            return replace(s, body=_launches(body) if inner else seq(WAIT, NEXT, body))
        case _:
            return s


def waits(launch: Stmt) -> bool:
    """True if a launch waits for earlier ones; ``VerifyError`` if it does so too late.

    A wait counts if all threads come by it, before any of them touches global memory.
    """
    if not any(x == WAIT for x in walk(launch)):
        return False
    for s in _in_order(launch):
        if s == WAIT:
            return True
        early = next((b for b in _touched(s) if b.scope in (Scope.GLOBAL, Scope.COUNTER)), None)
        if early is not None or s == NEXT:
            what = "the next launch" if early is None else early.name
            raise VerifyError(
                f"a launch comes to {what} before it waits for earlier launches",
                "what those write may not be there, and what they read may still be needed",
                hint="launch_wait, by all threads, before any access",
            )
    raise VerifyError("a launch waits for earlier ones under a condition", "all threads must wait")


def _in_order(s: Stmt) -> Iterator[Stmt]:
    """Yield what every thread does, in order, and other statements as a whole."""
    match s:
        case Seq(stmts=stmts):
            for x in stmts:
                yield from _in_order(x)
        case For(kind=Kind.THREAD, body=body) | Alloc(body=body):
            yield from _in_order(body)
        case Let(body=body):
            yield replace(s, body=Seq(()))
            yield from _in_order(body)
        case _:
            yield s


def _touched(s: Stmt) -> Iterator[Buffer]:
    for x in walk(s):
        yield from own_writes(x)
        yield from own_reads(x)
