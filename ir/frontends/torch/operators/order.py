"""Sorting, the best elements of rows, order statistics and histograms."""

from __future__ import annotations

from typing import Any

from ....dtypes import s32, s64
from ...lax.bounded import resized, settled, size, varying
from ...lax.indexing import scatter_nd, take_along_axis
from ...lax.order import sort, top_k
from ...lax.reductions import any_, argmax, cumulative, max_, min_, sum_
from ...lax.shaping import concatenate, expand_dims, full, iota, reshape, slice_in_dim, squeeze
from ...lax.term import Term
from .call import AtenCall, Rows, Sized, sized, wide
from .reductions import ordered


def _sorted(c: AtenCall, x: Term, dim: int, descending: bool) -> list[Term]:
    if not x.rank or not x.shape.size:
        return [x, full(c.graph, 0, s64, x.dims)]
    numbers = iota(c.graph, s64, x.dims, dim % x.rank)
    values, places = sort([ordered(x), numbers], dim, descending)
    return [values.to(x.dtype), places]


def _sort(c: AtenCall, x: Term, dim: int = -1, descending: bool = False) -> list[Term]:
    return _sorted(c, x, dim, descending)


def _sort_stable(
    c: AtenCall, x: Term, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Term]:
    return _sorted(c, x, dim, descending)


def _argsort(c: AtenCall, x: Term, dim: int = -1, descending: bool = False, **named: Any) -> Term:
    return _sorted(c, x, dim, descending)[1]


def _topk(
    c: AtenCall, x: Term, k: Term | int, dim: int = -1, largest: bool = True, *_: Any
) -> list[Term]:
    if isinstance(k, Term):
        return _best_of_open(c, x, k, dim % x.rank, largest)
    if not x.rank:
        return [x, full(c.graph, 0, s64)] if k else [reshape(x, c.dims)] * 2
    if not c.shape.size:
        return [full(c.graph, 0, s.dtype, s.dims) for s in c.results if s is not None]
    if x.dtype.is_float and largest:
        return [settled(t, dim) for t in top_k(x, k, dim)]
    found = _sorted(c, x, dim, descending=largest)
    return [settled(slice_in_dim(t, 0, k, dim), dim) for t in found]


def _best_of_open(c: AtenCall, x: Term, k: Term, axis: int, largest: bool) -> list[Term]:
    """As many of the best elements as the graph computes."""
    most = min(c.dims[axis], x.dims[axis])
    found = _sorted(c, x, axis, descending=largest)
    return [resized(slice_in_dim(t, 0, most, axis), axis, k) for t in found]


def _nans(x: Term, axis: int) -> Term:
    """The number of NaNs in each row, which a sort puts last."""
    return sum_(x.differs(x).to(s64), [axis], keep=True)


def _at(c: AtenCall, x: Term, place: Term, dim: int, keepdim: bool) -> list[Term]:
    """The element of each sorted row at a place, and its index in the row."""
    found = [take_along_axis(t, place, dim) for t in _sorted(c, x, dim, descending=False)]
    return found if keepdim else [squeeze(t, [dim]) for t in found]


def _kthvalue(c: AtenCall, x: Term, k: int, dim: int = -1, keepdim: bool = False) -> list[Term]:
    if not x.rank:
        return [x, full(c.graph, 0, s64)]
    dims = [1 if n == dim % x.rank else d for n, d in enumerate(x.dims)]
    return _at(c, x, full(c.graph, k - 1, s64, dims), dim, keepdim)


def _median(c: AtenCall, x: Term, dim: int, keepdim: bool = False) -> list[Term]:
    if not x.rank:
        return [x, full(c.graph, 0, s64)]
    n, nans = size(x, dim).to(s64), _nans(x, dim % x.rank)
    place = (nans > 0).select(-nans + n, ((n - 1) / 2).do("maximum", 0))
    return _at(c, x, place, dim, keepdim)


