"""Indices without clamps that a condition makes needless.

A padded read is ``select(0 <= y and y < n, G[min(max(y, 0), n - 1)], 0)``, so that both arms can be
evaluated. A copy that fills with zeros, or a load of some lanes, reads nothing where the condition
fails; where it holds the index is ``y``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..dtypes import index
from .affine import Linear, linear
from .build import conjuncts
from .nodes import Expr, Op
from .visit import map_expr


def unclamped(e: Expr, cond: Expr | None) -> Expr:
    """Return an index that is ``e`` where ``cond`` holds, and may lie anywhere else."""
    known = tuple(_at_least_zero(cond))
    return _without(e, known) if known else e


def _at_least_zero(cond: Expr | None) -> Iterator[Linear]:
    """Yield linear forms that are at least 0 where a condition holds."""
    for c in conjuncts(cond):
        match c:
            case Op(name="lt" | "le" as name, args=(a, b)) if a.dtype == index:
                yield linear(b) - linear(a) - Linear({}, int(name == "lt"))
            case Op(name="gt" | "ge" as name, args=(a, b)) if a.dtype == index:
                yield linear(a) - linear(b) - Linear({}, int(name == "gt"))


def _without(e: Expr, known: Sequence[Linear]) -> Expr:
    e = map_expr(e, lambda inner: _without(inner, known))
    match e:
        case Op(name="maximum" | "minimum" as name, args=(a, b), dtype=d) if d == index:
            larger = a if _holds(a, b, known) else b if _holds(b, a, known) else None
            if larger is not None:
                return larger if name == "maximum" else b if larger is a else a
    return e


def _holds(a: Expr, b: Expr, known: Sequence[Linear]) -> bool:
    """True if ``a >= b`` is one of the facts, or follows from one by its constant."""
    form = linear(a) - linear(b)
    return any(dict(form.terms) == dict(k.terms) and form.constant >= k.constant for k in known)
