"""Name the parts of a fused index, so that guards can be decided by them.

``for f: .. f // 8 .. f % 8 ..``  ->  ``for f: q = let(f // 8); r = let(f % 8); .. q .. r ..`` where
a guard in the body depends on them. What differs between the threads of a block has no name: they
run the same code, and memory that they share must not be there once for each way a guard goes. So
do the iterations of a loop that is to be pipelined.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.dtypes import index
from ....ir.loop.names import called
from ....ir.loop.nodes import Const, Expr, For, Func, If, Kind, Let, Op, Stmt, Var
from ....ir.loop.notes import PIPELINE
from ....ir.loop.visit import exprs, free_vars, map_expr, map_stmt, walk, walk_expr
from .rebuild import with_body


def name_quotients(func: Func) -> Func:
    """Return the function with a ``let`` for the quotients of loop variables in guards."""
    return with_body(func, _named(func.body))


def _named(s: Stmt) -> Stmt:
    s = map_stmt(s, _named)
    if not isinstance(s, For) or s.over_threads or PIPELINE.of(s):
        return s
    atoms = _atoms(s)
    if not atoms:
        return s
    names = {a: Var(f"{called(s)}_{n}") for n, a in enumerate(atoms)}

    def expr(e: Expr) -> Expr:
        return names[e] if isinstance(e, Op) and e in names else map_expr(e, expr)

    def stmt(x: Stmt) -> Stmt:
        return map_stmt(x, stmt, expr)

    body = stmt(s.body)
    for atom, var in reversed(names.items()):
        body = _let(var, atom, body)
    return replace(s, body=body)


def _let(var: Var, value: Expr, body: Stmt) -> Stmt:
    """Return a name for ``body``, inside of the loops over threads, which stay together."""
    if isinstance(body, For) and body.kind is Kind.THREAD:
        return replace(body, body=_let(var, value, body.body))
    return Let(var, value, body)


def _atoms(s: For) -> list[Op]:
    """Quotients and remainders of the loop's variable by literals, outermost, in the guards."""
    found: dict[Op, None] = {}

    def look(e: Expr) -> None:
        if isinstance(e, Op) and e.name in ("floordiv", "floormod") and e.dtype == index:
            if isinstance(e.args[1], Const) and free_vars(e) == {s.var}:
                found[e] = None
                return
        elif isinstance(e, Op):
            for a in e.args:
                look(a)

    for x in walk(s.body):
        if isinstance(x, If):
            look(x.cond)
        for e in exprs(x):
            for y in walk_expr(e):
                if isinstance(y, Op) and y.name == "select":
                    look(y.args[0])
    return list(found)
