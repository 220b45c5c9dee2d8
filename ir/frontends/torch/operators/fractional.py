"""Largest elements of windows whose places come from samples, which are an operand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....dtypes import s64
from ...lax.indexing import take_along_axis
from ...lax.reductions import argmax
from ...lax.shaping import concatenate, expand_dims, full, iota, reshape, slice_in_dim, squeeze
from ...lax.term import Term
from .call import AtenCall, Operator, Rows
from .normalization import empty
from .pooling import unpooled

Ints = Sequence[int]


def _starts(samples: Term, n: int, out: int, size: int) -> Term:
    """``[planes, out]``: where each window starts; the last one ends with the array.

    Graham, "Fractional max-pooling": floor((i + u) a) - floor(u a), a = (n - size) / (out - 1).
    """
    last = full(samples.site, n - size, s64, (samples.dims[0], 1))
    if out == 1:
        return last
    step, u = (n - size) / (out - 1), expand_dims(samples, [1])
    numbers = iota(samples.site, samples.dtype, (samples.dims[0], out - 1), 1)
    return concatenate([((numbers + u) * step).to(s64) - (u * step).to(s64), last], 1)


def _places(columns: Term, spatial: Ints, kernel: Ints, size: Ints) -> Term:
    """``[planes, windows, elements]``: places in a plane, row-major."""
    planes, rank = columns.dims[0], len(spatial)
    samples = range(rank) if rank == 3 else range(rank)[::-1]  # depth, height, width; width, height
    found = full(columns.site, 0, s64, (planes, *[1] * 2 * rank))
    for k, which in enumerate(samples):
        u = squeeze(slice_in_dim(columns, which, which + 1, 1), [1])
        starts = _starts(u, spatial[k], size[k], kernel[k])
        line = expand_dims(starts, [2]) + iota(columns.site, s64, (1, 1, kernel[k]), 2)
        dims = [planes, *[1] * 2 * rank]
        dims[1 + k], dims[1 + rank + k] = size[k], kernel[k]
        found = found * spatial[k] + reshape(line, dims)
    return reshape(found, (planes, math.prod(size), math.prod(kernel)))


def _fractional(rank: int) -> Operator:
    def write(c: AtenCall, x: Term, kernel: Ints, size: Ints, samples: Term) -> list[Term]:
        if not c.shape.size:
            return empty(c)
        lead, spatial = x.dims[: x.rank - rank], x.dims[x.rank - rank :]
        planes = math.prod(lead)
        places = _places(reshape(samples, (planes, rank)), spatial, kernel, size)
        rows = reshape(x, (planes, math.prod(spatial)))
        windows = take_along_axis(rows, reshape(places, (planes, -1)), 1)
        at = argmax(reshape(windows, places.dims), -1, s64, keep=True)
        chosen = squeeze(take_along_axis(places, at, 2), [2])
        return [reshape(t, c.dims) for t in (take_along_axis(rows, chosen, 1), chosen)]

    return write


def _backward(rank: int) -> Operator:
    return lambda c, grad, x, kernel, size, indices: unpooled(c, grad, indices, rank)


ROWS: Rows = {
    **{f"aten.fractional_max_pool{n}d.default": _fractional(n) for n in (2, 3)},
    **{f"aten.fractional_max_pool{n}d_backward.default": _backward(n) for n in (2, 3)},
}
