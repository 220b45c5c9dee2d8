"""Bags of rows of an embedding: their sums, means or largest elements, and the gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....dtypes import DType, s64
from ....lax.indexing import scatter_nd, take
from ....lax.reductions import cumulative, reduce_by, sum_
from ....lax.shaping import concatenate, expand_dims, full, iota, reshape, slice_in_dim
from ....lax.term import Term
from ..call import AtenCall, Rows, wide

_MEAN, _MAX = 1, 2  # torch's modes; 0 is a sum


@dataclass(frozen=True, slots=True)
class _Bags:
    """The bag ``of`` each index. All have ``each`` in order, as rows of an array do, if not 0."""

    of: Term
    each: int

    def sizes(self, count: int, counts: Term | None) -> Term:
        """Return how many indices each of ``count`` bags has: of all, or of those that count."""
        site = self.of.site
        if counts is None and self.each:
            return full(site, self.each, s64, (count,))
        ones = full(site, 1, s64, self.of.dims) if counts is None else counts.to(s64)
        return self.reduced(ones, full(site, 0, s64, (count,)), "add")

    def reduced(self, rows: Term, start: Term, opcode: str) -> Term:
        """Return ``start``, combined with the rows of each bag."""
        if not self.of.dims[0]:
            return start
        if self.each:
            bags = reshape(rows, (-1, self.each, *rows.dims[1:]))
            return start.do(opcode, reduce_by(opcode, bags, [1]))
        return _by_place(rows, self.of, start, opcode)


def _bags_of(indices: Term, starts: Term) -> _Bags:
    (n,), (count,), known = indices.dims, starts.dims, starts.known()
    each = n // count if count else 0
    if known is None or each * count != n or not np.array_equal(known, np.arange(count) * each):
        return _Bags(_bag_of(indices, starts), 0)
    return _Bags(iota(indices.site, s64, (n,), 0).do("divide", max(each, 1)), each)


def _counts(indices: Term, padding: int) -> Term | None:
    """Return whether each index counts; None if all do: padding with a negative number is none."""
    return None if padding < 0 else indices.differs(padding)


def _where(counts: Term | None, rows: Term, filler: float) -> Term:
    """``rows`` of the indices that count, ``filler`` instead of others."""
    if counts is None:
        return rows
    dims = [1] if rows.rank > 1 else []
    return expand_dims(counts, dims).do("select", rows, full(rows.site, filler, rows.dtype))


def _bag_of(indices: Term, starts: Term) -> Term:
    """The bag in which each index is."""
    none, ones = (full(indices.site, n, s64, t.dims) for n, t in ((0, indices), (1, starts)))
    begun = scatter_nd(none, expand_dims(starts, [1]), ones, lambda old, new: old + new)
    return cumulative(begun, "add", 0) - 1


def _by_place(rows: Term, places: Term, start: Term, opcode: str) -> Term:
    return scatter_nd(start, expand_dims(places, [1]), rows, lambda old, new: old.do(opcode, new))


def _zeros(c: AtenCall, dtype: DType, *dims: int) -> Term:
    return full(c.graph, 0, dtype, dims)


def _bags(
    c: AtenCall,
    weight: Term,
    indices: Term,
    offsets: Term,
    by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Term | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Term]:
    """The results, the bag of each index, the sizes of bags, the indices of largest elements."""
    (count, width), n = c.dims, indices.dims[0]
    starts = slice_in_dim(offsets, 0, count, 0) if include_last_offset else offsets
    bags, counts = _bags_of(indices, starts), _counts(indices, padding_idx)
    c.within(indices, weight.dims[0])
    rows = take(weight, indices, 0) if n else _zeros(c, c.dtype, 0, width)
    if per_sample_weights is not None:
        rows = rows * expand_dims(per_sample_weights.to(rows.dtype), [1])
    sizes = bags.sizes(count, counts)
    filler: float = -math.inf if mode == _MAX else 0
    rows = _where(counts, rows, filler)
    start = full(c.graph, filler, c.dtype, c.dims)
    found = bags.reduced(rows, start, "maximum" if mode == _MAX else "add")
    if mode == _MEAN:
        found = found / expand_dims(sizes.do("maximum", 1), [1]).to(found.dtype)
    largest = _largest(rows, found, bags, indices, counts) if mode == _MAX and n else None
    found = expand_dims(sizes.equals(0), [1]).do("select", full(c.graph, 0, c.dtype), found)
    others = zip([bags.of, sizes, largest], c.results[1:], strict=True)
    return [found, *(_or_zeros(c, t, s) for t, s in others)]


def _largest(rows: Term, found: Term, bags: _Bags, indices: Term, counts: Term | None) -> Term:
    """The index of the first row of each bag that has its largest element; 0 of an empty bag."""
    n = rows.dims[0]
    numbers = iota(rows.site, s64, rows.dims, 0)
    is_best = rows.equals(take(found, bags.of, 0))
    if counts is not None:
        is_best = is_best & expand_dims(counts, [1])
    none = full(rows.site, n, s64, found.dims)
    first = bags.reduced(is_best.select(numbers, n), none, "minimum")
    chosen = take(indices.to(s64), first.do("minimum", n - 1), 0)
    return first.equals(n).select(0, chosen)


def _or_zeros(c: AtenCall, term: Term | None, shape: Any) -> Term:
    """A further result where it has the declared size, else zeros: eager leaves it out too."""
    if term is not None and term.dims == shape.dims:
        return term
    return _zeros(c, shape.dtype, *shape.dims)


def _backward(
    c: AtenCall,
    grad: Term,
    indices: Term,
    offsets: Term,
    bag: Term,
    sizes: Term,
    largest: Term,
    count: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Term | None = None,
    padding_idx: int = -1,
) -> Term:
    """Added in f32 of narrow floats."""
    if sparse:
        c.refuse("sparse arrays are not compiled", "EmbeddingBag(sparse=False)")
    grad, n = wide(grad), indices.dims[0]
    zeros = _zeros(c, grad.dtype, *c.dims)
    if not n or not grad.shape.size:
        return zeros
    bags, counts = _bags_of(indices, offsets), _counts(indices, padding_idx)
    filled = bags.sizes(grad.dims[0], counts)
    if mode == _MAX:
        columns = iota(c.graph, s64, grad.dims, 1)
        rows = expand_dims(filled, [1]).equals(0).select(0, grad)
        places = _pairs(largest.to(s64), columns)
        return scatter_nd(zeros, places, rows, lambda old, new: old + new)
    if mode == _MEAN:
        grad = grad / expand_dims(filled.do("maximum", 1), [1]).to(grad.dtype)
    rows = take(grad, bags.of, 0)
    if per_sample_weights is not None:
        rows = rows * expand_dims(per_sample_weights.to(rows.dtype), [1])
    if by_frequency:
        once = full(c.graph, 1, s64, (n,))
        times = _by_place(once, indices.to(s64), _zeros(c, s64, count), "add")
        rows = rows / expand_dims(take(times, indices, 0), [1]).to(rows.dtype)
    rows = _where(counts, rows, 0)
    return _by_place(rows, indices.to(s64), zeros, "add")


def _pairs(a: Term, b: Term) -> Term:
    return concatenate([expand_dims(t, [-1]) for t in (a, b)], -1)


def _weights_backward(
    c: AtenCall,
    grad: Term,
    weight: Term,
    indices: Term,
    offsets: Term,
    bag: Term,
    mode: int,
    padding_idx: int = -1,
) -> Term:
    """The product of each index's row and its bag's gradient."""
    if not c.shape.size:
        return _zeros(c, c.dtype, *c.dims)
    rows = wide(take(weight, indices, 0)) * wide(take(grad, _bag_of(indices, offsets), 0))
    return _where(_counts(indices, padding_idx), sum_(rows, [1]), 0)


ROWS: Rows = {
    "aten._embedding_bag.default": _bags,
    "aten._embedding_bag_forward_only.default": _bags,
    "aten._embedding_bag_backward.default": _backward,
    "aten._embedding_bag_per_sample_weights_backward.default": _weights_backward,
}
