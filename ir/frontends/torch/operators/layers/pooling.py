"""Pools: means and largest elements of windows, adaptive and fractional ones too, and of regions of
interest; gradients of those of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .....arrays import Array
from .....dtypes import s32, s64
from .....hlo.nodes import Shape
from ....lax import bounded
from ....lax.functions import mean
from ....lax.images import regions
from ....lax.indexing import Update, put_along_axis, take, take_along_axis
from ....lax.reductions import argmax, max_
from ....lax.shaping import (
    broadcast_to,
    concatenate,
    expand_dims,
    full,
    iota,
    pad,
    reshape,
    slice_in_dim,
    squeeze,
    transpose,
    unstack,
)
from ....lax.term import Term
from ....lax.windows import (
    Windows,
    at_places,
    divided,
    elements_of_windows,
    overlap_add,
    places_of_largest,
    pool,
)
from ..call import AtenCall, Operator, Rows, Sized, wide
from .normalization import empty

Ints = Sequence[int]

MANY = 64
"""Windows of more elements are gathered, those of fewer are written out."""


def _spread(values: Ints, count: int) -> tuple[int, ...]:
    return tuple(values) * count if len(values) == 1 else tuple(values)


def _windows(
    rank: int, dims: Ints, out: Ints, size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Windows:
    """The windows of a pool whose results have the sizes ``out``."""
    sizes = _spread(size, rank)
    return Windows(
        tuple(dims[len(dims) - rank :]),
        tuple(out[len(out) - rank :]),
        sizes,
        _spread(stride, rank) if stride else sizes,
        _spread(dilation, rank),
        tuple((p, p) for p in _spread(padding, rank)),
    )


def _means(x: Term, windows: Windows, include_pad: bool, override: int | None) -> Term:
    """Sums of windows over the numbers of their elements, or over another number."""
    if override is not None:
        return x / override
    return divided(x, elements_of_windows(windows, include_pad))


def _avg_pool(rank: int) -> Operator:
    def write(
        c: AtenCall,
        x: Term,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Term:
        windows = _windows(rank, x.dims, c.dims, kernel_size, stride, padding, (1,))
        total = pool(wide(x), "add", windows)
        return _means(total, windows, count_include_pad, divisor_override)

    return write


def _avg_pool_backward(rank: int) -> Operator:
    def write(
        c: AtenCall,
        grad: Term,
        x: Term,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Term:
        windows = _windows(rank, x.dims, grad.dims, kernel_size, stride, padding, (1,))
        part = _means(wide(grad), windows, count_include_pad, divisor_override)
        return _sum([windows.spread(part, offset) for offset in windows.offsets()])

    return write


def _sum(terms: Sequence[Term]) -> Term:
    total = terms[0]
    for t in terms[1:]:
        total = total + t
    return total


def _max_pool(rank: int) -> Operator:
    """The largest element of every window, and its place in the whole operand."""

    def write(
        c: AtenCall,
        x: Term,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> list[Term]:
        windows = _windows(rank, x.dims, c.dims, kernel_size, stride, padding, dilation)
        return [pool(x, "maximum", windows), places_of_largest(x, windows)]

    return write


def _places(x: Term, places: Array) -> Term:
    return Term(x.site, x.site.constant(places))


def _max_pool_backward(rank: int) -> Operator:
    def write(
        c: AtenCall,
        grad: Term,
        x: Term,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        indices: Term,
    ) -> Term:
        windows = _windows(rank, x.dims, grad.dims, kernel_size, stride, padding, dilation)
        if math.prod(windows.sizes) > MANY:
            return unpooled(c, grad, indices, rank)
        return at_places(wide(grad), indices, windows)

    return write


def unpooled(c: AtenCall, grad: Term, indices: Term, rank: int) -> Term:
    """Each number added at its place of the last dimensions."""
    return _placed(c, grad, indices, rank, lambda old, new: old + new)


def _placed(c: AtenCall, x: Term, indices: Term, rank: int, update: Update | None) -> Term:
    lead = c.dims[: len(c.dims) - rank]
    rows, count = math.prod(lead), math.prod(c.dims[len(lead) :])
    zeros = full(c.graph, 0, wide(x).dtype, (rows, count))
    if not x.shape.size:
        return reshape(zeros, c.dims)
    flat, places = reshape(wide(x), (rows, -1)), reshape(indices, (rows, -1))
    return reshape(put_along_axis(zeros, places, flat, 1, update), c.dims)


def _max_unpool(rank: int) -> Operator:
    def write(c: AtenCall, x: Term, indices: Term, size: Ints, *_: Ints) -> Term:
        c.within(indices, math.prod(c.dims[len(c.dims) - rank :]))
        return _placed(c, x, indices, rank, None)

    return write


def _edges(n: int, out: int) -> list[tuple[int, int]]:
    """The start and end of each adaptive window."""
    return [(k * n // out, -(-(k + 1) * n // out)) for k in range(out)]


def _adaptive_avg(rank: int) -> Operator:
    def write(c: AtenCall, x: Term, size: Ints) -> Term:
        if not all(x.dims[x.rank - rank :]):
            c.refuse("an image has no elements")
        found = wide(x)
        for axis in range(x.rank - rank, x.rank):
            found = _averaged(found, axis, c.dims[axis])
        return found

    return write


def _averaged(x: Term, axis: int, out: int) -> Term:
    """Means of adaptive windows along one dimension."""
    n = x.dims[axis]
    if not out or not x.shape.size:
        return full(x.site, 0, x.dtype, resized(x.dims, axis, out))
    if n % out == 0:
        dims = (*x.dims[:axis], out, n // out, *x.dims[axis + 1 :])
        return mean(reshape(x, dims), [axis + 1])
    parts = [mean(slice_in_dim(x, a, b, axis), [axis], keep=True) for a, b in _edges(n, out)]
    return concatenate(parts, axis)


def resized(dims: Ints, axis: int, size: int) -> tuple[int, ...]:
    """Return the sizes with another one at ``axis``."""
    return tuple(size if k == axis else d for k, d in enumerate(dims))


def _adaptive_avg_backward(rank: int) -> Operator:
    def write(c: AtenCall, grad: Term, x: Term) -> Term:
        found = wide(grad)
        for axis in range(x.rank - rank, x.rank):
            found = _spread_means(found, axis, x.dims[axis])
        return found

    return write


def _spread_means(grad: Term, axis: int, n: int) -> Term:
    """The gradient of ``_averaged``."""
    out = grad.dims[axis]
    if not out or not grad.shape.size:
        return full(grad.site, 0, grad.dtype, resized(grad.dims, axis, n))
    parts = []
    for k, (a, b) in enumerate(_edges(n, out)):
        line = slice_in_dim(grad, k, k + 1, axis) / (b - a)
        dims = resized(grad.dims, axis, b - a)
        low = [a if j == axis else 0 for j in range(grad.rank)]
        high = [n - b if j == axis else 0 for j in range(grad.rank)]
        parts.append(pad(line.like(Shape(grad.dtype, dims)), 0, low, high))
    return _sum(parts)


def _adaptive_max(rank: int) -> Operator:
    """By gathering windows, the shorter ones with their first elements repeated."""

    def write(c: AtenCall, x: Term, size: Ints) -> list[Term]:
        if not c.shape.size:
            return [full(c.graph, 0, s.dtype, s.dims) for s in c.results if s is not None]
        lead, spatial = x.dims[: x.rank - rank], x.dims[x.rank - rank :]
        out = c.dims[x.rank - rank :]
        lines = [_window_places(n, o) for n, o in zip(spatial, out, strict=True)]
        flat, places = x, np.zeros((1,) * 2 * rank, np.int64)
        for k, line in enumerate(lines):
            flat = take(flat, _places(x, line), len(lead) + 2 * k)
            shape = [1] * 2 * rank
            shape[2 * k : 2 * k + 2] = line.shape
            places = places * spatial[k] + line.reshape(shape)
        order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
        rows = transpose(flat, [*range(len(lead)), *(len(lead) + k for k in order)])
        rows = reshape(rows, (*lead, *out, -1))
        table = places.transpose(order).reshape(*out, -1)
        at = argmax(rows, -1, s64, keep=True)
        wide_table = _places(x, table).like(Shape(s64, rows.dims))
        found = take_along_axis(wide_table, at, rows.rank - 1)
        return [max_(rows, [-1]), reshape(found, c.dims)]

    return write


def _window_places(n: int, out: int) -> Array:
    edges = _edges(n, out)
    longest = max(b - a for a, b in edges)
    return np.array([[min(a + k, b - 1) for k in range(longest)] for a, b in edges], np.int64)


def _adaptive_max_backward(rank: int) -> Operator:
    return lambda c, grad, x, indices: unpooled(c, grad, indices, rank)


def _fractional_starts(samples: Term, n: int, out: int, size: int) -> Term:
    """``[planes, out]``: where each window starts; the last one ends with the array.

    Graham, "Fractional max-pooling": floor((i + u) a) - floor(u a), a = (n - size) / (out - 1).
    """
    last = full(samples.site, n - size, s64, (samples.dims[0], 1))
    if out == 1:
        return last
    step, u = (n - size) / (out - 1), expand_dims(samples, [1])
    numbers = iota(samples.site, samples.dtype, (samples.dims[0], out - 1), 1)
    return concatenate([((numbers + u) * step).to(s64) - (u * step).to(s64), last], 1)


def _fractional_places(columns: Term, spatial: Ints, kernel: Ints, size: Ints) -> Term:
    """``[planes, windows, elements]``: places in a plane, row-major."""
    planes, rank = columns.dims[0], len(spatial)
    samples = range(rank) if rank == 3 else range(rank)[::-1]  # depth, height, width; width, height
    found = full(columns.site, 0, s64, (planes, *[1] * 2 * rank))
    for k, which in enumerate(samples):
        u = squeeze(slice_in_dim(columns, which, which + 1, 1), [1])
        starts = _fractional_starts(u, spatial[k], size[k], kernel[k])
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
        places = _fractional_places(reshape(samples, (planes, rank)), spatial, kernel, size)
        rows = reshape(x, (planes, math.prod(spatial)))
        windows = take_along_axis(rows, reshape(places, (planes, -1)), 1)
        at = argmax(reshape(windows, places.dims), -1, s64, keep=True)
        chosen = squeeze(take_along_axis(places, at, 2), [2])
        return [reshape(t, c.dims) for t in (take_along_axis(rows, chosen, 1), chosen)]

    return write


def _fractional_backward(rank: int) -> Operator:
    return lambda c, grad, x, kernel, size, indices: unpooled(c, grad, indices, rank)


def _each(name: str, make: Callable[[int], Operator], *ranks: int) -> Rows:
    return {f"aten.{name.replace('#', str(n))}.default": make(n) for n in ranks}


def _col2im(
    c: AtenCall, x: Term, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Term:
    """Blocks ``[n, c * prod(kernel), places]`` added up; without a batch where x has none."""
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    room = zip(size, padding, spans, stride, strict=True)
    counts = [(n + 2 * p - span) // step + 1 for n, p, span, step in room]
    windows = _windows(2, size, counts, kernel, stride, padding, dilation)
    channels = x.dims[-2] // math.prod(kernel)
    blocks = reshape(wide(x), (-1, channels, *kernel, *counts))
    return reshape(overlap_add(blocks, windows), c.dims)


def _corners(x: Term, rois: Term) -> tuple[Term, Term, list[Term]]:
    """Images, the number of each region's image, and the regions' sides ``x0, y0, x1, y1``; regions
    of no size stand where there are fewer than their bound."""
    batch, *sides = unstack(wide(bounded.whole(rois)), 1)
    return wide(bounded.whole(x)), batch.to(s32), sides


def _aligned_bins(
    sides: Sequence[Term], x: Term, scale: float, bins: Ints, ratio: int, shift: float, least: bool
) -> list[regions.Bins]:
    """Bins of regions as they are; where ``least``, of regions of at least one element."""
    found = []
    for k in (0, 1):
        low, high = (t * scale - shift for t in (sides[1 - k], sides[3 - k]))
        length = (high - low).do("maximum", 1) if least else high - low
        found.append(regions.bins_of(low, length, bins[k], x.dims[2 + k], ratio))
    return found


def _roi_align(
    c: AtenCall, x: Term, rois: Term, scale: float, high: int, wide_: int, ratio: int, half: bool
) -> Term:
    """The mean of samples of each bin; ``half`` moves regions by half an element, and leaves them
    as small as they are."""
    if not c.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    images, batch, sides = _corners(x, rois)
    shift = 0.5 if half else 0.0
    axes = _aligned_bins(sides, images, scale, (high, wide_), ratio, shift, not half)
    return regions.roi_align(images, batch, axes, ratio)


def _ps_roi_align(
    c: AtenCall, x: Term, rois: Term, scale: float, high: int, wide_: int, ratio: int
) -> list[Term]:
    """The same, where each bin has channels of its own; and the channel that each is from."""
    if not c.shape.size:
        return empty(c)
    images, batch, sides = _corners(x, rois)
    axes = _aligned_bins(sides, images, scale, (high, wide_), ratio, 0.5, False)
    return [regions.ps_roi_align(images, batch, axes, ratio), _own_channels(c)]


def _own_channels(c: AtenCall) -> Term:
    number = iota(c.graph, s32, (math.prod(c.dims[1:]),))
    return broadcast_to(reshape(number, c.dims[1:]), c.dims)


def _rounded_bins(
    sides: Sequence[Term], x: Term, scale: float, bins: Ints, ends: int
) -> list[regions.WholeBins]:
    """Bins of regions that begin and end with whole elements; ``ends`` is 1 if the last belongs to
    the region."""
    x0, y0, x1, y1 = ((t * scale).do("round-nearest-afz") for t in sides)
    return [
        regions.whole_bins(low, end - low + ends, bins[k], x.dims[2 + k], x.dims[2 + k] - 1 + ends)
        for k, (low, end) in enumerate(((y0, y1), (x0, x1)))
    ]


def _roi_pool(
    c: AtenCall, x: Term, rois: Term, scale: float, high: int, wide_: int
) -> Sequence[Term]:
    if not c.shape.size:
        return empty(c)
    images, batch, sides = _corners(x, rois)
    return regions.roi_pool(images, batch, _rounded_bins(sides, images, scale, (high, wide_), 1))


def _ps_roi_pool(
    c: AtenCall, x: Term, rois: Term, scale: float, high: int, wide_: int
) -> list[Term]:
    if not c.shape.size:
        return empty(c)
    images, batch, sides = _corners(x, rois)
    spans = _rounded_bins(sides, images, scale, (high, wide_), 0)
    return [regions.ps_roi_pool(images, batch, spans), _own_channels(c)]


ROWS: Rows = {
    "torchvision.roi_align.default": Sized(_roi_align),
    "torchvision.roi_pool.default": Sized(_roi_pool),
    "torchvision.ps_roi_align.default": Sized(_ps_roi_align),
    "torchvision.ps_roi_pool.default": Sized(_ps_roi_pool),
    "aten.col2im.default": _col2im,
    **_each("avg_pool#d", _avg_pool, 1, 2, 3),
    **_each("avg_pool#d_backward", _avg_pool_backward, 2, 3),
    **_each("max_pool#d_with_indices", _max_pool, 2, 3),
    **_each("max_pool#d_with_indices_backward", _max_pool_backward, 2, 3),
    **_each("max_unpool#d", _max_unpool, 2, 3),
    **_each("_adaptive_avg_pool#d", _adaptive_avg, 2, 3),
    **_each("_adaptive_avg_pool#d_backward", _adaptive_avg_backward, 2, 3),
    **_each("adaptive_max_pool#d", _adaptive_max, 2, 3),
    **_each("adaptive_max_pool#d_backward", _adaptive_max_backward, 2, 3),
    **_each("fractional_max_pool#d", _fractional, 2, 3),
    **_each("fractional_max_pool#d_backward", _fractional_backward, 2, 3),
}
