"""Begin a reduction before its loop instead of asking in every iteration.

``for k: if k == 0: C = 0; C = C + x``  ->  ``C = 0; for k: C = C + x``, guards included.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.loop.affine import bounds
from ....ir.loop.build import as_int, both, conjuncts
from ....ir.loop.nodes import Const, Expr, For, Func, If, Kind, Op, Seq, Stmt, Var
from ....ir.loop.visit import free_vars, map_stmt, seq, substitute, substitute_expr
from .rebuild import with_body


def hoist_init(func: Func) -> Func:
    """Return the function with what runs in a loop's first iteration only before that loop."""
    return with_body(func, _hoisted(func.body))


def _hoisted(s: Stmt) -> Stmt:
    s = map_stmt(s, _hoisted)
    if not isinstance(s, For) or s.kind in (Kind.PARALLEL, Kind.THREAD):
        return s
    if bounds(s.extent, {})[0] < 1 or (found := _first(s.body, s.var)) is None:
        return s
    init, rest = found
    return seq(substitute(init, {s.var: Const(0)}), replace(s, body=rest))


def _first(body: Stmt, var: Var) -> tuple[Stmt, Stmt] | None:
    """Return what the body begins with where ``var`` is 0, and the body without it."""
    match body:
        case If(cond=guard, then=then, orelse=None):
            inner = _first(then, var)
            if inner is None:
                return None
            init, rest = inner
            return _under(substitute_expr(guard, {var: Const(0)}), init), If(guard, rest)
        case Seq(stmts=(If(cond=cond, then=then, orelse=None), *after)):
            found = _split(cond, var)
            if found is None:
                return None
            (others,) = found
            return then if others is None else If(others, then), seq(*after)
        case _:
            return None


def _under(guard: Expr, s: Stmt) -> Stmt:
    """Return ``s`` under a guard, merged with its own: an outer loop looks for it there."""
    if isinstance(s, If) and s.orelse is None:
        cond = both(guard, s.cond)
        return s.then if cond is None else If(cond, s.then)
    return If(guard, s)


def _split(cond: Expr, var: Var) -> tuple[Expr | None] | None:
    """Return the other conjuncts of a condition that has ``var == 0``; None if it has not."""
    parts = conjuncts(cond)
    kept = [p for p in parts if not _is_zero(p, var)]
    if len(kept) == len(parts) or any(var in free_vars(p) for p in kept):
        return None
    return (both(*kept),)


def _is_zero(e: Expr, var: Var) -> bool:
    match e:
        case Op(name="eq", args=(a, b)):
            return a is var and as_int(b) == 0  # literals are on the right
        case _:
            return False
