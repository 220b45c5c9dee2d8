"""Arrays whose size each run determines, within a bound: dimensions ``<=n`` of HLO."""

from __future__ import annotations

from ...dtypes import pred, s32
from .indexing import scatter_nd
from .reductions import cumulative, sum_
from .shaping import expand_dims, full, iota
from .term import Term, innermost


def resized(x: Term, axis: int, size: Term) -> Term:
    """The first ``size`` elements of a dimension, whose bound is its size in ``x``."""
    site = innermost([x, size])
    along = (axis % x.rank,)
    value = site.infer("set-dimension-size", [x.value, size.to(s32).value], dimensions=along)
    return Term(site, value)


def varying(x: Term) -> list[int]:
    """Return the dimensions whose size each run determines."""
    return list(x.shape.bounded)


def size(x: Term, axis: int) -> Term:
    """The size of a dimension, an s32 scalar."""
    along = axis % x.rank
    if along not in varying(x):
        return full(x.site, x.dims[along], s32)
    return Term(x.site, x.site.infer("get-dimension-size", [x.value], dimensions=(along,)))


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
