"""Results whose size follows from values: NonZero, Compress and Unique, as bounded sizes."""

from __future__ import annotations

from math import prod

import numpy as np

from ....arrays import Array
from ....dtypes import s64
from ...lax import bounded, indexing, shaping
from ...lax.distinct import groups_of
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


@operator("NonZero", since=9, sized=True)
def nonzero(node: Node) -> Term:
    """The indices of elements that are not zero, ``[rank, <=size]``, in row-major order."""
    x = node.input(0)
    if not x.rank:
        return shaping.full(node.graph, 0, s64, (0, 1))
    if (known := x.known()) is not None:
        return node.constant(np.stack(np.nonzero(known)).astype(np.int64))
    return shaping.stack([place.to(s64) for place in bounded.nonzero(x)])


@operator("Compress", since=9, sized=True)
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


@operator("Unique", since=11, sized=True)
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
    known = x.known()
    if known is not None and known.dtype.kind in "biuf" and not np.isnan(known).any():
        return _unique_of_constant(node, known, axis)
    moved = shaping.move_axis(x, axis, 0)
    rows = shaping.reshape(moved, (moved.dims[0], prod(moved.dims[1:])))
    first, group, sizes, count = groups_of(rows, bool(node.int_("sorted")), nan_is_one=True)
    parts = bounded.resized(indexing.take(x, first, axis), axis, count)
    listed = (bounded.resized(t.to(s64), 0, count) for t in (first, sizes))
    places, counts = listed
    return parts, places, group.to(s64), counts


def _unique_of_constant(node: Node, x: Array, axis: int) -> tuple[Term, ...]:
    """The same of a constant without NaN, whose sizes shapes may then depend on."""
    parts, first, group, counts = np.unique(x, True, True, True, axis=axis)
    order = np.arange(len(first)) if node.int_("sorted") else np.argsort(first)
    numbers = [first[order], np.argsort(order)[group.reshape(-1)], counts[order]]
    places = [node.constant(n.astype(np.int64)) for n in numbers]
    return node.constant(np.take(parts, order, axis)), *places
