"""Padding as the blocks of a function have it: selections of zero beyond the ends of an operand."""

from __future__ import annotations

import math

from .....ir.dtypes import index
from .....ir.loop.affine import linear
from .....ir.loop.build import conjuncts
from .....ir.loop.nodes import Const, Expr, Load, Op, Var
from ....space.analyze import BlockInfo
from ....stores import single_store

LINES_PER_FMA = 6  # of LLVM code
MOST_LINES = 2400  # of a tile and its copies at the borders, less than what lowering may copy
MOST_PLACES = 4096  # of a window along one axis that are looked at one by one


def pads_ends(info: BlockInfo) -> bool:
    """True if a block copies an array, with zeros where an axis is beyond its ends.

    Then bounds of loops can leave out the zeros; those between the elements of a dilated array are
    no such padding.
    """
    store = single_store(info.block)
    match None if store is None else store.value:
        case Op(name="select", args=(cond, Load(), Const(value=zero))):
            return not zero and _is_bound(cond)
        case _:
            return False


def kept_share(padding: BlockInfo, reader: BlockInfo, along: Var | None = None) -> float:
    """Return the share of the products of ``reader`` whose factor is no zero of ``padding``.

    With ``along`` an axis, only zeros at the ends of dimensions indexed by it count.
    """
    store = single_store(padding.block)
    if store is None or not isinstance(store.value, Op):
        return 1.0
    extents = {a.var: a.extent for a in (*reader.spatial, *reader.reduce)}
    share = 1.0
    for access in (a for a in reader.loads if a.buffer is store.buffer):
        for axis, form in zip(store.index, access.coefficients, strict=True):
            conditions = [c for c in conjuncts(store.value.args[0]) if _variable(c) is axis]
            if form is None or not conditions or math.prod(extents[v] for v in form) > MOST_PLACES:
                continue
            if along is not None and along not in form:
                continue
            places = [0]
            for v, k in form.items():
                places = [p + k * n for p in places for n in range(extents[v])]
            inside = sum(all(_holds(c, p) for c in conditions) for p in places)
            share *= inside / max(len(places), 1)
    return share


def _is_bound(cond: Expr) -> bool:
    return all(_variable(c) is not None for c in conjuncts(cond))


def _variable(cond: Expr) -> Var | None:
    """Return the only variable of a comparison of indices; None for any other condition."""
    match cond:
        case Op(name="lt" | "le" | "gt" | "ge", args=(a, b)) if a.dtype == index:
            terms = [*(linear(a) - linear(b)).terms]
            return terms[0] if len(terms) == 1 and isinstance(terms[0], Var) else None
        case _:
            return None


def _holds(cond: Expr, place: int) -> bool:
    """True if a comparison with one variable holds where that is ``place``."""
    assert isinstance(cond, Op)
    form = linear(cond.args[0]) - linear(cond.args[1])
    value = sum(k * place for k in form.terms.values()) + form.constant
    match cond.name:
        case "lt":
            return value < 0
        case "le":
            return value <= 0
        case "gt":
            return value > 0
        case _:
            return value >= 0
