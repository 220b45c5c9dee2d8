"""Turn updates of a register tile that may leave it unchanged into bounds of loops.

``r[x] = r[x] + select(p, a, 0)``  ->  ``if p: r[x] = r[x] + a``, where ``p`` is a condition on
indices that all lanes share; a loop over nothing but such updates then runs from the first
iteration in which its condition holds to the last: ``for k in range(3): if y + k >= 1: ..``  ->
``for n in range(3 - max(1 - y, 0)): k = let(n + max(1 - y, 0)); ..``. So a convolution multiplies
no padding. Conditions on the loops of the tile itself are left for ``partition``.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.dtypes import index
from ....ir.elementwise import TABLE, identity
from ....ir.loop.affine import Linear, to_expr
from ....ir.loop.build import add, as_int, both, conjuncts, floordiv, maximum, minimum, sub
from ....ir.loop.names import called
from ....ir.loop.nodes import (
    Alloc,
    Const,
    Expr,
    For,
    Func,
    If,
    Kind,
    Let,
    Load,
    Op,
    Scope,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.visit import free_vars, map_stmt
from .partition import is_bound, positive_form
from .rebuild import with_body


def guard_updates(func: Func) -> Func:
    """Return the function with conditions around such updates, and bounds for loops over them."""
    return with_body(func, _guarded(func.body, None))


def _guarded(s: Stmt, lane: Var | None) -> Stmt:
    if isinstance(s, Store):
        return _conditional(s, lane)
    inner = s.var if isinstance(s, For) and s.kind is Kind.VECTOR else lane
    s = map_stmt(s, lambda c: _guarded(c, inner))
    match s:
        case For(kind=Kind.SERIAL) if lane is None:  # in lanes they may be one instruction's terms
            return _bounded(s)
        case If(cond=cond, then=If(cond=own, then=then, orelse=None), orelse=None):
            together = both(cond, own)
            return then if together is None else If(together, then)
        case _:
            return s


def _conditional(s: Store, lane: Var | None) -> Stmt:
    """Return an update whose operand is neutral unless a condition holds as one under it."""
    if s.buffer.scope is not Scope.REGISTER or not isinstance(s.value, Op):
        return s
    own, args = Load(s.buffer, s.index), s.value.args
    term = next((a for a in args if a != own), None)
    if own not in args or not isinstance(term, Op) or term.name != "select":
        return s
    cond, value, other = term.args
    kind = TABLE[s.value.name]
    if not (kind.associative and kind.commutative) or not isinstance(other, Const):
        return s
    if other.value != identity(s.value.name, other.dtype):
        return s
    if not _of_indices(cond) or (lane is not None and lane in free_vars(cond)):
        return s
    new = replace(s.value, args=tuple(value if a is term else a for a in args))
    return If(cond, replace(s, value=new))


def _of_indices(cond: Expr) -> bool:
    match cond:
        case Op(name="and" | "or" | "not", args=args):
            return all(map(_of_indices, args))
        case Op(name="lt" | "le" | "gt" | "ge" | "eq" | "ne", args=(a, _)):
            return a.dtype == index
        case _:
            return False


def _bounded(s: For) -> For:
    """Return a loop over guarded updates of one place with bounds instead of the guards."""
    count, body, own = as_int(s.extent), s.body, set[Var]()
    while isinstance(body, For | Let | Alloc):
        if isinstance(body, For | Let):
            own.add(body.var)
        body = body.body
    if not isinstance(body, If) or body.orelse is not None or not isinstance(body.then, Store):
        return s
    if count is None or s.var in frozenset[Var]().union(*map(free_vars, body.then.index)):
        return s
    start: Expr = Const(0)
    stop: Expr = Const(count)
    kept: list[Expr] = []
    for cond in conjuncts(body.cond):
        form = positive_form(cond) if is_bound(cond) else Linear({})
        k = form.terms.get(s.var, 0)
        if not k or not _from_outside(form, s.var, own):
            kept.append(cond)
            continue
        rest = form.plus(Linear({s.var: 1}), -k)  # k * var + rest > 0
        if k > 0:
            start = maximum(start, add(floordiv(to_expr(rest * -1), k), 1))
        else:
            stop = minimum(stop, floordiv(add(to_expr(rest), -k - 1), -k))
    if as_int(start) == 0 and as_int(stop) == count:
        return s
    n = Var(called(s))
    inner = Let(s.var, add(n, start), _under(s.body, both(*kept)))
    return replace(s, var=n, extent=sub(stop, start), body=inner)


def _from_outside(form: Linear, var: Var, own: set[Var]) -> bool:
    """True if a condition depends on ``var``, on variables of outer loops, and on no others."""
    others = [a for a in form.terms if a is not var]
    return bool(others) and not any(({var} | own) & free_vars(a) for a in others)


def _under(s: Stmt, cond: Expr | None) -> Stmt:
    """Return a chain of loops down to a guarded update, with ``cond`` as its condition."""
    if isinstance(s, If):
        return s.then if cond is None else replace(s, cond=cond)
    assert isinstance(s, For | Let | Alloc)
    return replace(s, body=_under(s.body, cond))
