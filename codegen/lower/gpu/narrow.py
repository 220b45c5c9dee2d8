"""Shared buffers that are not needed at the same time lie in the same place.

``with alloc(C): with alloc(A): (f(A); g(C)); h(C)``  ->  ``with alloc(A): f(A); with alloc(C):
(g(C); h(C))``: each is around the statements that use it. What a thread keeps for itself costs
nothing where it is, and is made further out. Where warps that copy run ahead over the iterations of
a loop around theirs, what the others share has a place of its own. So have mbarriers: nothing
invalidates them, and before that PTX allows no other use of their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....ir.loop.nodes import (
    Alloc,
    Buffer,
    For,
    Func,
    Intrinsic,
    Let,
    Scope,
    Seq,
    Stmt,
)
from ....ir.loop.visit import map_stmt, own_reads, own_writes, seq, walk
from ..passes.rebuild import with_body
from .splits import copies_of, is_split


def narrow_shared(func: Func) -> Func:
    """Return the function with every shared buffer around no more than what needs it."""
    return with_body(func, _narrowed(func.body))


def _narrowed(s: Stmt) -> Stmt:
    if isinstance(s, Alloc | Seq):
        buffers, steps = _opened(s)
        shared = [b for b in buffers if b.scope is Scope.SHARED]
        if len(shared) > 1:
            uses = [_Use(b, _needed(b, steps)) for b in shared]
            result = _around([u for u in uses if u.at], [*map(_narrowed, steps)], 0)
            for b in reversed([b for b in buffers if b not in shared]):
                result = Alloc(b, result)
            return result
    if isinstance(s, For) and not (s.thread or is_split(s)) and any(map(is_split, walk(s))):
        return _apart(s)
    return map_stmt(s, _narrowed)


def _needed(b: Buffer, steps: Sequence[Stmt]) -> list[int]:
    """Return the steps that touch a buffer, or need its place after the first of these."""
    found = [n for n, x in enumerate(steps) if _touches(x, b)]
    return [*range(found[0], len(steps))] if any(_makes(x, b) for x in steps) else found


def _makes(s: Stmt, b: Buffer) -> bool:
    """True if a buffer becomes an mbarrier."""
    calls = (x for x in walk(s) if isinstance(x, Intrinsic) and x.name == "mbarrier_init")
    return any(r.buffer is b for x in calls for r in x.writes)


def _apart(s: For) -> Stmt:
    """Return a loop, inside of the buffers that only some of its warps with roles use."""
    names: list[Let] = []
    inside = s.body
    while isinstance(inside, Let):
        names.append(inside)
        inside = inside.body
    buffers, steps = _opened(inside)
    staged = [copies_of(x) for x in walk(s) if is_split(x)]
    out = [
        b for b in buffers if b.scope is Scope.SHARED and not any(_touches(x, b) for x in staged)
    ]
    body = seq(*steps)
    for b in reversed([b for b in buffers if b not in out]):
        body = Alloc(b, body)
    body = _narrowed(body)
    for x in reversed(names):
        body = replace(x, body=body)
    made: Stmt = replace(s, body=body)
    for b in reversed(out):
        made = Alloc(b, made)
    return made


def _opened(s: Stmt) -> tuple[list[Buffer], list[Stmt]]:
    """Return the buffers made in a sequence, and its steps."""
    match s:
        case Alloc(buffer=b, body=body):
            inner, steps = _opened(body)
            return [b, *inner], steps
        case Seq(stmts=stmts):
            parts = [_opened(x) for x in stmts]
            return [b for bs, _ in parts for b in bs], [x for _, xs in parts for x in xs]
        case _:
            return [], [s]


@dataclass(frozen=True, slots=True)
class _Use:
    """A buffer and the numbers of the steps that touch it."""

    buffer: Buffer
    at: list[int]


def _around(uses: Sequence[_Use], steps: Sequence[Stmt], start: int) -> Stmt:
    """Return the steps, numbered from ``start``, with buffers around them.

    Each is around the steps from its first to its last use, or around more where it would only
    partly overlap with another.
    """
    parts: list[Stmt] = []
    done = start
    for first, last, own in _groups(uses):
        parts += steps[done - start : first - start]
        widest = max(own, key=lambda u: u.at[-1] - u.at[0])
        rest = [u for u in own if u is not widest]
        inner = _around(rest, steps[first - start : last + 1 - start], first)
        parts.append(Alloc(widest.buffer, inner))
        done = last + 1
    return seq(*parts, *steps[done - start :])


def _groups(uses: Sequence[_Use]) -> list[tuple[int, int, list[_Use]]]:
    """Return uses that overlap, directly or through others, with their first and last steps."""
    groups: list[tuple[int, int, list[_Use]]] = []
    for u in sorted(uses, key=lambda u: u.at[0]):
        if groups and u.at[0] <= groups[-1][1]:
            first, last, own = groups[-1]
            groups[-1] = first, max(last, u.at[-1]), [*own, u]
        else:
            groups.append((u.at[0], u.at[-1], [u]))
    return groups


def _touches(s: Stmt, buffer: Buffer) -> bool:
    return any(b is buffer for x in walk(s) for b in (*own_writes(x), *own_reads(x)))
