"""How many keys of a row a mask over rows and keys shows: causal masks and their like."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..ir.dtypes import index
from ..ir.loop.affine import Linear, bounds, linear, mentions, of_dtype, to_expr
from ..ir.loop.build import add, as_int, floordiv, floormod, mul
from ..ir.loop.nodes import BlockAxis, Cast, Const, Expr, Op, Var
from ..ir.loop.visit import free_vars

_NEGATED = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}


def masked(e: Expr) -> tuple[Expr, Const, bool] | None:
    """Return condition, constant, and whether it is where the condition holds, of a selection.

    ``select(condition, x, constant)``, or with the constant first; None for anything else.
    """
    match e:
        case Op(name="select", args=(cond, Const() as fill, _)):
            return cond, fill, True
        case Op(name="select", args=(cond, _, Const() as fill)):
            return cond, fill, False
        case _:
            return None


def shown_keys(cond: Expr, negated: bool, axes: tuple[BlockAxis, ...], key: Var) -> Expr | None:
    """Return a bound over the other axes such that the keys below it, and no others, are shown.

    ``cond`` says which are (or, if ``negated``, which are not). None where that is not of the form
    ``key < bound``.
    """
    ranges = {a.var: (0, max(a.extent - 1, 0)) for a in axes}
    match cond:
        case Op(name="lt" | "le" | "gt" | "ge" as name, args=(x, y)):
            a, b = _index(x, ranges), _index(y, ranges)
        case _:
            return None
    if a is None or b is None:
        return None
    how = _NEGATED[name] if negated else str(name)
    if how in ("lt", "le"):
        a, b = b, a
    form = linear(a) - linear(b) + Linear({}, int(how in ("le", "ge")))  # above 0 where shown
    if form.terms.get(key) != -1:
        return None
    bound = to_expr(form + Linear({key: 1}))
    return None if mentions(bound, key) else bound


def _index(e: Expr, ranges: Mapping[Var, tuple[int, int]]) -> Expr | None:
    """Return an integer expression as an index; None unless it is computed without overflow."""
    if e.dtype == index:
        return e
    found: Expr | None = None
    match e:
        case Const(value=int(n)):
            found = Const(n)
        case Cast(value=value, bits=False):
            found = _index(value, ranges)
        case Op(name="add" | "subtract" | "multiply" as name, args=(a, b)):
            x, y = _index(a, ranges), _index(b, ranges)
            found = None if x is None or y is None else Op(name, (x, y), index)
    if found is None or not e.dtype.is_int:
        return None
    (low, high), (least, most) = bounds(found, ranges), of_dtype(e.dtype)
    return found if least <= low and high <= most else None


def largest(e: Expr, inner: Mapping[Var, int]) -> Expr | None:
    """Return the largest value of an index over variables of the given extents.

    None unless it is a sum of multiples and quotients of them and of what is independent of them.
    """
    form = linear(e)
    total: Expr = Const(form.constant)
    for atom, k in form.terms.items():
        if isinstance(atom, Var) and atom in inner:
            total = add(total, k * (inner[atom] - 1) if k > 0 else 0)
        elif not free_vars(atom) & inner.keys():
            total = add(total, mul(atom, k))
        else:
            most = _largest_part(atom, inner) if k > 0 else None
            if most is None:
                return None
            total = add(total, mul(most, k))
    return total


def _largest_part(e: Expr, inner: Mapping[Var, int]) -> Expr | None:
    """Return the largest quotient; the largest remainder of a tile that ends where those begin."""
    match e:
        case Op(name="floordiv", args=(x, Const(value=int(d)))) if d > 0:
            most = largest(x, inner)
            return None if most is None else floordiv(most, d)
        case Op(name="floormod", args=(x, Const(value=int(d)))) if d > 0:
            form = linear(x)
            within = Linear({a: k for a, k in form.terms.items() if a in inner})
            outer = form - within
            step = math.gcd(d, outer.constant, *outer.terms.values())
            most = largest(to_expr(within), inner)
            if any(free_vars(a) & inner.keys() for a in outer.terms) or most is None:
                return None
            reach = as_int(most)
            if reach is None or reach >= step or min(within.terms.values(), default=0) < 0:
                return None
            return add(floormod(to_expr(outer), d), reach)
        case _:
            return None
