"""Padding as the blocks of a function have it: selections of zero beyond the ends of an operand."""

from __future__ import annotations

from ....ir.dtypes import index
from ....ir.loop.affine import linear
from ....ir.loop.nodes import Const, Expr, Load, Op, Var
from ...primitives.inline import store_of
from ...space.analyze import BlockInfo


def pads_ends(info: BlockInfo) -> bool:
    """True if a block copies an array, with zeros where an axis is beyond its ends.

    Then bounds of loops can leave out the zeros; those between the elements of a dilated array are
    no such padding.
    """
    store = store_of(info.block)
    match None if store is None else store.value:
        case Op(name="select", args=(cond, Load(), Const(value=zero))):
            return not zero and _is_bound(cond)
        case _:
            return False


def _is_bound(cond: Expr) -> bool:
    match cond:
        case Op(name="and", args=(a, b)):
            return _is_bound(a) and _is_bound(b)
        case Op(name="lt" | "le" | "gt" | "ge", args=(a, b)) if a.dtype == index:
            terms = (linear(a) - linear(b)).terms
            return len(terms) == 1 and all(isinstance(x, Var) for x in terms)
        case _:
            return False