def _nanmedian(c: AtenCall, x: Term, dim: int, keepdim: bool = False) -> list[Term]:
    if not x.rank:
        return [x, full(c.graph, 0, s64)]
    n = x.dims[dim]
    place = ((-_nans(x, dim % x.rank) + (n - 1)) / 2).do("maximum", 0)
    return _at(c, x, place, dim, keepdim)


def _flat(median: Any) -> Any:
    def write(c: AtenCall, x: Term) -> Term:
        nothing = full(c.graph, float("nan") if c.dtype.is_float else 0, c.dtype)
        if not x.shape.size:
            return nothing
        found: Term = median(c, reshape(x, (x.shape.size,)), 0)[0]
        if not varying(x):
            return found
        return size(x, varying(x)[0]).equals(0).select(nothing, found)

    return write


def _mode(c: AtenCall, x: Term, dim: int = -1, keepdim: bool = False) -> list[Term]:
    """The most frequent element of each row, the smallest of several, and its last place."""
    if not x.rank:
        return [x, full(c.graph, 0, s64)]
    axis, n = dim % x.rank, x.dims[dim % x.rank]
    values, places = _sorted(c, x, axis, descending=False)
    place = iota(c.graph, s32, values.dims, axis)
    before = concatenate(
        [slice_in_dim(values, 0, 1, axis), slice_in_dim(values, 0, n - 1, axis)], axis
    )
    first = cumulative(values.differs(before).select(place, 0), "maximum", axis)  # of equals
    best = argmax(place - first, axis, s64, keep=True, last=False)  # the end of the longest run
    found = [take_along_axis(values, best, axis), take_along_axis(places, best, axis)]
    return found if keepdim else [squeeze(t, [axis]) for t in found]


def _isin(
    c: AtenCall, elements: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False
) -> Term:
    a, b = c.promoted(elements, tests)
    hit = any_(expand_dims(a, [a.rank]).equals(reshape(b, (b.shape.size,))), [-1])
    return ~hit if invert else hit


def _histc(c: AtenCall, x: Term, bins: int = 100, min: float = 0, max: float = 0) -> Term:
    """The number of elements in each of ``bins`` equal parts of a range, of all if it has no width.

    The last part is closed; what is outside the range is not counted.
    """
    if not x.dtype.is_float:
        c.refuse(f"it counts {x.dtype}", "convert the elements to floats")
    flat = wide(reshape(x, (-1,)))
    none = full(c.graph, 0, c.dtype, (bins + 1,))
    if not x.shape.size:
        return slice_in_dim(none, 0, bins, 0)
    low, high = (full(c.graph, end, flat.dtype) for end in (min, max))
    if min == max:
        low, high = min_(flat), max_(flat)
        same = low.equals(high)
        low, high = same.select(low - 1, low), same.select(high + 1, high)
    place = ((flat - low) * bins / (high - low)).to(s32)
    place = place.equals(bins).select(bins - 1, place)
    inside = (flat >= low) & (flat <= high)
    place = inside.select(place, bins)
    once = full(c.graph, 1, c.dtype, flat.dims)
    found = scatter_nd(none, expand_dims(place, [1]), once, lambda old, new: old + new)
    return slice_in_dim(found, 0, bins, 0)


ROWS: Rows = {
    "aten.histc.default": _histc,
    **sized(
        {
            "aten.sort.default": _sort,
            "aten.sort.stable": _sort_stable,
            "aten.argsort.default": _argsort,
            "aten.argsort.stable": _argsort,
            "aten.kthvalue.default": _kthvalue,
            "aten.median.dim": _median,
            "aten.median.default": _flat(_median),
        }
    ),
    "aten.topk.default": Sized(_topk, numbers=True),
    "aten.nanmedian.dim": _nanmedian,
    "aten.nanmedian.default": _flat(_nanmedian),
    "aten.mode.default": _mode,
    **{
        f"aten.isin.{kind}": Sized(_isin)
        for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
}
