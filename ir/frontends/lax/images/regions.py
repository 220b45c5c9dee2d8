"""Regions of interest: samples or elements of the bins of each, averaged or the largest of them.

Regions lie in images ``x[n, c, h, w]``; ``batch[regions]`` says in which one each of them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....dtypes import s32
from .. import control, functions, indexing, reductions, shaping
from ..term import Term
from .sampling import Tap, neighbors, sample


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

    def apart(self, axis: int, counts: Sequence[int]) -> Bins:
        """Return each bin as a region of one bin; ``counts`` are the bins in both dimensions, of
        which this is the one numbered ``axis``, and all pairs of them are listed."""
        dims = (self.low.dims[0], *counts)

        def listed(t: Term) -> Term:
            return shaping.reshape(shaping.broadcast_to(t, dims), (-1,))

        low, step, count = (
            shaping.expand_dims(t, [1, 2]) for t in (self.low, self.step, self.count)
        )
        number = shaping.iota(low.site, low.dtype, (1, *counts), 1 + axis)
        return replace(
            self, low=listed(low + number * step), step=listed(step), count=listed(count), bins=1
        )


def bins_of(low: Term, length: Term, bins: int, size: int, ratio: int) -> Bins:
    """The bins of regions ``length`` long, with ``ratio`` samples each, or, where that is not above
    0, one for each element that a bin is long."""
    step = length / bins
    count = step * 0 + ratio if ratio > 0 else step.do("ceil")
    return Bins(low, step, count, bins, size)


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


def roi_align(x: Term, batch: Term, axes: Sequence[Bins], ratio: int, least: int = 1) -> Term:
    """The mean of the samples of each bin: ``[regions, c, bins, bins]``. There are ``ratio`` in
    each dimension, or as many as each region asks for; their number counts as at least ``least``.
    """
    if ratio > 0:
        return functions.mean(_every(x, batch, axes, ratio, False), [3, 5])
    count = (axes[0].count * axes[1].count).do("maximum", least)
    return _adaptive(x, batch, axes, False) / shaping.expand_dims(count, [1, 2, 3])


def roi_align_max(x: Term, batch: Term, axes: Sequence[Bins], ratio: int) -> Term:
    """The largest weighed neighbor of all samples of each bin, of as many as in ``roi_align``."""
    if ratio > 0:
        return reductions.max_(_every(x, batch, axes, ratio, True), [3, 5])
    return _adaptive(x, batch, axes, True)


def _every(x: Term, batch: Term, axes: Sequence[Bins], ratio: int, top: bool) -> Term:
    numbers = shaping.iota(x.site, s32, (ratio,))
    return _samples(x, batch, axes, [numbers, numbers], top)


def ps_roi_align(x: Term, batch: Term, axes: Sequence[Bins], ratio: int) -> Term:
    """``roi_align`` where each bin has channels of its own, side by side:
    ``x[n, c * bins * bins, h, w]`` gives ``[regions, c, bins, bins]``."""
    bins = [a.bins for a in axes]
    each = shaping.reshape(
        _bins_first(x, bins), (-1, x.dims[1] // (bins[0] * bins[1]), *x.dims[2:])
    )
    number = shaping.iota(x.site, s32, (1, bins[0] * bins[1]), 1)
    images = shaping.expand_dims(batch.to(s32), [1]) * number.dims[1] + number
    parts = [a.apart(k, bins) for k, a in enumerate(axes)]
    found = roi_align(each, shaping.reshape(images, (-1,)), parts, ratio, least=0)
    found = shaping.reshape(found, (-1, *bins, each.dims[1]))
    return shaping.transpose(found, (0, 3, 1, 2))


def _bins_first(x: Term, bins: Sequence[int]) -> Term:
    """``[n, bins, bins, c, h, w]`` of channels ``[c, bins, bins]``."""
    apart = shaping.reshape(x, (x.dims[0], -1, *bins, *x.dims[2:]))
    return shaping.transpose(apart, (0, 2, 3, 1, 4, 5))


@dataclass(frozen=True, slots=True)
class WholeBins:
    """One dimension of all regions in whole elements: from which one on (``first``) to before which
    one (``end``) each bin reaches, each ``[regions, bins]``; and how large the image is."""

    first: Term
    end: Term
    size: int

    def covered(self) -> Term:
        """True where an element belongs to a bin of a region: ``[regions, bins, elements]``."""
        place = shaping.iota(self.first.site, self.first.dtype, (1, 1, self.size), 2)
        first, end = shaping.expand_dims(self.first, [2]), shaping.expand_dims(self.end, [2])
        return (place >= first) & (place < end)


def whole_bins(low: Term, length: Term, bins: int, size: int, last: int) -> WholeBins:
    """The bins of regions ``[regions]`` that begin at an element and are ``length`` long, at least
    one; they overlap by the elements at their bounds. None begins or ends beyond ``last``."""
    step = shaping.expand_dims(length.do("maximum", 1) / bins, [1])
    number = shaping.iota(low.site, low.dtype, (1, bins), 1)
    start = shaping.expand_dims(low, [1])
    first, end = (number * step).do("floor") + start, ((number + 1) * step).do("ceil") + start
    first, end = (t.do("maximum", 0).do("minimum", last) for t in (first, end))
    return WholeBins(first, end, size)


def roi_pool(x: Term, batch: Term, axes: Sequence[WholeBins]) -> tuple[Term, Term]:
    """The largest element of each bin, 0 in an empty one, and its place in the image (s32), -1
    there: ``[regions, c, bins, bins]``."""
    rows, columns = (a.covered() for a in axes)
    images = indexing.take(x, batch.to(s32), 0)
    lowest = reductions.lowest(x.dtype)
    masked = shaping.expand_dims(rows, [1, 4]).select(shaping.expand_dims(images, [2]), lowest)
    tall = reductions.max_(masked, [3])  # [regions, c, bins, width]
    row = reductions.argmax(masked, 3)
    inside = shaping.expand_dims(columns, [1, 2])
    found = reductions.max_(inside.select(shaping.expand_dims(tall, [3]), lowest), [4])
    column = shaping.iota(x.site, s32, tall.dims, 3)
    place = shaping.expand_dims(row.to(s32) * axes[1].size + column, [3])
    best = inside & shaping.expand_dims(tall, [3]).equals(shaping.expand_dims(found, [4]))
    first = reductions.min_(best.select(place, axes[0].size * axes[1].size), [4])
    filled = shaping.expand_dims(reductions.any_(rows, [2]), [1, 3]) & shaping.expand_dims(
        reductions.any_(columns, [2]), [1, 2]
    )
    return filled.select(found, 0), filled.select(first, -1)


def ps_roi_pool(x: Term, batch: Term, axes: Sequence[WholeBins]) -> Term:
    """The mean of the elements of each bin, 0 in an empty one; each bin has channels of its own:
    ``x[n, c * bins * bins, h, w]`` gives ``[regions, c, bins, bins]``."""
    rows, columns = (a.covered() for a in axes)
    bins = [rows.dims[1], columns.dims[1]]
    images = indexing.take(_bins_first(x, bins), batch.to(s32), 0)
    inside = shaping.expand_dims(rows, [2, 3, 5]) & shaping.expand_dims(columns, [1, 3, 4])
    total = reductions.sum_(inside.select(images, 0), [4, 5])  # [regions, bins, bins, c]
    high, wide = (a.end - a.first for a in axes)
    area = shaping.expand_dims(high, [2]) * shaping.expand_dims(wide, [1])
    filled = (shaping.expand_dims(high, [2, 3]) > 0) & (shaping.expand_dims(wide, [1, 3]) > 0)
    mean = filled.select(total / shaping.expand_dims(area, [3]), 0)
    return shaping.transpose(mean, (0, 3, 1, 2))
