"""Arrays whose size each run determines, within a bound: dimensions ``<=n`` of HLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ...dtypes import pred, s32, s64
from ...hlo.live_sizes import tells_sizes
from ...hlo.nodes import Shape
from .indexing import scatter_nd, take, wrap
from .reductions import cumulative, sum_
from .shaping import broadcast_to, expand_dims, flatten, full, iota, pad, slice_in_dim
from .shaping import reshape as plain_reshape
from .term import Term, common_shape, innermost

LEAST = 2
"""The least bound of a size that values decide: one element would look as if it broadcast."""


def resized(x: Term, axis: int, size: Term) -> Term:
    """The first ``size`` elements of a dimension, whose bound is its size in ``x``."""
    site = innermost([x, size])
    along = (axis % x.rank,)
    value = site.infer("set-dimension-size", [x.value, size.to(s32).value], dimensions=along)
    return Term(site, value)


def cut(x: Term, sizes: Mapping[int, Term]) -> Term:
    """The first elements of dimensions, as many as ``sizes`` says of each, none where below 0."""
    for axis, size_ in sizes.items():
        x = resized(x, axis, size_.do("maximum", 0))
    return x


def settled(x: Term, axis: int) -> Term:
    """A dimension at its bound: it no longer varies; zeros follow the elements that there are."""
    along = axis % x.rank
    marks = tuple(m and k != along for k, m in enumerate(x.shape.marks))
    shape = Shape(x.dtype, x.dims, None, marks if any(marks) else ())
    bound = full(x.site, x.dims[along], s32)
    operands = [x.value, bound.value]
    return Term(x.site, x.site.add("set-dimension-size", shape, operands, dimensions=(along,)))


def whole(x: Term) -> Term:
    """All dimensions ``settled``."""
    for axis in varying(x):
        x = settled(x, axis)
    return x


def fitted(x: Term, axis: int, bound: int) -> Term:
    """A dimension with another bound: elements beyond it are left out, zeros fill it up.

    Its size is to be set again.
    """
    along = axis % x.rank
    if x.dims[along] >= bound:
        return slice_in_dim(x, 0, bound, along)
    high = [bound - x.dims[along] if k == along else 0 for k in range(x.rank)]
    return pad(x, 0, [0] * x.rank, high)


def wrapped(indices: Term, x: Term, axis: int) -> Term:
    """Indices of a dimension that count from the end of what there is where they are negative."""
    fixed = axis % x.rank not in varying(x)
    return wrap(indices, x.dims[axis] if fixed else size(x, axis).to(indices.dtype))


def slice_between(
    x: Term, axis: int, start: Term | int, end: Term | int, step: int, most: int | None = None
) -> Term:
    """``x[start:end:step]`` of a dimension, whose ends may be computed, and count from the end of
    what there is where they are negative; steps are positive, the bound at most ``most``.
    """
    live = size(x, axis).to(s64)

    def place(end: Term | int) -> Term:
        at = end.to(s64) if isinstance(end, Term) else full(x.site, end, s64)
        return (at < 0).select(at + live, at).do("maximum", 0).do("minimum", live)

    low, high = place(start), place(end)
    length = ((high - low).do("maximum", 0) + (step - 1)) / step
    if isinstance(start, int) and start == 0 and step == 1:
        return resized(x, axis, length)
    bound = -(-x.dims[axis] // step)
    places = iota(x.site, s64, (bound if most is None else min(most, bound),)) * step + low
    return resized(take(x, places, axis), axis, length)


def alike(x: Term, other: Term) -> Term:
    """The part of an array that has the sizes of another with the same bounds."""
    for axis in varying(other):
        x = resized(x, axis, size(other, axis))
    return x


def within(x: Term, shape: Shape) -> Term:
    """The same elements in a shape with other bounds, none less than a size that there is."""
    for axis in shape.bounded:
        if axis not in varying(x) or x.dims[axis] != shape.dims[axis]:
            x = resized(fitted(x, axis, shape.dims[axis]), axis, size(x, axis))
    return x


def varying(x: Term) -> list[int]:
    """Return the dimensions whose size each run determines."""
    return list(x.shape.bounded)


def size(x: Term, axis: int) -> Term:
    """The size of a dimension, an s32 scalar."""
    along = axis % x.rank
    if along not in varying(x):
        return full(x.site, x.dims[along], s32)
    return Term(x.site, x.site.infer("get-dimension-size", [x.value], dimensions=(along,)))


def count(x: Term, axes: Sequence[int]) -> Term | int:
    """The number of elements along dimensions: a number where none varies, else an s32 scalar."""
    known = prod(x.dims[k] for k in axes if k not in varying(x))
    sizes = [size(x, k) for k in axes if k in varying(x)]
    if not sizes:
        return known
    total = sizes[0] if known == 1 else sizes[0] * known
    for other in sizes[1:]:
        total = total * other
    return total


def reshape(x: Term, dims: Sequence[int], sizes: Mapping[int, Term]) -> Term:
    """The elements that there are, in row-major order, under other dimensions.

    ``dims`` are sizes and bounds; ``sizes`` are those of the dimensions that vary.
    """
    to = tuple(dims)
    if not sizes and not varying(x):
        return plain_reshape(x, to)
    marks = tuple(k in sizes for k in range(len(to)))
    shape = Shape(x.dtype, to, None, marks if any(marks) else ())
    if tells_sizes(x.shape, shape):
        same = shape.dims == x.dims and shape.marks == x.shape.marks
        return x if same else Term(x.site, x.site.add("reshape", shape, [x.value]))
    given = [sizes[k].to(s32) if k in sizes else full(x.site, d, s32) for k, d in enumerate(to)]
    site = innermost([x, *given])
    operands = [x.value, *(t.value for t in given)]
    return Term(site, site.add("dynamic-reshape", shape, operands))


def places_of(mask: Term) -> tuple[Term, Term]:
    """Return the places of the true elements of a vector, in order and followed by zeros, as many
    as the vector has elements, and how many there are; both s32."""
    n = mask.dims[0]
    number = mask.to(pred).to(s32)
    rank = cumulative(number, "add", 0) - 1
    target = mask.to(pred).select(rank, n)  # beyond the end: left out
    zeros = full(mask.site, 0, s32, (n,))
    found = scatter_nd(zeros, expand_dims(target, [1]), iota(mask.site, s32, (n,)))
    return found, sum_(number)


def nonzero(x: Term) -> list[Term]:
    """The places of elements that are not zero, in row-major order: for each dimension of ``x`` an
    s32 vector, as long as there are such elements."""
    found, number = _true_places(x)
    columns, step = [], x.shape.size
    for d in x.dims:
        step //= max(d, 1)
        place = (found / max(step, 1)).do("remainder", max(d, 1))
        columns.append(resized(place, 0, number))
    return columns


def chosen(x: Term, mask: Term) -> Term:
    """The elements for which a mask holds, a vector; the shapes broadcast."""
    dims = common_shape([x.shape, mask.shape]).dims
    flat = flatten(broadcast_to(whole(x), dims))
    found, number = _true_places(broadcast_to(whole(mask), dims))
    return resized(take(flat, found, 0), 0, number)


def _true_places(x: Term) -> tuple[Term, Term]:
    """``places_of`` of the elements in row-major order, of at least ``LEAST``."""
    flat = flatten(whole(x))
    truths = flat if flat.dtype == pred else flat.differs(0)
    return places_of(pad(truths, 0, [0], [max(LEAST - truths.dims[0], 0)]))
