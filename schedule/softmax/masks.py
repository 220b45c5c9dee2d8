"""The keys of a row that a mask over rows and keys shows: causal masks, windows, lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...ir.dtypes import index
from ...ir.loop.affine import Linear, bounds, linear, mentions, of_dtype, to_expr
from ...ir.loop.build import NEGATED, add, as_int, floordiv, floormod, maximum, minimum, mul
from ...ir.loop.nodes import Block, BlockAxis, Cast, Const, Expr, Load, Op, Store, Var
from ...ir.loop.visit import free_vars
from ..stores import single_store


@dataclass(frozen=True, slots=True)
class Mask:
    """The only store of a block, of ``select(cond, x, fill)`` with a constant ``fill``.

    If the mask ``hides``, the constant comes first: it replaces scores where ``cond`` holds.
    """

    store: Store
    cond: Expr
    fill: Const
    hides: bool


def mask_of(block: Block) -> Mask | None:
    """Return the mask that a block puts over scores; None if it does anything else."""
    match single_store(block):
        case Store(value=Op(name="select", args=(cond, Const() as fill, _))) as store:
            return Mask(store, cond, fill, True)
        case Store(value=Op(name="select", args=(cond, _, Const() as fill))) as store:
            return Mask(store, cond, fill, False)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class ShownKeys:
    """Bounds such that all keys below ``first`` and from ``end`` on are hidden; None if unknown."""

    first: Expr | None = None
    end: Expr | None = None


def shown_keys(cond: Expr, negated: bool, axes: tuple[BlockAxis, ...], key: Var) -> ShownKeys:
    """Return bounds over the other axes of the keys that a mask shows.

    ``cond`` says which are shown (or, if ``negated``, which are not). Of a conjunction every part
    that is understood is a bound; what is within the bounds may be hidden, too.
    """
    match cond:
        case Op(name="not", args=(a,)):
            return shown_keys(a, not negated, axes, key)
        case Op(name="and" | "or" as name, args=(a, b)) if (name == "or") == negated:
            x, y = (shown_keys(c, negated, axes, key) for c in (a, b))
            return ShownKeys(_both(maximum, x.first, y.first), _both(minimum, x.end, y.end))
        case Op(name="lt" | "le" | "gt" | "ge" as name, args=(a, b)):
            return _bounded(NEGATED[name] if negated else str(name), a, b, axes, key)
        case _:
            return ShownKeys()


def _both(pick: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    return pick(a, b) if a is not None and b is not None else a if b is None else b


def _bounded(how: str, x: Expr, y: Expr, axes: tuple[BlockAxis, ...], key: Var) -> ShownKeys:
    ranges = {a.var: (0, max(a.extent - 1, 0)) for a in axes}
    a, b = _index(x, ranges), _index(y, ranges)
    if a is None or b is None:
        return ShownKeys()
    if how in ("lt", "le"):
        a, b = b, a
    form = linear(a) - linear(b) + Linear({}, int(how in ("le", "ge")))  # above 0 where shown
    k = form.terms.get(key)
    if k not in (1, -1):
        return ShownKeys()
    rest = form + Linear({key: -k})
    bound = to_expr(rest) if k < 0 else to_expr(Linear({}, 1) - rest)
    if mentions(bound, key):
        return ShownKeys()
    return ShownKeys(end=bound) if k < 0 else ShownKeys(first=bound)


def _index(e: Expr, ranges: Mapping[Var, tuple[int, int]]) -> Expr | None:
    """Return an integer expression as an index; None unless it is computed without overflow."""
    if e.dtype == index:
        return e
    found: Expr | None = None
    match e:
        case Const(value=int(n)):
            found = Const(n)
        case Load() if e.dtype.is_int:
            return Cast(e, index)
        case Cast(value=value, bits=False):
            found = _index(value, ranges)
        case Op(name="add" | "subtract" | "multiply" as name, args=(a, b)):
            x, y = _index(a, ranges), _index(b, ranges)
            found = None if x is None or y is None else Op(name, (x, y), index)
    if found is None or not e.dtype.is_int:
        return None
    (low, high), (least, most) = bounds(found, ranges), of_dtype(e.dtype)
    return found if least <= low and high <= most else None


def extreme(e: Expr, inner: Mapping[Var, int], largest: bool) -> Expr | None:
    """Return the largest or the least value of an index over variables of the given extents.

    None unless it is a sum of multiples and quotients of them and of what is independent of them,
    or an extreme of such sums.
    """
    if isinstance(e, Op) and e.name in ("minimum", "maximum") and e.dtype == index:
        a, b = (extreme(x, inner, largest) for x in e.args)
        pick = minimum if e.name == "minimum" else maximum
        return None if a is None or b is None else pick(a, b)
    form = linear(e)
    total: Expr = Const(form.constant)
    for atom, k in form.terms.items():
        up = largest == (k > 0)
        if isinstance(atom, Var) and atom in inner:
            total = add(total, k * (inner[atom] - 1) if up else 0)
        elif not free_vars(atom) & inner.keys():
            total = add(total, mul(atom, k))
        else:
            most = _extreme_part(atom, inner, up)
            if most is None:
                return None
            total = add(total, mul(most, k))
    return total


def _extreme_part(e: Expr, inner: Mapping[Var, int], largest: bool) -> Expr | None:
    """Return the extreme quotient, or remainder of a tile that ends where those begin."""
    match e:
        case Op(name="floordiv", args=(x, Const(value=int(d)))) if d > 0:
            most = extreme(x, inner, largest)
            return None if most is None else floordiv(most, d)
        case Op(name="floormod", args=(x, Const(value=int(d)))) if d > 0:
            form = linear(x)
            within = Linear({a: k for a, k in form.terms.items() if a in inner})
            outer = form - within
            step = math.gcd(d, outer.constant, *outer.terms.values())
            most = extreme(to_expr(within), inner, largest=True)
            if any(free_vars(a) & inner.keys() for a in outer.terms) or most is None:
                return None
            reach = as_int(most)
            if reach is None or reach >= step or min(within.terms.values(), default=0) < 0:
                return None
            return add(floormod(to_expr(outer), d), reach if largest else 0)
        case _:
            return None
