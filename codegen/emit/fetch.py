"""Prefetches of what a loop's next iteration reads, spread over the present one.

A loop with the note ``fetch_ahead`` reads a stretch of some buffers in each iteration and the one
behind it in the next: panels of packed weights, say. Its work reads a stretch once from far away
and then again from cache, so without help it waits in the first part of each iteration and leaves
the memory idle in the rest. Each iteration of the innermost loops fetches its share instead, into
the second level of the caches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.dtypes import index
from ...ir.loop.affine import Interval, bounds_of, linear
from ...ir.loop.build import add, as_int, mul
from ...ir.loop.nodes import Buffer, Const, Expr, For, Kind, Let, Load, Scope, Stmt, Store, Var
from ...ir.loop.visit import children, exprs, free_vars, substitute_expr, walk, walk_expr
from .index import Indices
from .llvm.core import memory_type

LINE = 64  # bytes
LEAST = 4096  # bytes of a stretch that is worth it: the hardware follows shorter ones by itself
SECOND_LEVEL = 2  # of LLVM's locality


@dataclass(frozen=True, slots=True)
class FetchedLines:
    """Lines of a buffer, ``lines`` of them from the element ``at`` on."""

    buffer: Buffer
    at: Expr
    lines: int


@dataclass(frozen=True, slots=True)
class _StreamedLoad:
    """A load's index, and the serial loops between it and the loop that fetches ahead."""

    index: Expr
    loops: tuple[For, ...]

    @property
    def trips(self) -> int:
        """Iterations of the innermost of the loops, in one of the loop that fetches."""
        return math.prod(as_int(x.extent) or 0 for x in self.loops)


def streams(s: For) -> dict[int, list[FetchedLines]]:
    """Return what to fetch in each iteration of the loops inside ``s``, by their identity."""
    found: dict[Buffer, list[_StreamedLoad]] = {}
    _collect(s.body, (), found)
    written = {x.buffer for x in walk(s.body) if isinstance(x, Store)}
    known = _ranges(s.body)
    result: dict[int, list[FetchedLines]] = {}
    for buffer, accesses in found.items():
        if buffer in written or buffer.scope is Scope.REGISTER:
            continue
        home = max(accesses, key=lambda a: a.trips)
        stream = _stream(s, buffer, accesses, home, known) if home.trips else None
        if stream is not None:
            result.setdefault(id(home.loops[-1]), []).append(stream)
    return result


def _collect(s: Stmt, loops: tuple[For, ...], found: dict[Buffer, list[_StreamedLoad]]) -> None:
    """Gather the loads under a statement by buffer."""
    for e in exprs(s):
        for x in walk_expr(e):
            if isinstance(x, Load) and len(x.index) == 1:
                found.setdefault(x.buffer, []).append(_StreamedLoad(x.index[0], loops))
    inside = (*loops, s) if isinstance(s, For) and s.kind is Kind.SERIAL else loops
    for c in children(s):
        _collect(c, inside, found)


def _ranges(body: Stmt) -> Mapping[Var, Interval]:
    """Return the ranges of the loops in ``body``; a name in it has none."""
    found: dict[Var, Interval] = {}
    for x in walk(body):
        if isinstance(x, For):
            found[x.var] = 0, max((as_int(x.extent) or 1) - 1, 0)
        elif isinstance(x, Let):
            found[x.var] = 0, 2**62
    return found


def _stream(
    s: For,
    buffer: Buffer,
    accesses: list[_StreamedLoad],
    home: _StreamedLoad,
    known: Mapping[Var, Interval],
) -> FetchedLines | None:
    """Return the share of one iteration of ``home``; None if the reads are no such stretch."""
    stride, low, high = 0, 2**62, -1
    for a in accesses:
        terms = linear(a.index).terms
        step = terms.get(s.var, 0)
        mine = {v for v in free_vars(a.index) if v in known}
        if step <= 0 or stride not in (0, step) or any(v not in terms for v in mine):
            return None
        stride = step
        outside: dict[Var, Expr] = {v: Const(0) for v in free_vars(a.index) - mine}
        form = linear(substitute_expr(a.index, outside))
        first, last = bounds_of(form, known)
        low, high = min(low, first), max(high, last)
    size = buffer.dtype.bytes
    if high - low >= stride or stride * size < LEAST:
        return None
    share = -(-stride // home.trips)
    turn: Expr = Const(0)
    for x in home.loops:
        turn = add(mul(turn, as_int(x.extent) or 1), x.var)
    zero: dict[Var, Expr] = {v: Const(0) for v in free_vars(home.index) if v in known}
    start = substitute_expr(home.index, {**zero, s.var: add(s.var, 1)})
    return FetchedLines(buffer, add(start, mul(turn, share)), max(1, share * size // LINE))


def fetch_lines(em: Indices, found: Sequence[FetchedLines]) -> None:
    """Emit the prefetches of one iteration of the open loop."""
    for x in found:
        form = em.form(x.at)
        assert form is not None, f"{x.buffer.name} is read by lane"
        em.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        start = em.pointer(x.buffer, form)
        step = LINE // x.buffer.dtype.bytes
        for n in range(x.lines):
            by = em.const(n * step, index)
            at = em.offset(start, by, memory_type(x.buffer.dtype)) if n else start
            em.function.write(
                f"call void @llvm.prefetch.p0(ptr {at.text}, i32 0, i32 {SECOND_LEVEL}, i32 1)"
            )
