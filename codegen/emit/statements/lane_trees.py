"""Neighboring results that are reduced across lanes: one tree of shuffles for all of them.

``for i in unroll: for l in vectorize: r[i] = r[i] + x[i, l]`` has a vector of partial sums for each
result. In each level of the tree the sums of two vectors become the halves of one, so that 16
vectors of 16 lanes take 15 additions of whole vectors where each by itself would take four of ever
fewer lanes, and the totals are neighbors in a register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.dtypes import index
from ....ir.elementwise import identity
from ....ir.loop.affine import steps
from ....ir.loop.build import as_int
from ....ir.loop.nodes import Expr, For, Kind, Load, Store, Var
from ..access import store_element
from ..expr import Emitter
from ..llvm.core import IRValue
from ..ops import apply
from ..small_strides import mixed
from .vector import PIECES, SMALLEST, reduction, vectorizable, widest


@dataclass(frozen=True, slots=True)
class _Reductions:
    """``rows`` neighboring elements of the store, reduced by ``name`` over ``lanes`` terms each."""

    store: Store
    name: str
    term: Expr
    rows: tuple[Var, int]
    lanes: tuple[Var, int]
    width: int


def reduce_neighbors(em: Emitter, s: For) -> bool:
    """Emit an unrolled loop over reductions across lanes as trees; False if it is none."""
    found = _reductions(em, s)
    if found is None:
        return False
    (row, count), width = found.rows, found.width
    for first in range(0, count, width):
        rows = min(width, count - first)
        parts = []
        for k in range(first, first + rows):
            em.env[row] = em.const(k, index)
            parts.append(_partial(em, found))
        total = _across_all(em, found.name, parts)
        at = found.store.index[0]
        with em.over(em.lanes_from(row, em.const(first, index), total.lanes, rows)):
            old = em.value(Load(found.store.buffer, (at,)))
            store_element(em, found.store.buffer, at, apply(em, found.name, (old, total)))
    return True


def _reductions(em: Emitter, s: For) -> _Reductions | None:
    match s:
        case For(kind=Kind.UNROLLED, body=For(kind=Kind.VECTOR, body=Store() as store) as inner):
            counts = as_int(s.extent), as_int(inner.extent)
        case _:
            return None
    if em.device is not None or em.lanes is not None or store.buffer.dtype.kind == "pred":
        return None
    how = reduction(store, {inner.var})
    if how is None or None in counts or not vectorizable(inner):
        return None
    rows, lanes = (n or 0 for n in counts)
    width = min(em.target.lanes(widest(store)), 1 << (lanes - 1).bit_length())
    if min(rows, width) < 2 or lanes > PIECES * width or steps(store.index[0], s.var) != (1,):
        return None
    return _Reductions(store, *how, (s.var, rows), (inner.var, lanes), width)


def _partial(em: Emitter, r: _Reductions) -> IRValue:
    """Return one vector that holds the terms of one result, reduced to so many."""
    (_, count), width = r.lanes, r.width
    found: IRValue | None = None
    for base in range(0, count, width):
        x = _terms(em, r, base, min(width, count - base))
        found = x if found is None else apply(em, r.name, (found, x))
    assert found is not None
    return found


def _terms(em: Emitter, r: _Reductions, base: int, count: int) -> IRValue:
    """Return so many terms from one on, followed by what changes no result."""
    lane, lanes = r.lanes[0], 1 << (count - 1).bit_length()
    em.env[lane] = em.const(base, index)
    own = em.lanes_from(lane, em.env[lane], lanes, count) if lanes > 1 else None
    with em.over(own):
        x = em.broadcast(em.value(r.term), lanes if lanes > 1 else r.width)
    neutral = em.like(identity(r.name, x.dtype), x)
    if own is None or own.mask is not None:
        x = em.select(em.first_lanes(count, x.lanes), x, neutral)
    if x.lanes < r.width:
        order = [*range(lanes), *[lanes] * (r.width - lanes)]
        x = mixed(em, x, neutral, order)
    return x


def _across_all(em: Emitter, name: str, rows: list[IRValue]) -> IRValue:
    """Return the totals of vectors as the lanes of one, of which those past the last are any.

    A level adds the lanes of even number to those of odd number: first inside of the parts of a
    register that shuffles do not leave cheaply, then whole such parts.
    """
    level = [*rows, *rows[-1:] * ((1 << (len(rows) - 1).bit_length()) - len(rows))]
    part = min(rows[0].lanes, SMALLEST // rows[0].dtype.bits)
    inside = part.bit_length() - 1
    for n in range(rows[0].lanes.bit_length() - 1):
        unit, span = (1, part) if n < inside else (part, level[0].lanes)
        if len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=True)
            level = [_combined(em, name, pair, unit, span) for pair in pairs]
        else:
            level = [_combined(em, name, level, unit, span)]
            part = part // 2 if n < inside else part
    return level[0]


def _combined(em: Emitter, name: str, vectors: Sequence[IRValue], unit: int, span: int) -> IRValue:
    """Combine units of even number with those of odd number; in each span those of one vector, then
    those of the next.
    """
    lanes = vectors[0].lanes
    starts = [
        p + k + lanes * n
        for p in range(0, lanes, span)
        for n in range(len(vectors))
        for k in range(0, span, 2 * unit)
    ]
    even = [k + n for k in starts for n in range(unit)]
    first, last = vectors[0], vectors[-1]
    halves = (mixed(em, first, last, order) for order in (even, [k + unit for k in even]))
    return apply(em, name, tuple(halves))
