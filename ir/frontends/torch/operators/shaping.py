"""Views, copies, and arrays that are made from nothing: everything that moves elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtypes import f64, s64
from ...lax import bounded
from ...lax.indexing import dynamic_update_slice, scatter_nd, take, windows, wrap
from ...lax.linear import diagonal
from ...lax.shaping import (
    broadcast_in_dim,
    concatenate,
    expand_dims,
    full,
    iota,
    move_axis,
    reshape,
    reverse,
    slice_in_dim,
    split,
    squeeze,
    tile,
    transpose,
    tril,
    triu,
    unstack,
)
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, sized

Ints = Sequence[int]


def _same(c: AtenCall, x: Term, *rest: object, **named: object) -> Term:
    return x


def _reshaped(c: AtenCall, x: Term, *rest: object, **named: object) -> Term:
    """The same elements under the sizes that the graph declares."""
    return bounded.reshape(x, c.dims, c.sizes)


def _expand(c: AtenCall, x: Term, *rest: object, **named: object) -> Term:
    return x.like(c.shape)


def _permute(c: AtenCall, x: Term, dims: Ints) -> Term:
    return transpose(x, dims) if x.rank else x


def _swap(c: AtenCall, x: Term, first: int, second: int) -> Term:
    if not x.rank:
        return x
    order = list(range(x.rank))
    order[first], order[second] = order[second], order[first]
    return transpose(x, order)


def _matrix_transpose(c: AtenCall, x: Term) -> Term:
    return transpose(x, range(x.rank)[::-1])


def bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Return the places of a slice as Python does: negative ones count from the end."""
    low, high, _ = slice(start, end).indices(size)
    return low, max(low, high)


def _slice(
    c: AtenCall,
    x: Term,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Term:
    ends = (0 if start is None else start, x.dims[dim] if end is None else end)
    if any(isinstance(e, Term) for e in ends):
        return bounded.slice_between(x, dim % x.rank, *ends, step, c.dims[dim])
    if dim % x.rank in bounded.varying(x) and min(ends) < 0:
        return bounded.slice_between(x, dim % x.rank, *ends, step, c.dims[dim])
    low, high = bounds(start, end, x.dims[dim])
    return slice_in_dim(x, low, high, dim, step)


def _select(c: AtenCall, x: Term, dim: int, index: Any) -> Term:
    if isinstance(index, Term):
        place = wrap(index.to(s64), bounded.size(x, dim).to(s64))
        return squeeze(take(x, reshape(place, (1,)), dim), [dim])
    if index < 0 and dim % x.rank in bounded.varying(x):
        return _select(c, x, dim, bounded.size(x, dim).to(s64) + index)
    at = index % x.dims[dim]
    return squeeze(slice_in_dim(x, at, at + 1, dim), [dim])


def _split_sizes(c: AtenCall, x: Term, sizes: Ints, dim: int = 0) -> list[Term]:
    c.fixed(x, [dim])
    return split(x, sizes, dim)


def _split(c: AtenCall, x: Term, size: int, dim: int = 0) -> list[Term]:
    c.fixed(x, [dim])
    n = x.dims[dim]
    parts = [min(size, n - k) for k in range(0, n, max(size, 1))] or [0]
    return split(x, parts, dim)


def _unbind(c: AtenCall, x: Term, dim: int = 0) -> list[Term]:
    c.fixed(x, [dim])
    return unstack(x, dim)


def _cat(c: AtenCall, terms: Sequence[Term], dim: int = 0) -> Term:
    given = c.operands(*terms)
    kept = [t for t in given if t.dims != (0,) or c.dims == (0,)]
    return concatenate(kept, dim) if kept else reshape(given[0], c.dims)


def _stack(c: AtenCall, terms: Sequence[Term], dim: int = 0) -> Term:
    axis = dim % len(c.dims)
    return concatenate([expand_dims(t, [axis]) for t in c.operands(*terms)], axis)


def _flip(c: AtenCall, x: Term, dims: Ints) -> Term:
    return reverse(x, dims) if x.rank else x


def _roll(c: AtenCall, x: Term, shifts: Ints, dims: Ints = ()) -> Term:
    if not dims:
        return reshape(_rolled(reshape(x, (x.shape.size,)), shifts[0], 0), x.dims)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, dim)
    return x


def _rolled(x: Term, shift: int, dim: int) -> Term:
    n = x.dims[dim]
    cut = (n - shift % n) % n if n else 0
    if not cut:
        return x
    return concatenate([slice_in_dim(x, cut, n, dim), slice_in_dim(x, 0, cut, dim)], dim)


def _repeat(c: AtenCall, x: Term, repeats: Ints) -> Term:
    wide = expand_dims(x, range(len(repeats) - x.rank))
    return tile(wide, repeats)


