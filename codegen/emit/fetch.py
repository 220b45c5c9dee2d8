"""Prefetches: of what a loop's next iteration reads, spread over the present one, and of far rows.

A loop with the note ``fetch_ahead`` reads a stretch of some buffers in each iteration and the one
behind it in the next: panels of packed weights, say. Its work reads a stretch once from far away
and then again from cache, so without help it waits in the first part of each iteration and leaves
the memory idle in the rest. Each iteration of the innermost loops fetches its share instead, into
the second level of the caches. A vector that no hardware prefetcher follows, or keeps up with, is
fetched some iterations before it is used, into the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.dtypes import index
from ...ir.loop.affine import Interval, bounds_of, linear
from ...ir.loop.build import add, as_int, iteration, mul
from ...ir.loop.nodes import Buffer, Const, Expr, For, Kind, Let, Scope, Stmt, Var
from ...ir.loop.visit import (
    buffers_written,
    children,
    exprs,
    free_vars,
    loads_in,
    substitute_expr,
    walk,
)
from .index import Indices, LinearForm
from .llvm.core import IRValue, memory_type

LINE = 64  # bytes of a cache line
FAR = 2048  # bytes between the vectors of two iterations: the hardware does not follow
AHEAD = 8  # iterations that a far vector is fetched before it is used
LEAST = 4096  # bytes of a stretch that is worth it: the hardware follows shorter ones by itself
FIRST_LEVEL, SECOND_LEVEL = 3, 2  # of LLVM's locality


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
    written = buffers_written(s.body)
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
        for x in loads_in(e):
            if len(x.index) == 1:
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
    turn = iteration(home.loops)
    zero: dict[Var, Expr] = {v: Const(0) for v in free_vars(home.index) if v in known}
    start = substitute_expr(home.index, {**zero, s.var: add(s.var, 1)})
    return FetchedLines(buffer, add(start, mul(turn, share)), -(-share * size // LINE))


def fetch_lines(em: Indices, found: Sequence[FetchedLines]) -> None:
    """Emit the prefetches of one iteration of the open loop."""
    for x in found:
        form = em.form(x.at)
        assert form is not None, f"{x.buffer.name} is read by lane"
        start = em.pointer(x.buffer, form)
        step = LINE // x.buffer.dtype.bytes
        for n in range(x.lines):
            by = em.const(n * step, index)
            at = em.offset(start, by, memory_type(x.buffer.dtype)) if n else start
            em.function.write(_prefetch(em, at, SECOND_LEVEL))


def fetch_far(em: Indices, buffer: Buffer, form: LinearForm) -> None:
    """Prefetch what is read later, where no hardware prefetcher follows or keeps up."""
    region = em.function.here
    if em.device is not None or not region.name.startswith("loop") or buffer in region.stored:
        return
    region.read.add(buffer)
    later = _later(em, buffer, form)
    if not later:
        return
    pointer = em.pointer(buffer, replace(form, constant=form.constant + later))
    em.function.once(_prefetch(em, pointer, FIRST_LEVEL))


def _later(em: Indices, buffer: Buffer, form: LinearForm) -> int:
    """Return the distance in elements to what should be fetched now; 0 for nothing.

    A loop with a large stride fetches for itself: each row of a matrix may lie on a page of its
    own. Another fetches as many bytes ahead as its note says: the hardware keeps less in flight
    than memory can deliver. A loop that reads again what the loop before it has brought into the
    cache fetches the next row, so that memory is busy while it computes.
    """
    assert em.lanes is not None
    region, around = em.function.regions[-1], em.function.regions[-2]
    size = buffer.dtype.bytes
    _, step = form.terms.get(f"%i.{region.name}", (None, 0))
    if abs(step) * size >= FAR:
        return AHEAD * step
    if step > 0 and (far := em.fetches.get(region.name, 0)):
        fetched = form.constant * size % LINE >= em.lanes.count * size
        return 0 if fetched else far // size  # another vector fetches this line
    _, row = form.terms.get(f"%i.{around.name}", (None, 0))
    again = around.visits.get(buffer) == 1 and buffer not in around.stored
    return row if again and FAR <= abs(row) * size <= em.target.l1 // 4 else 0


def _prefetch(em: Indices, at: IRValue, level: int) -> str:
    """Return the instruction that prefetches a line for reading, as near as a level says."""
    em.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    return f"call void @llvm.prefetch.p0(ptr {at.text}, i32 0, i32 {level}, i32 1)"
