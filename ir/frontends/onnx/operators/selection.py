"""Results whose size follows from values: NonZero, Compress and Unique, as bounded sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ....dtypes import s32, s64
from ...lax import bounded, control, indexing, order, reductions, shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


@operator("NonZero", since=9)
def nonzero(node: Node) -> Term:
    """The indices of elements that are not zero, ``[rank, <=size]``, in row-major order."""
    x = node.input(0)
    flat = shaping.reshape(x, (x.shape.size,))
    places, count = bounded.places_of(flat.differs(0))
    rows, step = [], x.shape.size
    for d in x.dims:
        step //= max(d, 1)
        rows.append((places / max(step, 1)).do("remainder", max(d, 1)).to(s64))
    if not rows:
        return shaping.full(node.graph, 0, s64, (0, 1))
    return bounded.resized(shaping.stack(rows), 1, count)


@operator("Compress", since=9)
def compress(node: Node) -> Term:
    """The elements, or the parts along an axis, where the condition holds."""
    x, condition = node.input(0), node.input(1)
    if not node.gives("axis"):
        x, axis = shaping.reshape(x, (x.shape.size,)), 0
    else:
        axis = node.axis("axis", x.rank)
    n = x.dims[axis]
    if (known := condition.known()) is not None:
        chosen = np.flatnonzero(known[:n]).astype(np.int32)
        return indexing.take(x, node.constant(chosen), axis)
    mask = shaping.pad(condition, 0, [0], [n - condition.dims[0]])
    places, count = bounded.places_of(mask)
    return bounded.resized(indexing.take(x, places, axis), axis, count)


def lexicographic(x: Term) -> Term:
    """The order in which the rows of a matrix rise, by the first column that differs; stable."""
    n, columns = x.dims

    def body(number: Term, places: Term) -> Sequence[Term]:
        at = columns - 1 - number
        column = shaping.reshape(indexing.dynamic_slice(x, [0, at], (n, 1)), (n,))
        by = order.argsort(indexing.take(column, places, 0), 0)
        return [indexing.take(places, by, 0)]

    start = shaping.iota(x.site, s32, (n,))
    if columns == 1:
        return order.argsort(shaping.reshape(x, (n,)), 0)
    return control.fori_loop(columns, body, [start])[0]


def _same(a: Term, b: Term) -> Term:
    """Equal, or both NaN."""
    equal = a.equals(b)
    return equal | (a.differs(a) & b.differs(b)) if a.dtype.is_float else equal


def groups_of(rows: Term, rising: bool) -> tuple[Term, Term, Term, Term]:
    """Return the rows of a matrix that differ: where each occurs first (``[n]``, of which as many
    count as there are groups), the group of each row, the sizes of the groups, and their number.

    Groups are in the order of rows if ``rising``, else of their first occurrence.
    """
    n = rows.dims[0]
    by = lexicographic(rows)
    sorted_ = indexing.take(rows, by, 0)
    after = shaping.slice_in_dim(sorted_, 1, n, 0)
    before = shaping.slice_in_dim(sorted_, 0, n - 1, 0)
    starts = shaping.pad(~reductions.all_(_same(after, before), [1]), 1, [1], [0])
    number = reductions.cumulative(starts.to(s32), "add", 0) - 1  # the group of each sorted row
    places, count = bounded.places_of(starts)
    live = shaping.iota(rows.site, s32, (n,)) < count
    first = live.select(indexing.take(by, places, 0), n)
    if not rising:
        first, old = order.sort([first, shaping.iota(rows.site, s32, (n,))], 0)
        new = order.argsort(old, 0)
        number = indexing.take(new, number, 0)
    zeros = shaping.full(rows.site, 0, s32, (n,))
    group = indexing.scatter_nd(zeros, shaping.expand_dims(by, [1]), number, unique=True)
    ones = shaping.full(rows.site, 1, s32, (n,))
    sizes = indexing.scatter_nd(
        zeros, shaping.expand_dims(number, [1]), ones, lambda held, new: held + new
    )
    return first.do("minimum", n - 1), group, sizes, count


@operator("Unique", since=11)
def unique(node: Node) -> tuple[Term, ...]:
    """The distinct elements or parts along an axis, where each occurs first, which of them every
    element is, and how often they occur."""
    x = node.input(0)
    if not node.gives("axis"):
        x, axis = shaping.reshape(x, (x.shape.size,)), 0
    else:
        axis = node.axis("axis", x.rank)
    if not x.dims[axis]:
        none = shaping.full(node.graph, 0, s64, (0,))
        return x, none, none, none
    moved = shaping.move_axis(x, axis, 0)
    rows = shaping.reshape(moved, (moved.dims[0], prod(moved.dims[1:])))
    first, group, sizes, count = groups_of(rows, bool(node.int_("sorted")))
    parts = bounded.resized(indexing.take(x, first, axis), axis, count)
    listed = (bounded.resized(t.to(s64), 0, count) for t in (first, sizes))
    places, counts = listed
    return parts, places, group.to(s64), counts
