"""Elements by computed places: reads, writes, embeddings and searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtypes import s32, s64
from ...lax import bounded
from ...lax.arithmetic import floor_divide
from ...lax.indexing import (
    Update,
    gather_nd,
    put_along_axis,
    scatter_nd,
    take,
    take_along_axis,
    wrap,
)
from ...lax.reductions import cumulative, identity
from ...lax.shaping import (
    broadcast_to,
    concatenate,
    expand_dims,
    full,
    iota,
    reshape,
    slice_,
    squeeze,
    transpose,
)
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, sized, wide
from .promotion import Operand
from .reductions import norm

Indices = Sequence[Term | None]
_APART = 1e-7  # what torch adds to a norm that it divides by


def _extent(x: Term, axis: int) -> Term | int:
    """The size of a dimension; an s64 scalar if it varies."""
    return bounded.size(x, axis).to(s64) if axis in bounded.varying(x) else x.dims[axis]


def _check(c: AtenCall, x: Term, indices: Indices) -> None:
    """Require that indices are in their dimensions, from the end where they are negative."""
    if "_unsafe_" in c.target:
        return
    for k, i in enumerate(indices):
        if i is not None and i.dtype.kind != "pred":
            c.within(i, x.dims[k], -x.dims[k])


def _places(c: AtenCall, x: Term, indices: Indices) -> tuple[list[int], Term, int]:
    """The indexed dimensions, vectors of places in them, and where these stand in the result."""
    _check(c, x, indices)
    along = [k for k, i in enumerate(indices) if i is not None]
    given = [wrap(i.to(s64), _extent(x, k)) for k, i in enumerate(indices) if i is not None]
    dims = np.broadcast_shapes(*(i.dims for i in given))
    vectors = concatenate([expand_dims(broadcast_to(i, dims), [-1]) for i in given], -1)
    together = along == list(range(along[0], along[-1] + 1))
    return along, vectors, along[0] if together else 0


def _without_masks(indices: Indices) -> list[Term | None]:
    """Indices with the places of its truths in place of each mask."""
    found: list[Term | None] = []
    for i in indices:
        if i is None or i.dtype.kind != "pred":
            found.append(i)
        else:
            found += bounded.nonzero(i)
    return found


def _index(c: AtenCall, x: Term, indices: Indices) -> Term:
    if not c.shape.size or not x.shape.size:
        if any(i is not None and i.dtype.kind == "pred" and i.shape.size for i in indices):
            c.refuse("a mask chooses of an array without elements")
        _check(c, x, indices)
        return full(c.graph, 0, c.dtype, c.dims)
    indices = _without_masks(indices)
    along, vectors, front = _places(c, x, indices)
    outer = vectors.rank - 1
    if len(along) == 1:
        return take(x, squeeze(vectors, [-1]), along[0])
    rest = [k for k in range(x.rank) if k not in along]
    found = gather_nd(transpose(x, along + rest), vectors)
    return transpose(found, _moved(found.rank, outer, front))


def _moved(rank: int, outer: int, front: int) -> list[int]:
    """The order that puts the first ``outer`` dimensions after ``front`` others."""
    rest = list(range(outer, rank))
    return [*rest[:front], *range(outer), *rest[front:]]


def _index_put(
    c: AtenCall, x: Term, indices: Indices, values: Term, accumulate: bool = False, *_: Any
) -> Term:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype.kind == "pred" and values.shape.size == 1:
        return _masked_put(x, indices, values, accumulate)
    indices = _without_masks(indices)
    along, vectors, front = _places(c, x, indices)
    outer = vectors.rank - 1
    rest = [k for k in range(x.rank) if k not in along]
    moved = transpose(x, along + rest)
    order = _moved(outer + len(rest), outer, front)
    dims = (*vectors.dims[:-1], *moved.dims[len(along) :])
    rows = values.to(x.dtype)
    if any(i is not None and bounded.varying(i) for i in indices):
        rows = _as_many(rows, vectors, order)
    shown = broadcast_to(rows, [dims[k] for k in order])
    updates = transpose(shown, [order.index(k) for k in range(len(order))])
    if not updates.shape.size:
        return x
    found = scatter_nd(moved, vectors, updates, _add(x) if accumulate else None)
    back = along + rest
    return transpose(found, [back.index(k) for k in range(x.rank)])


def _as_many(values: Term, vectors: Term, order: Sequence[int]) -> Term:
    """Values with as many rows as there are places at most, where a mask decides how many."""
    axis = order.index(0) - len(order) + values.rank
    if vectors.rank != 2 or axis < 0 or values.dims[axis] in (1, vectors.dims[0]):
        return values
    held = bounded.size(values, axis)
    return bounded.resized(bounded.fitted(values, axis, vectors.dims[0]), axis, held)


def _masked_put(x: Term, indices: Indices, values: Term, accumulate: bool) -> Term:
    """One value wherever a mask over some dimensions holds."""
    first = next(k for k, i in enumerate(indices) if i is not None)
    mask = indices[first]
    assert mask is not None
    dims = [1] * first + list(mask.dims) + [1] * (x.rank - first - mask.rank)
    value = reshape(values.to(x.dtype), ())
    return reshape(mask, dims).do("select", x + value if accumulate else value, x)


def _add(x: Term) -> Update:
    return (lambda old, new: old | new) if x.dtype.kind == "pred" else (lambda old, new: old + new)


def _index_select(c: AtenCall, x: Term, dim: int, index: Term) -> Term:
    c.within(index, x.dims[dim] if x.rank else 1)
    if not x.rank:
        return reshape(x, c.dims)
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    return take(x, index if index.rank else reshape(index, (1,)), dim)


def _gather(c: AtenCall, x: Term, dim: int, index: Term, sparse_grad: bool = False) -> Term:
    """Elements by their place in a row of ``x``."""
    c.within(index, x.dims[dim] if x.rank else 1)
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    if not x.rank or not index.rank:
        c.fixed(x, range(x.rank))
        c.fixed(index, range(index.rank))
        flat = reshape(x, (x.shape.size,))
        return reshape(take(flat, reshape(index, (index.shape.size,)), 0), c.dims)
    return take_along_axis(x, index, dim)


def _updates(x: Term, index: Term, source: Operand | Term, c: AtenCall) -> Term:
    """The part of a source that an index writes; a number for each of its places."""
    if not isinstance(source, Term):
        return full(c.graph, source, x.dtype, index.dims)
    source = _cut(source, index)
    part = slice_(source, [0] * source.rank, index.dims) if source.rank else source
    return broadcast_to(part.to(x.dtype), index.dims)


def _cut(source: Term, index: Term) -> Term:
    """A source with bounds that are at least those of an index."""
    for axis in bounded.varying(source):
        if source.dims[axis] < index.dims[axis]:
            held = bounded.size(source, axis)
            wide = bounded.fitted(source, axis, index.dims[axis])
            source = bounded.resized(wide, axis, held)
    return source


def _vector(x: Term) -> Term:
    return x if x.rank else reshape(x, (1,))


def _scattered(
    c: AtenCall, x: Term, dim: int, index: Term, source: Term | Operand, update: Update | None
) -> Term:
    if not index.shape.size:
        return x
    c.within(index, x.dims[dim] if x.rank else 1)
    new = _updates(x, index, source, c)
    found = put_along_axis(_vector(x), _vector(index), _vector(new), dim, update)
    return reshape(found, x.dims)


def _scatter(
    c: AtenCall, x: Term, dim: int, index: Term, source: Term | Operand, *, reduce: str = ""
) -> Term:
    """Elements written, or with ``reduce`` added or multiplied."""
    return _scattered(c, x, dim, index, source, _combination(c, x, reduce) if reduce else None)


def _scatter_add(c: AtenCall, x: Term, dim: int, index: Term, source: Term) -> Term:
    return _scattered(c, x, dim, index, source, _add(x))


_OPCODES = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "multiply",
    "multiply": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}


def _combination(c: AtenCall, x: Term, reduce: str) -> Update:
    opcode = _OPCODES[reduce]
    if x.dtype.kind == "pred":
        opcode = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}[opcode]
    return lambda old, new: old.do(opcode, new)


def _scatter_reduce(
    c: AtenCall,
    x: Term,
    dim: int,
    index: Term,
    source: Term,
    reduce: str,
    *,
    include_self: bool = True,
) -> Term:
    update = _combination(c, x, reduce)
    start = x
    if not include_self:
        neutral = _neutral(x, _OPCODES[reduce])
        start = _scattered(c, x, dim, index, neutral, None)
    found = _scattered(c, start, dim, index, source, update)
    if reduce != "mean":
        return found
    counts = full(c.graph, 1 if include_self else 0, x.dtype, x.dims)
    counts = _scattered(c, counts, dim, index, 1, _add(x))
    counts = counts.do("maximum", 1)
    return found / counts if x.dtype.is_float else floor_divide(found, counts)


def _neutral(x: Term, opcode: str) -> Any:
    if x.dtype.kind == "pred":
        return opcode in ("multiply", "minimum")
    return identity(opcode, x.dtype)


def _index_reduce(
    c: AtenCall,
    x: Term,
    dim: int,
    index: Term,
    source: Term,
    reduce: str,
    *,
    include_self: bool = True,
) -> Term:
    if not x.rank or not source.rank:
        x1, s1 = _vector(x), _vector(source)
        return reshape(
            _scatter_reduce(c, x1, 0, _vector(index), s1, reduce, include_self=include_self), x.dims
        )
    axis = dim % x.rank
    sizes = [-1 if k == axis else 1 for k in range(x.rank)]
    spread = broadcast_to(reshape(index, sizes), source.dims)
    return _scatter_reduce(c, x, axis, spread, source, reduce, include_self=include_self)


def _embedding(c: AtenCall, weight: Term, indices: Term, *rest: Any) -> Term:
    c.within(indices, weight.dims[0])
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    return take(weight, indices, 0)


def _embedding_backward(
    c: AtenCall, grad: Term, indices: Term, count: int, padding_idx: int, by_frequency: bool
) -> Term:
    width = grad.dims[-1]
    if not width:
        return full(c.graph, 0, c.dtype, c.dims)
    rows = reshape(grad.to(c.dtype), (-1, width))
    places = reshape(indices.to(s64), (-1, 1))
    if by_frequency:
        once = full(c.graph, 1, c.dtype, (places.dims[0],))
        zero = full(c.graph, 0, c.dtype, (count,))
        counts = scatter_nd(zero, places, once, lambda old, new: old + new)
        rows = rows / take(counts, places, 0)
    rows = places.equals(padding_idx).select(full(c.graph, 0, c.dtype), rows)
    zeros = full(c.graph, 0, c.dtype, c.dims)
    return scatter_nd(zeros, places, rows, lambda old, new: old + new)


def _renormalized(
    c: AtenCall, weight: Term, indices: Term, max_norm: float, norm_type: float
) -> Term:
    """The rows that are named and have a larger norm, scaled to ``max_norm``."""
    if not indices.shape.size or not weight.shape.size:
        return weight
    places = reshape(indices.to(s64), (-1, 1))
    ones = full(c.graph, 1, s64, places.dims[:1])
    named = scatter_nd(full(c.graph, 0, s64, weight.dims[:1]), places, ones)
    found = norm(wide(weight).do("abs"), norm_type, [1], True)
    large = expand_dims(named, [1]).equals(1) & (found > max_norm)
    return weight * large.select(max_norm / (found + _APART), 1).to(weight.dtype)


def _masked_scatter(c: AtenCall, x: Term, mask: Term, source: Term) -> Term:
    """The elements of a source in order, wherever a mask holds."""
    wide, x = broadcast_to(mask, c.dims), broadcast_to(x, c.dims)
    if not c.shape.size or not source.shape.size:
        return x
    flat = reshape(wide, (c.shape.size,))
    numbers = cumulative(flat.to(s64), "add", 0) - 1
    c.within(numbers, source.shape.size, -1)
    chosen = take(reshape(source.to(x.dtype), (source.shape.size,)), numbers, 0)
    return wide.do("select", reshape(chosen, c.dims), x)


def _masked_scatter_backward(c: AtenCall, grad: Term, mask: Term, sizes: Sequence[int]) -> Term:
    """The elements that a mask chooses, in order, before zeros; those beyond the sizes are left."""
    count = c.shape.size
    nothing = full(c.graph, 0, grad.dtype, (count,))
    if not count or not grad.shape.size:
        return reshape(nothing, c.dims)
    flat = reshape(broadcast_to(mask, grad.dims), (grad.shape.size, 1))
    numbers = cumulative(flat.to(s64), "add", 0) - 1
    places = flat.do("select", numbers, numbers.number(count).like(numbers.shape))
    found = scatter_nd(nothing, places, reshape(grad, (grad.shape.size,)))
    return reshape(found, c.dims)


def _put(c: AtenCall, x: Term, index: Term, source: Term, accumulate: bool = False) -> Term:
    if not index.shape.size:
        return x
    c.within(index, x.shape.size, -x.shape.size)
    flat = reshape(x, (x.shape.size,))
    places = wrap(reshape(index, (index.shape.size, 1)), x.shape.size)
    new = reshape(source, (index.shape.size,))
    return reshape(scatter_nd(flat, places, new, _add(x) if accumulate else None), x.dims)


def _take(c: AtenCall, x: Term, index: Term) -> Term:
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    c.fixed(x, range(x.rank))
    c.within(index, x.shape.size, -x.shape.size)
    return take(reshape(x, (x.shape.size,)), wrap(index, x.shape.size), 0)


def _search(c: AtenCall, edges: Term, values: Any, right: bool, sorter: Term | None = None) -> Term:
    """The count of edges that are below each value; with ``right`` also those that equal it.

    Found as torch finds it, by halving, so that edges that are not sorted give the same.
    """
    if sorter is not None:
        edges = take_along_axis(edges, sorter, edges.rank - 1)
    c.fixed(edges, range(edges.rank))
    a, v = c.promoted(edges, values)
    size = a.dims[-1]
    begin, end = (full(c.graph, n, s32, v.dims) for n in (0, size))
    for _ in range(size.bit_length()):
        middle = begin + (end - begin).do("shift-right-logical", 1)
        near = middle.do("minimum", size - 1)
        edge = take(a, near, 0) if a.rank == 1 else take_along_axis(a, near, a.rank - 1)
        beyond = edge > v if right else edge >= v  # false with NaN
        left = begin < end
        begin = (left & ~beyond).select(middle + 1, begin)
        end = (left & beyond).select(middle, end)
    return begin.to(s64)


def _searchsorted(
    c: AtenCall,
    edges: Term,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Term | None = None,
) -> Term:
    return _search(c, edges, values, right or side == "right", sorter)


def _bucketize(
    c: AtenCall, values: Any, edges: Term, *, out_int32: bool = False, right: bool = False
) -> Term:
    if edges.rank != 1:
        c.refuse(f"its boundaries have {edges.rank} dimensions, not one")
    return _search(c, edges, values, right)


def _nonzero_static(c: AtenCall, x: Term, *, size: int, fill_value: int = -1) -> Term:
    """The places of the first ``size`` elements that are not zero."""
    flat = reshape(x, (x.shape.size,)).differs(0)
    rank = cumulative(flat.to(s64), "add", 0) - 1
    target = flat.select(rank, size)
    slots = full(c.graph, -1, s64, (size,))
    numbers = iota(c.graph, s64, flat.dims)
    found = scatter_nd(slots, expand_dims(target, [1]), numbers)
    columns = []
    for k in range(x.rank):
        below = math.prod(x.dims[k + 1 :])
        columns.append(expand_dims((found / below).do("remainder", x.dims[k]), [1]))
    if not columns:
        return full(c.graph, 0, s64, c.dims)
    places = concatenate(columns, 1)
    return expand_dims(found < 0, [1]).select(fill_value, places)


def _named(name: str, operator: Operator, *overloads: str) -> Rows:
    return {f"aten.{name}.{o}": operator for o in overloads or ("default",)}


ROWS: Rows = {
    **sized(
        {
            **_named("index", _index, "Tensor"),
            **_named("_unsafe_index", _index, "Tensor"),
            **_named("index_put", _index_put),
            **_named("_unsafe_index_put", _index_put),
            **_named("index_select", _index_select),
            **_named("gather", _gather),
            **_named("scatter", _scatter, "src", "value", "reduce", "value_reduce"),
            **_named("scatter_add", _scatter_add),
            **_named("scatter_reduce", _scatter_reduce, "two"),
            **_named("embedding", _embedding),
            **_named("take", _take),
            **_named("searchsorted", _searchsorted, "Tensor", "Scalar"),
            **_named("bucketize", _bucketize, "Tensor", "Scalar"),
        }
    ),
    **_named("index_reduce", _index_reduce),
    **_named("embedding_dense_backward", _embedding_backward),
    **_named("embedding_renorm", _renormalized),
    **_named("masked_scatter", _masked_scatter),
    **_named("masked_scatter_backward", _masked_scatter_backward),
    **_named("put", _put),
    **_named("nonzero_static", _nonzero_static),
}
