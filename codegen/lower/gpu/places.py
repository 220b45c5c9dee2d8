"""Buffers that get a dimension in front: several places for one, of which a statement uses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....ir.loop.nodes import Buffer, Const, Expr, Intrinsic, Load, Range, Region, Stmt, Store
from ....ir.loop.visit import map_expr, map_stmt


def at_place(s: Stmt, by: Mapping[Buffer, Buffer], place: Expr) -> Stmt:
    """Return ``s`` on a ``place`` of the buffers that replace others: ``A[i] -> B[place, i]``."""

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        if isinstance(e, Load) and e.buffer in by:
            return Load(by[e.buffer], (place, *e.index))
        return e

    def region(r: Region) -> Region:
        if r.buffer not in by:
            return r
        return Region(by[r.buffer], (Range(place, Const(1)), *r.ranges))

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt, expr)
        match x:
            case Store(buffer=b, index=at) if b in by:
                return replace(x, buffer=by[b], index=(place, *at))
            case Intrinsic(writes=writes, reads=reads):
                w, r = tuple(map(region, writes)), tuple(map(region, reads))
                return replace(x, writes=w, reads=r)
            case _:
                return x

    return stmt(s)
