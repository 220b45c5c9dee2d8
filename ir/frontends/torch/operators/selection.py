"""Results whose size follows from values: places of truths, distinct elements, boxes that are left.

Each is an array of bounded size; numbers that are read off an array are the sizes of others.
"""

from __future__ import annotations

from math import inf, prod

from ....dtypes import f32, s32, s64
from ...lax import bounded
from ...lax.distinct import groups_of, runs_of
from ...lax.images.suppression import chosen
from ...lax.indexing import scatter_nd, take
from ...lax.order import argsort
from ...lax.reductions import cumulative, max_, sum_
from ...lax.shaping import expand_dims, full, iota, move_axis, reshape, stack, unstack
from ...lax.term import Term
from .call import NO_BOUND, AtenCall, Rows, sized, wide
from .logic import truth

_MOST = 1 << 28  # places of a result that are counted out


def _nonzero(c: AtenCall, x: Term) -> Term:
    if not x.rank:
        c.refuse("a scalar has no places", "reshape it to one element")
    return stack(bounded.nonzero(x), 1)


def _masked_select(c: AtenCall, x: Term, mask: Term) -> Term:
    return bounded.chosen(x, truth(mask))


def _unique(c: AtenCall, x: Term, *asked: bool, **named: bool) -> list[Term]:
    """The distinct elements in rising order, also where the order is left open."""
    return _asked(c, _distinct(c, reshape(x, (-1,)), 0, consecutive=False))


def _unique_dim(c: AtenCall, x: Term, dim: int, *asked: bool, **named: bool) -> list[Term]:
    """The distinct parts along a dimension, where they are, and how many of each there are."""
    return _asked(c, _distinct(c, x, dim % x.rank, consecutive=False))


def _unique_consecutive(
    c: AtenCall,
    x: Term,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[Term]:
    """One element or part of each run of equal ones."""
    whole, axis = (reshape(x, (-1,)), 0) if dim is None else (x, dim % x.rank)
    return _asked(c, _distinct(c, whole, axis, consecutive=True))


def _distinct(c: AtenCall, x: Term, axis: int, consecutive: bool) -> list[Term]:
    """The parts along a dimension that differ, which of them each is, and how often each is."""
    c.fixed(x, range(x.rank))
    if not x.shape.size:
        c.refuse("it is called for an array without elements")
    moved = move_axis(x, axis, 0)
    rows = reshape(moved, (moved.dims[0], prod(moved.dims[1:])))
    find = runs_of(rows) if consecutive else groups_of(rows, rising=True, nan_is_one=False)
    first, group, lengths, count = find
    parts = bounded.resized(take(x, first, axis), axis, count)
    return [parts, group, bounded.resized(lengths, 0, count)]


def _asked(c: AtenCall, found: list[Term]) -> list[Term]:
    """The results, the last two of which torch declares to be empty if they are not asked for."""
    parts, group, lengths = found
    places, counts = c.results[1:]
    assert places is not None and counts is not None
    none = full(c.graph, 0, s64, (0,))
    inverse = none if places.dims == (0,) else reshape(group, places.dims)
    return [parts, inverse, none if counts.dims == (0,) else lengths]


def _require_bound(c: AtenCall) -> int:
    """Return the bound of a size that only values decide."""
    most = c.dims[0]
    if most >= NO_BOUND:
        hint = "tell one in the model: torch._check(y.shape[0] <= 100)"
        c.refuse("the size of its result has no bound", hint)
    if most > _MOST:
        c.refuse(f"the bound of its result is {most}")
    return most


def _repeat_interleave(c: AtenCall, repeats: Term, *, output_size: int | None = None) -> Term:
    """Each place as often as its number says: how many ends of repeats are not beyond it."""
    most = _require_bound(c)
    counts = bounded.whole(repeats).to(s64)
    if not counts.dims[0]:
        return bounded.resized(full(c.graph, 0, s64, (most,)), 0, full(c.graph, 0, s32))
    ends = cumulative(counts, "add", 0)
    marks = full(c.graph, 0, s64, (most,))
    ones = full(c.graph, 1, s64, ends.dims)
    steps = scatter_nd(marks, expand_dims(ends, [1]), ones, lambda held, new: held + new)
    total = sum_(counts).do("minimum", most)
    return bounded.resized(cumulative(steps, "add", 0), 0, total)


def _bincount(c: AtenCall, x: Term, weights: Term | None = None, minlength: int = 0) -> Term:
    most = _require_bound(c)
    each = full(c.graph, 1, s64, x.dims) if weights is None else weights.to(c.dtype)
    zeros = full(c.graph, 0, each.dtype, (most,))
    if not x.dims[0]:
        return bounded.resized(zeros, 0, full(c.graph, minlength, s32))
    found = scatter_nd(zeros, expand_dims(x.to(s64), [1]), each, lambda held, new: held + new)
    length = (max_(x.to(s64)).do("maximum", -1) + 1).do("maximum", minlength)
    return bounded.resized(found, 0, length.do("minimum", most))


def _item(c: AtenCall, x: Term) -> Term:
    """The one element of an array, which is the size of others."""
    c.fixed(x, range(x.rank))
    return reshape(x, ())


def _nms(c: AtenCall, boxes: Term, scores: Term, iou_threshold: float) -> Term:
    """The numbers of the boxes that are left, by falling score: a box goes where a better one that
    stays overlaps it by more than a part of the area that they cover.
    """
    n = boxes.dims[0]
    if not n:
        return bounded.resized(full(c.graph, 0, s64, (bounded.LEAST,)), 0, full(c.graph, 0, s32))
    best = bounded.whole(bounded.resized(argsort(scores, descending=True), 0, _size(scores)))
    sides = unstack(take(wide(bounded.whole(boxes)), best, 0), 1)
    rank = iota(c.graph, s32, (n,))
    falling = (rank < _size(scores)).select(n - rank.to(f32), -inf)  # any order of scores, even NaN
    x1, y1, x2, y2 = (reshape(s, (1, 1, n)) for s in sides)
    found = chosen(
        reshape(falling, (1, 1, n)),
        [y1, x1, y2, x2],
        n,
        full(c.graph, n, s32),
        full(c.graph, iou_threshold, y1.dtype),
    )
    places, count = bounded.places_of(reshape(found, (n,)) >= 0)
    kept = take(reshape(found, (n,)), places, 0)
    return bounded.resized(take(best, kept, 0), 0, count)


def _size(x: Term) -> Term:
    return bounded.size(x, 0)


ROWS: Rows = sized(
    {
        "aten.nonzero.default": _nonzero,
        "aten.masked_select.default": _masked_select,
        "aten._unique2.default": _unique,
        "aten.unique_dim.default": _unique_dim,
        "aten.unique_consecutive.default": _unique_consecutive,
        "aten.repeat_interleave.Tensor": _repeat_interleave,
        "aten.bincount.default": _bincount,
        "torchvision.nms.default": _nms,
        "aten.item.default": _item,
        "aten._local_scalar_dense.default": _item,
    },
    numbers=True,
)
