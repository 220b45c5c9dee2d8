"""Pools: windows over the last dimensions of an array, their elements, sums and extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import s64
from ...hlo.nodes import Shape
from .reductions import identity, reduce_window
from .shaping import full, pad, repeat, reshape, slice_
from .term import Number, Term

Pads: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """``counts`` windows over dimensions of sizes ``dims``; one number of each for a dimension.

    ``padding`` is (low, high); windows may reach beyond it where their number is rounded up.
    """

    dims: tuple[int, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: Pads

    @property
    def reached(self) -> Pads:
        """Return the padding that the windows read."""
        ends = [int(self.line(k, size - 1)[-1:].sum()) for k, size in enumerate(self.sizes)]
        return tuple(
            (low, max(end + 1 - d, min(high, 0)))
            for end, d, (low, high) in zip(ends, self.dims, self.padding, strict=True)
        )

    def offsets(self) -> list[tuple[int, ...]]:
        """Return the places in a window, in row-major order."""
        return list(product(*map(range, self.sizes)))

    def line(self, axis: int, k: int) -> Array:
        """Return where the ``k``-th element of every window is along a dimension."""
        start = np.arange(self.counts[axis], dtype=np.int64) * self.strides[axis]
        return start - self.padding[axis][0] + k * self.dilations[axis]

    def places(self, offset: Sequence[int]) -> Array:
        """Return the flat place of each window's element among ``dims``; -1 in the padding."""
        flat, valid = np.zeros((), np.int64), np.ones((), bool)
        for axis, (n, k) in enumerate(zip(self.dims, offset, strict=True)):
            line = self.line(axis, k)
            flat = flat[..., None] * n + line
            valid = valid[..., None] & (line >= 0) & (line < n)
        return np.where(valid, flat, -1)

    def around(self, x: Term, value: Number) -> Term:
        """``x`` with its padding, as far as windows reach."""
        lead = [0] * (x.rank - len(self.sizes))
        low, high = ([edge[side] for edge in self.reached] for side in (0, 1))
        return pad(x, value, lead + low, lead + high)

    def part(self, padded: Term, offset: Sequence[int]) -> Term:
        """The element at one place of every window of an array from ``around``."""
        lead = padded.rank - len(self.sizes)
        starts = [k * d for k, d in zip(offset, self.dilations, strict=True)]
        limits = [
            a + (count - 1) * stride + 1
            for a, count, stride in zip(starts, self.counts, self.strides, strict=True)
        ]
        return slice_(
            padded,
            [0] * lead + starts,
            [*padded.dims[:lead], *limits],
            [1] * lead + list(self.strides),
        )

    def spread(self, x: Term, offset: Sequence[int]) -> Term:
        """A number of each window, at one place of that window among ``dims``; zeros elsewhere."""
        lead = [0] * (x.rank - len(self.sizes))
        low = [
            k * apart - edge
            for k, apart, (edge, _) in zip(offset, self.dilations, self.padding, strict=True)
        ]
        high = [
            d - a - ((count - 1) * stride + 1)
            for d, a, count, stride in zip(self.dims, low, self.counts, self.strides, strict=True)
        ]
        between = [stride - 1 for stride in self.strides]
        return pad(x, 0, lead + low, lead + high, lead + between)


