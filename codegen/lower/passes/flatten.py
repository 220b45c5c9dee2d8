"""Buffers of one dimension: ``A[i, j]``  ->  ``A[i * columns + j]``, row-major (see ``layout``)."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ....ir.loop.build import as_int
from ....ir.loop.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    Func,
    Intrinsic,
    Load,
    Range,
    Region,
    Stmt,
    Store,
)
from ....ir.loop.visit import map_expr, map_stmt
from .layout import elements, offset


def flatten(func: Func) -> Func:
    """Return the function over flat buffers (of at least one element); params keep their order."""
    new: dict[Buffer, Buffer] = {}

    def flat(b: Buffer) -> Buffer:
        if len(b.shape) == 1 and b.shape[0]:
            return b
        if b not in new:
            new[b] = Buffer(b.name, (elements(b),), b.dtype, b.scope)
        return new[b]

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        if not isinstance(e, Load) or flat(e.buffer) is e.buffer:
            return e
        return Load(flat(e.buffer), (offset(e.buffer, e.index),))

    def region(r: Region) -> Region:
        if flat(r.buffer) is r.buffer:
            return r
        sizes = [as_int(x.extent) or 0 for x in r.ranges]
        first = next((d for d, n in enumerate(sizes) if n != 1), len(sizes))
        whole = list(r.buffer.shape[first + 1 :]) == sizes[first + 1 :]
        assert whole, f"a box of {r.buffer.name} is not contiguous in memory"
        start = offset(r.buffer, tuple(x.start for x in r.ranges))
        return Region(flat(r.buffer), (Range(start, Const(prod(sizes))),))

    def stmt(s: Stmt) -> Stmt:
        s = map_stmt(s, stmt, expr)
        match s:
            case Store(buffer=b, index=at) if flat(b) is not b:
                return replace(s, buffer=flat(b), index=(offset(b, at),))
            case Alloc(buffer=b) if flat(b) is not b:
                return replace(s, buffer=flat(b))
            case Intrinsic(writes=writes, reads=reads):
                w, r = tuple(map(region, writes)), tuple(map(region, reads))
                return replace(s, writes=w, reads=r)
            case _:
                return s

    params = tuple(flat(b) for b in func.params)
    body = stmt(func.body)
    if body is func.body and params == func.params:
        return func
    return replace(func, params=params, body=body, allocs=tuple(map(flat, func.allocs)))
