"""Regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .....dtypes import s32
from ....lax import control, indexing, reductions, shaping
from ....lax.sampling import Tap, neighbors, sample
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


def _columns(rois: Term) -> list[Term]:
    """The coordinates of all regions, one array for each."""
    return shaping.unstack(rois, 1)


@dataclass(frozen=True, slots=True)
class Bins:
    """One dimension of all regions: where they begin, how large a bin is, how many samples it has
    (each of shape ``[regions]``), how many bins there are, and how large the image is."""

    low: Term
    step: Term
    count: Term
    bins: int
    size: int

    def places(self, number: Term) -> Term:
        """Return the places of samples of the numbers ``[k]``: ``[regions, bins, k]``."""
        low, step, count = (
            shaping.expand_dims(t, [1, 2]) for t in (self.low, self.step, self.count)
        )
        bin_ = shaping.iota(low.site, low.dtype, (1, self.bins, 1), 1)
        part = shaping.reshape(number.to(low.dtype), (1, 1, -1)) + 0.5
        return low + bin_ * step + part * step / count


def _bilinear(place: Term, size: int) -> list[Tap]:
    """Both neighbors; the last element beyond the end, nothing from one element outside on."""
    outside = (place < -1) | (place > size)
    at = place.do("maximum", 0)
    low = at.do("floor").do("minimum", size - 1)
    part = (low >= size - 1).select(0, at - low)
    high = (low + 1).do("minimum", size - 1)
    weights = [outside.select(0, w) for w in (1 - part, part)]
    return [Tap(low.to(s32), weights[0]), Tap(high.to(s32), weights[1])]


def _samples(
    x: Term, batch: Term, axes: Sequence[Bins], numbers: Sequence[Term], top: bool
) -> Term:
    """Samples of these numbers in each bin: ``[regions, c, bins, k, bins, k]``; where ``top``, the
    largest weighed neighbor."""
    places = [a.places(n) for a, n in zip(axes, numbers, strict=True)]
    dims = (places[0].dims[0], *places[0].dims[1:], *places[1].dims[1:])
    wide = [shaping.expand_dims(places[0], [3, 4]), shaping.expand_dims(places[1], [1, 2])]
    flat = [shaping.reshape(shaping.broadcast_to(p, dims), (dims[0], -1)) for p in wide]
    taps = [_bilinear(p, a.size) for p, a in zip(flat, axes, strict=True)]
    if top:
        parts = [part * weight for part, weight in neighbors(x, taps, batch) if weight is not None]
        found = parts[0]
        for part in parts[1:]:
            found = found.do("maximum", part)
        found = shaping.swap_axes(found, 1, 2)
    else:
        found = sample(x, taps, batch)
    return shaping.reshape(found, (dims[0], x.dims[1], *dims[1:]))


def _adaptive(x: Term, batch: Term, axes: Sequence[Bins], top: bool) -> Term:
    """All samples of each bin, as many as each region has, one after the other in a loop."""
    most = [reductions.max_(a.count).to(s32) for a in axes]

    def body(number: Term, total: Term) -> list[Term]:
        at = [number.do("divide", most[1]), number.do("remainder", most[1])]
        one = _samples(x, batch, axes, at, top)
        live = None
        for k, a in zip(at, axes, strict=True):
            inside = k.to(x.dtype) < a.count
            live = inside if live is None else live & inside
        assert live is not None
        part = shaping.squeeze(one, [3, 5])
        counts = shaping.expand_dims(live, [1, 2, 3])
        if top:
            return [(counts & (number.equals(0) | (part > total))).select(part, total)]
        return [counts.select(total + part, total)]

    start = shaping.full(
        x.site, 0, x.dtype, (axes[0].low.dims[0], x.dims[1], axes[0].bins, axes[1].bins)
    )
    return control.fori_loop(most[0] * most[1], body, [start])[0]


@operator("RoiAlign", since=10)
def roi_align(node: Node) -> Term:
    """Samples of each bin of each region, averaged, or the largest weighed neighbor of them."""
    x, rois, batch = node.input(0), node.input(1), node.input(2)
    half = node.version >= 16 and node.string("coordinate_transformation_mode") == "half_pixel"
    scale, ratio = node.float_("spatial_scale"), node.int_("sampling_ratio")
    edges = [c * scale - (0.5 if half else 0.0) for c in _columns(rois)]
    axes = []
    for k, name in enumerate(("output_height", "output_width")):
        low, size, bins = edges[1 - k], edges[3 - k] - edges[1 - k], node.int_(name)
        step = (size if half else size.do("maximum", 1)) / bins
        count = step * 0 + ratio if ratio > 0 else step.do("ceil")
        axes.append(Bins(low, step, count, bins, x.dims[2 + k]))
    top = node.string("mode") == "max"
    if ratio > 0:
        numbers = shaping.iota(x.site, s32, (ratio,))
        every = _samples(x, batch, axes, [numbers, numbers], top)
        return (reductions.max_ if top else reductions.mean)(every, [3, 5])
    total = _adaptive(x, batch, axes, top)
    if top:
        return total
    count = (axes[0].count * axes[1].count).do("maximum", 1)
    return total / shaping.expand_dims(count, [1, 2, 3])


def _covered(low: Term, high: Term, bins: int, size: int) -> Term:
    """True where an element belongs to a bin of a region: ``[regions, bins, elements]``."""
    length = (high - low + 1).do("maximum", 1).to(low.dtype)
    step = shaping.expand_dims(length / bins, [1, 2])
    number = shaping.iota(low.site, low.dtype, (1, bins, 1), 1)
    start = shaping.expand_dims(low, [1, 2])
    first, end = (number * step).do("floor") + start, ((number + 1) * step).do("ceil") + start
    place = shaping.iota(low.site, low.dtype, (1, 1, size), 2)
    return (place >= first) & (place < end)


@operator("MaxRoiPool")
def max_roi_pool(node: Node) -> Term:
    """The largest element of each bin of each region, 0 in an empty bin; bounds are rounded."""
    x, rois = node.input(0), node.input(1)
    bins, scale = node.ints("pooled_shape") or [], node.float_("spatial_scale")
    batch, *edges = _columns(rois)
    x0, y0, x1, y1 = ((e * scale + 0.5).do("floor") for e in edges)
    rows, columns = _covered(y0, y1, bins[0], x.dims[2]), _covered(x0, x1, bins[1], x.dims[3])
    images = indexing.take(x, batch.to(s32), 0)
    lowest = reductions.lowest(x.dtype)
    masked = shaping.expand_dims(rows, [1, 4]).select(shaping.expand_dims(images, [2]), lowest)
    tall = reductions.max_(masked, [3])  # [regions, c, bins, width]
    wide = shaping.expand_dims(columns, [1, 2]).select(shaping.expand_dims(tall, [3]), lowest)
    found = reductions.max_(wide, [4])
    filled = shaping.expand_dims(reductions.any_(rows, [2]), [1, 3]) & shaping.expand_dims(
        reductions.any_(columns, [2]), [1, 2]
    )
    return filled.select(found, 0)
