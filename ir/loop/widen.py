"""A function with every float in f64: the same work, with no rounding to speak of."""

from __future__ import annotations

from dataclasses import replace

from ..dtypes import DType, f64
from .nodes import Buffer, Cast, Const, Expr, Func, Intrinsic, Let, Op, Stmt, Var
from .visit import exprs_under, map_expr, map_stmt, replace_buffers, walk


def in_f64(func: Func) -> Func | None:
    """Return ``func`` on buffers of f64 instead of other floats; None where it looks at their bits,
    or works on matrix tiles."""
    if any(isinstance(s, Intrinsic) for s in walk(func.body)):
        return None
    casts = (e for e in exprs_under(func.body) if isinstance(e, Cast))
    if any(c.bits and (c.dtype.is_float or c.value.dtype.is_float) for c in casts):
        return None
    by = {b: _buffer(b) for b in (*func.params, *func.allocs)}
    named: dict[Var, Var] = {}

    def expr(e: Expr) -> Expr:
        made = map_expr(e, expr)
        match made:
            case Var():
                return named.get(made, made)
            case Const() | Op() | Cast() if made.dtype.is_float:
                return replace(made, dtype=f64)
            case _:
                return made

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Let) and s.var.dtype.is_float:
            named[s.var] = replace(s.var, dtype=f64)
            s = replace(s, var=named[s.var])
        return map_stmt(s, stmt, expr)

    return replace(
        func,
        params=tuple(by[b] for b in func.params),
        allocs=tuple(by[b] for b in func.allocs),
        body=stmt(replace_buffers(func.body, by)),
    )


def _buffer(b: Buffer) -> Buffer:
    return replace(b, dtype=_wide(b.dtype))


def _wide(dtype: DType) -> DType:
    return f64 if dtype.is_float else dtype
