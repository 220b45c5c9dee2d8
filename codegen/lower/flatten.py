"""Buffers of one dimension: ``A[i, j]``  ->  ``A[i * columns + j]``, row-major."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...ir.loop.affine import Linear, linear, to_expr
from ...ir.loop.build import add, mul
from ...ir.loop.nodes import Alloc, Buffer, Expr, Func, Load, Stmt, Store
from ...ir.loop.visit import map_expr, map_stmt


def flatten(func: Func) -> Func:
    """The function over flat buffers (of at least one element); params keep their order."""
    new: dict[Buffer, Buffer] = {}

    def flat(b: Buffer) -> Buffer:
        if len(b.shape) == 1 and b.shape[0]:
            return b
        if b not in new:
            new[b] = Buffer(b.name, (max(1, prod(b.shape)),), b.dtype, b.scope)
        return new[b]

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        if not isinstance(e, Load) or flat(e.buffer) is e.buffer:
            return e
        return Load(flat(e.buffer), (offset(e.buffer, e.index),))

    def stmt(s: Stmt) -> Stmt:
        s = map_stmt(s, stmt, expr)
        match s:
            case Store(buffer=b, index=at) if flat(b) is not b:
                return replace(s, buffer=flat(b), index=(offset(b, at),))
            case Alloc(buffer=b) if flat(b) is not b:
                return replace(s, buffer=flat(b))
            case _:
                return s

    params = tuple(flat(b) for b in func.params)
    body = stmt(func.body)
    if body is func.body and params == func.params:
        return func
    return replace(func, params=params, body=body, allocs=tuple(map(flat, func.allocs)))


def offset(buffer: Buffer, index: tuple[Expr, ...]) -> Expr:
    """The row-major position of an element, as a sum with one term per variable."""
    total: Expr | int = 0
    for i, extent in zip(index, buffer.shape, strict=True):
        total = add(mul(total, extent), i)
    form: Linear = linear(total) if not isinstance(total, int) else Linear({}, total)
    return to_expr(form)
