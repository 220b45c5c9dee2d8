"""Statements on other buffers: every access goes to another buffer, at another place of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from .nodes import Buffer, Const, Expr, Intrinsic, Load, Range, Region, Stmt, Store
from .visit import map_stmt, on_loads

Indices: TypeAlias = tuple[Expr, ...]
Move: TypeAlias = tuple[Buffer, Callable[[Indices], Indices]]
"""A buffer in place of another, and the index in it of an element of the other."""


def moved(s: Stmt, moves: Mapping[Buffer, Move]) -> Stmt:
    """Return a flat ``s`` with loads, stores and operands of intrinsics moved.

    Where an index gets longer, the new dimensions are in front, and a region has one element there.
    """

    def load(e: Load) -> Expr:
        if e.buffer not in moves:
            return e
        new, place = moves[e.buffer]
        return Load(new, place(e.index))

    def region(r: Region) -> Region:
        if r.buffer not in moves:
            return r
        new, place = moves[r.buffer]
        at = place(tuple(x.start for x in r.ranges))
        front: Indices = (Const(1),) * (len(at) - len(r.ranges))
        extents = (*front, *(x.extent for x in r.ranges))
        return Region(new, tuple(map(Range, at, extents)))

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt, expr)
        match x:
            case Store(buffer=b, index=at) if b in moves:
                new, place = moves[b]
                return replace(x, buffer=new, index=place(at))
            case Intrinsic(writes=writes, reads=reads):
                w, r = tuple(map(region, writes)), tuple(map(region, reads))
                return replace(x, writes=w, reads=r)
            case _:
                return x

    expr = on_loads(load)
    return stmt(s) if moves else s
