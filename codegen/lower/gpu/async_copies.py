"""Copies from global to shared memory that a thread need not wait for.

``for v in vectorize(8): S[.., v] = G[.., v]``  ->  ``copy_async(S[.., 0:8], G[.., 0:8])``; with a
value of ``select(inside, G[..], 0)`` the copy fills with zeros. What is not a stretch of 4, 8 or 16
bytes that begins at a multiple of its size stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....ir.dtypes import s32
from ....ir.loop.affine import Interval, loop_range, steps
from ....ir.loop.build import as_int, floormod, points, select, whole_of
from ....ir.loop.nodes import (
    CHUNK,
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Load,
    Op,
    Range,
    Region,
    Scope,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import ASYNC, ASYNC_BUFFERS
from ....ir.loop.simplify import simplify
from ....ir.loop.unclamped import unclamped
from ....ir.loop.visit import free_vars, map_stmt, seq, substitute_expr, walk
from ....ir.target import Target
from ..passes.launches import has_threads
from ..passes.layout import offset

COMMIT = Intrinsic("commit_async")
_SIZES = (4, 8, 16)
_LEAST = 80  # the architecture from which on there are such copies


def mark_async_copies(func: Func) -> Func:
    """Return the function with a note of the buffers that its asynchronous blocks fill."""
    found = {
        r.buffer.name: None
        for s in walk(func.body)
        if isinstance(s, Block) and ASYNC.of(s)
        for r in s.writes
    }
    if not found:
        return func
    return ASYNC_BUFFERS.put(func, tuple(found))


def noted(func: Func, target: Target) -> frozenset[str]:
    """Return the names of the buffers that are to be filled by asynchronous copies."""
    return frozenset(ASYNC_BUFFERS.of(func) or () if target.gpu.sm >= _LEAST else ())


def strip_annotations(func: Func) -> Func:
    """Return the function without what this pass has noted."""
    return ASYNC_BUFFERS.drop(func)


def is_async(s: Stmt) -> bool:
    """True if a copy in ``s`` is still under way when ``s`` is done."""
    return any(isinstance(x, Intrinsic) and x.name.startswith("copy_async") for x in walk(s))


@dataclass(frozen=True)
class Copies:
    """Makes the copies into the buffers of some ``names`` asynchronous where they can be."""

    names: frozenset[str]

    def stmt(self, s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return ``s`` with its copies made asynchronous; nobody waits for them yet."""
        match s:
            case For(var=var, extent=extent, body=Store() as store, kind=Kind.VECTOR):
                ranges = {**ranges, var: loop_range(extent, ranges)}
                made = self.copy(store, var, as_int(extent) or 0, ranges)
                return s if made is None else made
            case For(kind=Kind.VECTOR):
                return s
            case For(var=var, extent=extent):
                ranges = {**ranges, var: loop_range(extent, ranges)}
            case Store():
                made = self.copy(s, None, 1, ranges)
                return s if made is None else made
        return map_stmt(s, lambda c: self.stmt(c, ranges))

    def copy(
        self, s: Store, lane: Var | None, count: int, ranges: Mapping[Var, Interval]
    ) -> Stmt | None:
        """Return the copy of ``count`` neighbors, in pieces of at most 16 bytes."""
        match s.value:
            case Load() as source:
                inside = None
            case Op(name="select", args=(cond, Load() as source, Const(value=0))):
                inside = simplify(cond, ranges)
            case _:
                return None
        size = s.buffer.dtype.bytes
        each = min(count, CHUNK // size)
        if s.buffer.name not in self.names or s.buffer.scope is not Scope.SHARED:
            return None
        if source.buffer.scope is not Scope.GLOBAL or source.buffer.dtype != s.buffer.dtype:
            return None
        if each * size not in _SIZES or count % each or (inside and lane in free_vars(inside)):
            return None
        where = source.index
        if inside is not None:
            where = tuple(unclamped(e, inside) for e in where)
        pieces: list[Stmt] = []
        for first in range(0, count, each):
            at = {} if lane is None else {lane: Const(first)}
            boxes = [
                _box(b, index, lane, at, each, ranges)
                for b, index in ((s.buffer, s.index), (source.buffer, where))
            ]
            if boxes[0] is None or boxes[1] is None:
                return None
            pieces.append(_copied(boxes[0], boxes[1], each * size, inside))
        return seq(*pieces)


def _box(
    b: Buffer,
    index: tuple[Expr, ...],
    lane: Var | None,
    at: Mapping[Var, Expr],
    count: int,
    ranges: Mapping[Var, Interval],
) -> Region | None:
    """Return ``count`` elements from where the lane is ``at`` as a region, if they are one."""
    if not index:
        return None
    if lane is not None:
        if any(lane in free_vars(e) for e in index[:-1]):
            return None
        if steps(simplify(index[-1], ranges), lane) != (1,):
            return None
    start = tuple(substitute_expr(e, at) for e in index)
    if as_int(simplify(floormod(offset(b, start), count), ranges)) != 0:
        return None
    return Region(b, (*points(start[:-1]), Range(start[-1], Const(count))))


def _copied(to: Region, of: Region, size: int, inside: Expr | None) -> Stmt:
    if inside is None:
        return Intrinsic("copy_async", (to,), (of,), (size,))
    held = Buffer("bytes", (1,), s32, Scope.REGISTER)
    count = select(inside, Const(size, s32), Const(0, s32))
    box = whole_of(held)
    fill = Intrinsic("copy_async_zfill", (to,), (of, box), (size,))
    return Alloc(held, seq(Store(held, (Const(0),), count), fill))


def copy_at_once(func: Func, target: Target) -> Func:
    """Return the function with asynchronous copies outside of pipelines, waited for at once."""
    names = noted(func, target)
    if not names:
        return func
    copies = Copies(names)

    def stmt(s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        if isinstance(s, For):
            ranges = {**ranges, s.var: loop_range(s.extent, ranges)}
        if isinstance(s, For | If | Let | Store) and _only_copies(s, names):
            made = copies.stmt(s, ranges)
            return seq(made, COMMIT, Intrinsic("wait_async", args=(0,))) if made is not s else s
        return map_stmt(s, lambda c: stmt(c, ranges))

    return replace(func, body=stmt(func.body, {}))


def _only_copies(s: Stmt, names: frozenset[str]) -> bool:
    stores = [x for x in walk(s) if isinstance(x, Store)]
    others = any(isinstance(x, Intrinsic) for x in walk(s)) or has_threads(s)
    return bool(stores) and not others and all(x.buffer.name in names for x in stores)
