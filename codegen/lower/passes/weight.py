"""Estimate the lines of LLVM code a statement becomes: the cost of unrolling and copying it."""

from __future__ import annotations

from ....ir.elementwise import TABLE
from ....ir.loop.build import as_int
from ....ir.loop.nodes import AllReduce, Expr, For, If, Intrinsic, Kind, Let, Load, Op, Stmt, Store
from ....ir.loop.visit import children, map_expr
from ....ir.target import Target

LIMIT = 3000  # lines of one kernel: beyond, compiling takes longer than tuning can afford
GPU_COPIES = 1000  # up to where a launch may grow by copies: its guards cost the threads little
_PIECES = 16  # of a vector loop that are written out


def weight(s: Stmt, target: Target) -> int:
    """Return the lines of code of ``s``, unrolled loops written out."""
    match s:
        case Store(value=value):
            return 1 + _of_expr(value)
        case Let(value=value, body=body):
            return _of_expr(value) + weight(body, target)
        case If(then=then, orelse=orelse):  # most conditions are decided in the end
            return weight(then, target) + (0 if orelse is None else weight(orelse, target))
        case For(extent=extent, body=body, kind=kind):
            count = as_int(extent)
            inner = weight(body, target)
            if kind is Kind.UNROLLED and count is not None:
                return count * inner
            if kind is Kind.VECTOR and count is not None:
                if isinstance(body, For):  # terms that a lane adds up: one instruction
                    inner = weight(body.body, target)
                pieces = -(-count * 4 // (target.vector_bits // 8))
                return (pieces if pieces <= _PIECES else 1) * inner
            return 4 + inner
        case Intrinsic():
            return 10
        case AllReduce(combined=combined):
            return 40 + 12 * sum(map(_of_expr, combined))
        case _:
            return sum(weight(c, target) for c in children(s))


def _of_expr(e: Expr) -> int:
    total = 0

    def count(x: Expr) -> Expr:
        nonlocal total
        match x:
            case Load():
                total += 1
                return x
            case Op(name=name):
                total += 25 if TABLE[name].transcendental else 1
        return map_expr(x, count)

    count(e)
    return total