def _diagonal(c: AtenCall, x: Term, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Term:
    first, second = dim1 % x.rank, dim2 % x.rank
    n = c.dims[-1]
    row, column = max(0, -offset), max(0, offset)
    if not n:
        return full(c.graph, 0, x.dtype, c.dims)
    square = slice_in_dim(slice_in_dim(x, row, row + n, first), column, column + n, second)
    low, high = sorted((first, second))
    return move_axis(diagonal(square, low, high), low, -1)


def strided_places(dims: Ints, strides: Ints, offset: int) -> np.ndarray[Any, Any]:
    """Return the places in memory of a view of these sizes and strides, as int64."""
    found = np.full((), offset, np.int64)
    for n, step in zip(dims, strides, strict=True):
        found = found[..., None] + np.arange(n, dtype=np.int64) * step
    return np.asarray(found)


def _as_strided(
    c: AtenCall, x: Term, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Term:
    if not c.shape.size:
        return full(c.graph, 0, x.dtype, c.dims)
    places = _elements(c, x, size, stride, storage_offset)
    flat = reshape(x, (x.shape.size,))
    return take(flat, Term(c.graph, c.graph.constant(places)), 0)


def _as_strided_scatter(
    c: AtenCall,
    x: Term,
    source: Term,
    size: Ints,
    stride: Ints,
    storage_offset: int | None = None,
) -> Term:
    return written(c, x, source, _elements(c, x, size, stride, storage_offset))


def _elements(
    c: AtenCall, x: Term, size: Ints, stride: Ints, offset: int | None
) -> np.ndarray[Any, Any]:
    """Return the elements of ``x``, numbered in its own order, that lie where a view does."""
    plain = tuple(math.prod(x.dims[n + 1 :]) for n in range(x.rank))
    strides, start = c.first or (plain, 0)
    wanted = strided_places(size, stride, start if offset is None else offset)
    lies = strided_places(x.dims, strides, start).reshape(-1)
    if not np.isin(wanted, lies).all():
        c.refuse("the view reaches memory that its operand does not cover")
    order = np.argsort(lies, kind="stable")
    numbers = order[np.searchsorted(lies, wanted, sorter=order)]
    return np.asarray(numbers)


def written(c: AtenCall, x: Term, source: Term, places: np.ndarray[Any, Any]) -> Term:
    """``x`` with the elements at these places of its memory replaced."""
    flat = reshape(x, (x.shape.size,))
    index = Term(c.graph, c.graph.constant(places.reshape(-1, 1)))
    updates = reshape(source.to(x.dtype).like(type(x.shape)(x.dtype, places.shape)), (-1,))
    return reshape(scatter_nd(flat, index, updates), x.dims)


def _diagonal_scatter(
    c: AtenCall, x: Term, source: Term, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Term:
    places = np.arange(x.shape.size, dtype=np.int64).reshape(x.dims)
    return written(c, x, source, np.diagonal(places, offset, dim1, dim2))


def _slice_scatter(
    c: AtenCall,
    x: Term,
    source: Term,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Term:
    axis = dim % x.rank
    low, high = bounds(start, end, x.dims[axis])
    source = source.to(x.dtype)
    if step == 1:
        wide = [high - low if k == axis else d for k, d in enumerate(x.dims)]
        part = source.like(type(x.shape)(x.dtype, tuple(wide)))
        return dynamic_update_slice(x, part, [low if k == axis else 0 for k in range(x.rank)])
    places = np.arange(x.shape.size, dtype=np.int64).reshape(x.dims)
    chosen = (*[slice(None)] * axis, slice(low, high, step))
    return written(c, x, source, places[chosen])


def _select_scatter(c: AtenCall, x: Term, source: Term, dim: int, index: int) -> Term:
    axis = dim % x.rank
    c.fixed(x, [axis])
    part = expand_dims(source.to(x.dtype), [axis])
    at = index % x.dims[axis]
    return dynamic_update_slice(x, part, [at if k == axis else 0 for k in range(x.rank)])


def _unfold(c: AtenCall, x: Term, dim: int, size: int, step: int) -> Term:
    if not x.rank:
        return reshape(x, c.dims)
    axis = dim % x.rank
    return move_axis(windows(x, axis, size, step), axis + 1, -1)


def _full(c: AtenCall, size: object, value: Any = 0, *rest: object, **named: object) -> Term:
    one = value if isinstance(value, Term) else full(c.graph, value, c.dtype)
    return one.to(c.dtype).like(c.shape)


def _number(number: int) -> Operator:
    """An array of one number, whatever it is made like."""
    return lambda c, *_, **__: full(c.graph, number, c.dtype, c.dims)


def _scalar(c: AtenCall, value: Any, **named: object) -> Term:
    return c.term(value, c.dtype)


def _arange(c: AtenCall, start: Any, end: Any = None, step: Any = 1, **named: object) -> Term:
    return steps(c, 0 if end is None else start, step)


def steps(c: AtenCall, start: Any, step: Any) -> Term:
    """``start + k step`` for each element of a vector: integers, or rounded once from f64."""
    if isinstance(start, Term) or isinstance(step, Term):
        dtype = s64 if c.dtype.is_int else f64
        return iota(c.graph, dtype, c.dims) * c.term(step, dtype) + c.term(start, dtype)
    if all(isinstance(v, int) for v in (start, step)) or c.dtype.is_int:
        numbers = iota(c.graph, s64, c.dims) * int(step) + int(start)
        return numbers
    return iota(c.graph, f64, c.dims) * float(step) + float(start)


def _prims_iota(c: AtenCall, length: int, *, start: int, step: int, **named: object) -> Term:
    return steps(c, start, step)


def _eye(c: AtenCall, n: int, m: int | None = None, **named: object) -> Term:
    rows, columns = (iota(c.graph, s64, c.dims, k) for k in (0, 1))
    return rows.equals(columns)


def _broadcast_in_dim(c: AtenCall, x: Term, shape: Ints, mapped: Ints) -> Term:
    sizes = [1] * len(shape)
    for k, d in zip(mapped, x.dims, strict=True):
        sizes[k] = d
    return reshape(x, sizes).like(c.shape)


_COPIES = (
    "clone",
    "alias",
    "detach",
    "detach_copy",
    "lift_fresh",
    "lift_fresh_copy",
    "contiguous",
    "alias_copy",
    "view_of",
)
_SHAPED = (
    "view.default",
    "_unsafe_view.default",
    "reshape.default",
    "view_copy.default",
    "_reshape_copy.default",
    "unsqueeze.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "flatten.using_ints",
    "unflatten.int",
)
_ZEROS = (
    "zeros.default",
    "_efficientzerotensor.default",
    "zeros_like.default",
    "new_zeros.default",
    "empty.memory_format",
    "empty_like.default",
    "empty_strided.default",
    "empty_permuted.default",
    "new_empty.default",
    "new_empty_strided.default",
)
"""Arrays of zeros, and those that may hold anything."""


def _meshgrid(c: AtenCall, terms: list[Term], indexing: str = "ij") -> list[Term]:
    """Each vector along a dimension of its own of all the others; ``xy`` swaps the first two."""
    lines = [reshape(t, (-1,)) for t in terms]
    swapped = indexing == "xy" and len(lines) > 1
    axes = [1, 0, *range(2, len(lines))] if swapped else list(range(len(lines)))
    dims = [lines[axes.index(k)].dims[0] for k in range(len(lines))]
    return [broadcast_in_dim(t, dims, [k]) for t, k in zip(lines, axes, strict=True)]


_VIEWS: Rows = {
    **{f"aten.{n}.default": _same for n in _COPIES},
    "prims.view_of.default": _same,
    "prims.clone.default": _same,
    "prims.transpose.default": _permute,
    "prims.cat.default": _cat,
    "prims.rev.default": _flip,
    "aten.permute.default": _permute,
    "aten.transpose.int": _swap,
    "aten.t.default": _matrix_transpose,
    "aten.split_with_sizes.default": _split_sizes,
    "aten.split.Tensor": _split,
    "aten.unbind.int": _unbind,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.flip.default": _flip,
    "aten.repeat.default": _repeat,
    "aten.select_scatter.default": _select_scatter,
    "aten.tril.default": lambda c, x, diagonal=0: tril(x, diagonal),
    "aten.triu.default": lambda c, x, diagonal=0: triu(x, diagonal),
}
_OF_SIZES: Rows = {
    **{f"aten.{n}": _reshaped for n in _SHAPED},
    **{f"aten.{n}": _number(0) for n in _ZEROS},
    **{f"aten.{n}.default": _number(1) for n in ("ones", "ones_like", "new_ones")},
    "prims.split_dim.default": _reshaped,
    "prims.squeeze.default": _reshaped,
    "prims.reshape.default": _reshaped,
    "prims.empty_strided.default": _number(0),
    "prims.empty_permuted.default": _number(0),
    "prims.iota.default": _prims_iota,
    "aten.expand.default": _expand,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.full.default": _full,
    "aten.full_like.default": _full,
    "aten.new_full.default": lambda c, x, size, value, **named: _full(c, size, value),
    "aten.fill.Scalar": _full,
    "aten.fill.Tensor": _full,
    "aten.scalar_tensor.default": _scalar,
    "prims.scalar_tensor.default": _scalar,
    "aten.arange.default": _arange,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "aten.eye.default": _eye,
    "aten.eye.m": _eye,
}
"""Those that are told sizes."""

ROWS: Rows = {
    **sized(_VIEWS),
    **sized(_OF_SIZES, numbers=True),
    "aten.meshgrid.default": _meshgrid,
    "aten.meshgrid.indexing": _meshgrid,
    "prims.collapse_view.default": _reshaped,
    "prims.broadcast_in_dim.default": _broadcast_in_dim,
    "prims.slice_in_dim.default": lambda c, x, start, limit, stride=1, axis=0: slice_in_dim(
        x, start, limit, axis, stride
    ),
    "prims.as_strided.default": _as_strided,
    "prims.as_strided_scatter.default": _as_strided_scatter,
    "aten.roll.default": _roll,
    "aten.diagonal.default": _diagonal,
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.unfold.default": _unfold,
}
