"""Open blocks: axes become the values that the loops give them, guards become conditions.

``with block(i := i0 * 8 + i1) where i < 61: init; body``  ->
``if i0 * 8 + i1 < 61: (if every reduce axis == 0: init); body``
"""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.loop.build import both, compare
from ....ir.loop.nodes import AxisKind, Block, Expr, Func, If, Stmt, Var
from ....ir.loop.visit import map_stmt, seq, substitute, substitute_expr
from .rebuild import with_body


def lower_blocks(func: Func) -> Func:
    """Return the function without blocks; the same object if it has none."""
    return with_body(func, _opened(func.body))


def _opened(s: Stmt) -> Stmt:
    if not isinstance(s, Block):
        return map_stmt(s, _opened)
    values: Mapping[Var, Expr] = {a.var: a.value for a in s.axes}
    body = substitute(_opened(s.body), values)
    if s.init is not None:
        first = [compare("eq", a.value, 0) for a in s.axes if a.kind is AxisKind.REDUCE]
        init, start = substitute(_opened(s.init), values), both(*first)
        body = seq(init if start is None else If(start, init), body)
    guard = None if s.predicate is None else substitute_expr(s.predicate, values)
    return body if guard is None else If(guard, body)