def number_of_windows(
    size: int, span: int, stride: int, padding: tuple[int, int], ceil: bool = False
) -> int:
    """Return how many windows of ``span`` elements a dimension with its padding holds.

    ``ceil`` counts one that reaches beyond too, unless it starts in the padding behind.
    """
    low, high = padding
    rest = size + low + high - span
    if not ceil:
        return max(rest // stride + 1, 0)
    count = -(-rest // stride) + 1
    return max(count - 1 if (count - 1) * stride >= size + low else count, 0)


def pool(x: Term, opcode: str, windows: Windows, start: Number | None = None) -> Term:
    """Combine the elements of every window; padding counts as the operation's identity."""
    lead = x.rank - len(windows.sizes)
    ones = [1] * lead
    return reduce_window(
        x,
        opcode,
        [*ones, *windows.sizes],
        [*ones, *windows.strides],
        [*[(0, 0)] * lead, *windows.reached],
        [*ones, *windows.dilations],
        start,
    )


def elements_of_windows(windows: Windows, include_pad: bool) -> Array:
    """Return how many elements each window has: those of the array, or of its padding too.

    At least 1, of shape ``counts``.
    """
    total = np.ones((), np.int64)
    for axis, (d, (low, high)) in enumerate(zip(windows.dims, windows.padding, strict=True)):
        first, end = (-low, d + high) if include_pad else (0, d)
        lines = [windows.line(axis, k) for k in range(windows.sizes[axis])]
        within = sum(((line >= first) & (line < end)).astype(np.int64) for line in lines)
        total = total[..., None] * np.maximum(within, 1)
    return total


def divided(x: Term, counts: Array) -> Term:
    """Sums of windows over the numbers of their elements."""
    if not counts.size or (counts == counts.flat[0]).all():
        return x / (int(counts.flat[0]) if counts.size else 1)
    return x / Term(x.site, x.site.constant(counts)).to(x.dtype)


def places_of_largest(x: Term, windows: Windows, numbers: Array | None = None) -> Term:
    """The place of every window's largest element, s64: the first of several, or the last NaN.

    ``numbers`` of shape ``dims`` name the places, by default in row-major order.
    """
    shape = Shape(s64, (*x.dims[: x.rank - len(windows.sizes)], *windows.counts))
    if not shape.size:
        return full(x.site, 0, s64, shape.dims)
    lowest = identity("maximum", x.dtype)
    padded = windows.around(x, lowest)
    every = [_named(windows.places(offset), numbers) for offset in windows.offsets()]
    first = np.full(windows.counts, -1, np.int64)
    for places in reversed(every):
        first = np.where(places >= 0, places, first)
    best, where = full(x.site, lowest, x.dtype, shape.dims), _constant(x, first).like(shape)
    for offset, places in zip(windows.offsets(), every, strict=True):
        value = windows.part(padded, offset)
        wins = value > best
        if x.dtype.is_float:
            wins = wins | value.differs(value)
        inside = _constant(x, places)
        if (places < 0).any():
            wins = wins & (inside >= 0)
        best, where = wins.select(value, best), wins.do("select", inside.like(shape), where)
    return where


def at_places(x: Term, places: Term, windows: Windows) -> Term:
    """The number of each window at its place of ``places_of_largest``; sums where places coincide.

    ``x`` and ``places`` are ``[.., counts ..]``, the result is ``[.., dims ..]``, zero elsewhere.
    """
    if max(windows.dilations) == 1 and min(low for low, _ in windows.padding) >= 0:
        return _at_places_of_blocks(x, places, windows)
    parts = []
    for offset in windows.offsets():
        chosen = places.equals(_constant(x, windows.places(offset)))
        parts.append(windows.spread(chosen.select(x, 0), offset))
    return reduce(Term.__add__, parts)


def _at_places_of_blocks(x: Term, places: Term, w: Windows) -> Term:
    """Blocks as long as the stride, which see the windows that begin in them or just before."""
    rank = len(w.sizes)
    outer, lead = x.dims[: x.rank - rank], [0] * (x.rank - rank)
    ends = [low + d for d, (low, _) in zip(w.dims, w.padding, strict=True)]
    blocks = [-(-end // s) for end, s in zip(ends, w.strides, strict=True)]
    whole = tuple(n * s for n, s in zip(blocks, w.strides, strict=True))
    every = Windows(w.dims, whole, (1,) * rank, (1,) * rank, (1,) * rank, w.padding)
    numbers = _constant(x, every.places((0,) * rank))

    def seen(values: Term, back: Sequence[int], value: Number) -> Term:
        high = [n - c - b for n, c, b in zip(blocks, w.counts, back, strict=True)]
        shifted = pad(values, value, lead + list(back), lead + high)
        return repeat(shifted, (*[1] * len(lead), *w.strides))

    reaches = [range(-(-k // s)) for k, s in zip(w.sizes, w.strides, strict=True)]
    parts = [
        seen(places, back, -1).equals(numbers).select(seen(x, back, 0), 0)
        for back in product(*reaches)
    ]
    starts = [low for low, _ in w.padding]
    return slice_(reduce(Term.__add__, parts), lead + starts, [*outer, *ends])


def _named(places: Array, numbers: Array | None) -> Array:
    return places if numbers is None else np.where(places < 0, -1, numbers.reshape(-1)[places])


def _constant(x: Term, value: Array) -> Term:
    return Term(x.site, x.site.constant(value))


def overlap_add(blocks: Term, w: Windows) -> Term:
    """The windows' elements ``[n, c, sizes .., counts ..]`` added up at their places: ``[n, c,
    dims ..]``; what falls into the padding is left out."""
    rank, outer = len(w.dims), blocks.dims[:2]
    total: Term | None = None
    for offset in w.offsets():
        start = [0, 0, *offset, *[0] * rank]
        limit = [*outer, *(k + 1 for k in offset), *w.counts]
        part = reshape(slice_(blocks, start, limit), (*outer, *w.counts))
        lines = zip(offset, w.dilations, w.padding, strict=True)
        low = [k * step - before for k, step, (before, _) in lines]
        ends = zip(low, w.counts, w.strides, w.dims, strict=True)
        high = [size - (a + (count - 1) * stride + 1) for a, count, stride, size in ends]
        inside = [0, 0, *(stride - 1 for stride in w.strides)]
        part = pad(part, 0, [0, 0, *low], [0, 0, *high], inside)
        total = part if total is None else total + part
    assert total is not None
    return total
