"""Images read at computed places: weighted sums of neighbors, also beyond the ends.

Elements of all channels at a place are read together, as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ....dtypes import f32, s32
from .. import indexing, linear, shaping
from ..reductions import sum_
from ..term import Term


@dataclass(frozen=True, slots=True)
class Tap:
    """A neighbor along a dimension: its index (s32, inside the array), its weight; None is 1."""

    index: Term
    weight: Term | None


def _floor(x: Term) -> Term:
    return x.do("floor")


def nearest_taps(place: Term) -> list[tuple[Term, Term | None]]:
    """The one nearest element, of two the even one."""
    return [(place.do("round-nearest-even"), None)]


def linear_taps(place: Term) -> list[tuple[Term, Term | None]]:
    """Both neighbors."""
    low = _floor(place)
    part = place - low
    return [(low, 1 - part), (low + 1, part)]


def cubic_taps(place: Term) -> list[tuple[Term, Term | None]]:
    """Four neighbors, by cubic convolution (R. Keys, 1981) with a = -0.75."""
    a = -0.75
    low = _floor(place)
    t = place - low

    def near(d: Term) -> Term:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Term) -> Term:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(low + (k - 1), w) for k, w in enumerate(weights)]


def linear_slopes(place: Term) -> list[tuple[Term, Term | None]]:
    """Both neighbors with the slopes of their weights."""
    low = _floor(place)
    one = place.number(1).like(place.shape)
    return [(low, -one), (low + 1, one)]


def cubic_slopes(place: Term) -> list[tuple[Term, Term | None]]:
    """Four neighbors with the slopes of their weights."""
    a = -0.75
    low = _floor(place)
    t = place - low

    def near(d: Term) -> Term:
        return (3 * (a + 2) * d - 2 * (a + 3)) * d

    def far(d: Term) -> Term:
        return (3 * a * d - 10 * a) * d + 8 * a

    slopes = [far(t + 1), near(t), -near(1 - t), -far(2 - t)]
    return [(low + (k - 1), s) for k, s in enumerate(slopes)]


MODES: dict[str, Callable[[Term], list[tuple[Term, Term | None]]]] = {
    "nearest": nearest_taps,
    "linear": linear_taps,
    "bilinear": linear_taps,
    "cubic": cubic_taps,
    "bicubic": cubic_taps,
}
"""By ``mode``, with the names of operator set 16 as well."""


def reflected(place: Term, low: float, high: float) -> Term:
    """A place mirrored at both ends until it lies between them."""
    return mirrored(place, low, high)[0]


def mirrored(place: Term, low: float, high: float) -> tuple[Term, Term]:
    """A place mirrored at both ends until it lies between them; 1, or -1 if it moves backwards."""
    width = high - low
    if width <= 0:
        return place * 0 + low, place * 0
    beyond = (place < low).select(low - place, place - high)
    turns = (beyond / width).do("floor")
    rest = beyond - turns * width
    even = (turns - (turns / 2).do("floor") * 2).equals(0)
    from_low, from_high = low + rest, high - rest
    below = even.select(from_low, from_high)
    above = even.select(from_high, from_low)
    moved = (place < low).select(below, (place > high).select(above, place))
    back = ((place < low) | (place > high)) & even
    return moved, back.select(place.number(-1).like(place.shape), 1)


def padded(
    taps: list[tuple[Term, Term | None]], size: int, padding: str, ends: tuple[float, float]
) -> list[Tap]:
    """Neighbors inside the array: clamped, mirrored, or with weight 0 where they lie outside."""
    found = []
    for place, weight in taps:
        if padding == "reflection":
            place = reflected(place, *ends)
        elif padding == "zeros":
            inside = (place >= 0) & (place <= size - 1)
            weight = inside.select(place.number(1) if weight is None else weight, 0)
        index = place.do("maximum", 0).do("minimum", size - 1).to(s32)
        found.append(Tap(index, weight))
    return found


def _joined(axes: Sequence[Tap], dims: Sequence[int]) -> tuple[Term, Term | None]:
    """The place in the flattened dimensions that taps mean together, and their weight."""
    place, weight = axes[0].index, axes[0].weight
    for tap, size in zip(axes[1:], dims[1:], strict=True):
        place = place * size + tap.index
        if tap.weight is not None:
            weight = tap.weight if weight is None else weight * tap.weight
    return place, weight


def neighbors(
    x: Term, taps: Sequence[Sequence[Tap]], batch: Term | None = None
) -> list[tuple[Term, Term | None]]:
    """The elements ``[n, p, c]`` of ``x[n, c, ..]`` that taps ``[n, p]`` of each dimension mean
    together, and their weights ``[n, p, 1]``; ``batch[n]`` says which ``x[b]`` is read, by default
    that of the same number."""
    dims = x.dims[2:]
    flat = shaping.swap_axes(shaping.reshape(x, (*x.dims[:2], prod(dims))), 1, 2)
    found = []
    for axes in product(*taps):
        place, weight = _joined(axes, dims)
        apart = None if weight is None else shaping.expand_dims(weight, [2])
        found.append((_rows(flat, place, batch), apart))
    return found


def sample(x: Term, taps: Sequence[Sequence[Tap]], batch: Term | None = None) -> Term:
    """The weighted sums of ``neighbors``: ``[n, c, p]``. A weight of 0 counts nothing, not even
    NaN."""
    total: Term | None = None
    for part, weight in neighbors(x, taps, batch):
        if weight is not None:
            part = weight.equals(0).select(0, part * weight)
        total = part if total is None else total + part
    assert total is not None
    return shaping.swap_axes(total, 1, 2)


def _rows(x: Term, place: Term, batch: Term | None) -> Term:
    """``x[batch[n], place[n, p]]`` for all ``n, p``: rows of channels."""
    n, p = place.dims
    number = shaping.iota(x.site, s32, (n, p)) if batch is None else batch.to(s32)
    rows = shaping.broadcast_to(shaping.expand_dims(number, [1]) if batch else number, (n, p))
    return indexing.gather(
        x,
        shaping.stack([rows, place], 2),
        offset_dims=[2],
        collapsed=[0, 1],
        start_map=[0, 1],
        vector=2,
        sizes=[1, 1, x.dims[2]],
    )


def _coordinates(grid: Term, dims: Sequence[int], corners: bool) -> list[Term]:
    """The places ``[n, p]`` of a grid along each dimension, in elements."""
    places = shaping.reshape(grid, (grid.dims[0], prod(grid.dims[1:-1]), len(dims)))
    found = []
    for k, size in enumerate(dims):
        last = len(dims) - k
        at = shaping.squeeze(shaping.slice_in_dim(places, last - 1, last, 2), [2])
        found.append((at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) / 2)
    return found


def _ends(size: int, corners: bool) -> tuple[float, float]:
    return (0.0, size - 1.0) if corners else (-0.5, size - 0.5)


def grid_sample(x: Term, grid: Term, mode: str, padding: str, corners: bool) -> Term:
    """``x[n, c, d1, ..]`` at the places of ``grid[n, o1, .., k]``, which are -1 to 1, those of the
    last dimension first: ``[n, c, o1, ..]``.

    ``mode`` is one of ``MODES``, ``padding`` one of zeros, border and reflection, for neighbors
    that lie outside; with ``corners`` -1 and 1 are the middles of the outermost elements, else
    their outer edges.
    """
    dims = x.dims[2:]
    taps = []
    for at, size in zip(_coordinates(grid, dims, corners), dims, strict=True):
        ends = _ends(size, corners)
        if mode == "nearest":
            at = at.do("round-nearest-even")
        if padding == "reflection":
            at = reflected(at, *ends)
        taps.append(padded(MODES[mode](at.to(x.dtype)), size, padding, ends))
    return shaping.reshape(sample(x, taps), (*x.dims[:2], *grid.dims[1:-1]))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Neighbors along a dimension; the same with the slopes of their weights by the grid."""

    taps: list[Tap]
    slopes: list[Tap]


def _axis(at: Term, size: int, mode: str, padding: str, corners: bool) -> _Axis:
    ends, scale = _ends(size, corners), (size - 1 if corners else size) / 2
    if mode == "nearest":
        at = at.do("round-nearest-even")
    slope = at.number(1).like(at.shape)
    if padding == "reflection":
        at, slope = mirrored(at, *ends)
    if padding == "border" and mode != "bicubic":
        at = at.do("maximum", 0).do("minimum", size - 1)
    if padding in ("border", "reflection") and mode == "bilinear":
        slope = ((at > 0) & (at < size - 1)).select(slope, 0)
    taps = padded(MODES[mode](at), size, padding, ends)
    if mode == "nearest":
        return _Axis(taps, [])
    steep = linear_slopes if mode == "bilinear" else cubic_slopes
    chained = [(p, None if s is None else s * slope * scale) for p, s in steep(at)]
    return _Axis(taps, padded(chained, size, padding, ends))


def image_gradient(grad: Term, x: Term, grid: Term, mode: str, padding: str, corners: bool) -> Term:
    """The gradient of the ``x`` of a ``grid_sample`` by the gradient of its result."""
    dims, size = x.dims[2:], prod(x.dims[2:])
    n, channels = x.dims[:2]
    rows = shaping.swap_axes(shaping.reshape(grad, (n, channels, -1)), 1, 2)
    given = zip(_coordinates(grid, dims, corners), dims, strict=True)
    axes = [_axis(at, d, mode, padding, corners).taps for at, d in given]
    places, parts = [], []
    for taps in product(*axes):
        place, weight = _joined(taps, dims)
        places.append(place)
        apart = None if weight is None else shaping.expand_dims(weight, [2])
        parts.append(rows if apart is None else apart.equals(0).select(0, rows * apart))
    place, updates = shaping.concatenate(places, 1), shaping.concatenate(parts, 1)
    number = shaping.iota(x.site, s32, place.dims, 0)
    zeros = shaping.full(x.site, 0, updates.dtype, (n, size, channels))
    vectors = shaping.stack([number, place], 2)
    found = indexing.scatter_nd(zeros, vectors, updates, lambda old, new: old + new)
    return shaping.reshape(shaping.swap_axes(found, 1, 2), x.dims)


def grid_gradient(grad: Term, x: Term, grid: Term, mode: str, padding: str, corners: bool) -> Term:
    """The gradient of the ``grid`` of a ``grid_sample`` by the gradient of its result."""
    dims = x.dims[2:]
    if mode == "nearest":
        return shaping.full(x.site, 0, grad.dtype, grid.dims)
    rows = shaping.swap_axes(shaping.reshape(grad, (*x.dims[:2], -1)), 1, 2)
    given = zip(_coordinates(grid, dims, corners), dims, strict=True)
    axes = [_axis(at, d, mode, padding, corners) for at, d in given]
    found = []
    for k in range(len(dims)):
        taps = [axis.slopes if j == k else axis.taps for j, axis in enumerate(axes)]
        total = sample(x, taps)
        found.append(sum_(shaping.swap_axes(total, 1, 2) * rows, [2]))
    return shaping.reshape(shaping.stack(found[::-1], 2), grid.dims)


def affine_grid(theta: Term, dims: Sequence[int], corners: bool) -> Term:
    """The grid ``[n, d1, .., k]`` of an image of ``dims`` by matrices ``theta[n, k, k + 1]``;
    ``corners`` as in ``grid_sample``, where a single element lies at -1."""
    kind = theta.dtype if theta.dtype.bits >= 32 else f32
    rank, places = len(dims), []
    for k, size in reversed(list(enumerate(dims))):
        at = shaping.iota(theta.site, kind, tuple(dims), k)
        places.append(at * (2 / max(size - 1, 1)) - 1 if corners else (at * 2 + 1) / size - 1)
    ones = shaping.full(theta.site, 1, kind, tuple(dims))
    base = shaping.reshape(shaping.stack([*places, ones], rank), (prod(dims), rank + 1))
    made = linear.dot_general(base, theta.to(kind), ([1], [2]), ([], []))
    grid = shaping.reshape(shaping.swap_axes(made, 0, 1), (theta.dims[0], *dims, rank))
    return grid.to(theta.dtype)


def deformed_conv(
    x: Term,
    w: Term,
    offset: Term,
    mask: Term | None,
    steps: Sequence[tuple[int, int, int]],
    groups: int,
    parts: int,
) -> Term:
    """A convolution of ``x[n, c, d1, ..]`` by ``w[o, c / groups, k1, ..]`` whose kernel reads at
    places that ``offset[n, parts * k1 * .. * rank, o1, ..]`` moves; ``mask``, one for each place,
    weighs what is read. Channels come in ``parts`` of the same places. ``steps`` are the stride,
    the dilation and the padding at the low end of each dimension."""
    n, c = x.dims[:2]
    kernel, out = w.dims[2:], offset.dims[2:]
    taps_n, points = prod(kernel), prod(out)
    moved = shaping.reshape(offset, (n * parts, taps_n, len(kernel), points))
    taps = []
    for k, size in enumerate(x.dims[2:]):
        base = _kernel_places(offset, k, kernel, out, *steps[k])
        by = shaping.squeeze(shaping.slice_in_dim(moved, k, k + 1, 2), [2])
        at = shaping.reshape(by + base, (n * parts, taps_n * points))
        taps.append(padded(linear_taps(at), size, "zeros", (0.0, 0.0)))
    rows = shaping.reshape(x, (n * parts, c // parts, *x.dims[2:]))
    columns = shaping.reshape(sample(rows, taps), (n, parts, c // parts, taps_n, points))
    if mask is not None:
        columns = columns * shaping.reshape(mask, (n, parts, 1, taps_n, points))
    columns = shaping.reshape(columns, (n, groups, (c // groups) * taps_n, points))
    weights = shaping.reshape(w, (groups, w.dims[0] // groups, (c // groups) * taps_n))
    made = linear.dot_general(weights, columns, ([2], [2]), ([0], [1]))  # [groups, o, n, points]
    return shaping.reshape(shaping.transpose(made, (2, 0, 1, 3)), (n, w.dims[0], *out))


def _kernel_places(
    x: Term, k: int, kernel: Sequence[int], out: Sequence[int], stride: int, step: int, low: int
) -> Term:
    """Where kernel elements read along dimension ``k`` without offsets: ``[taps, points]``."""
    dims = (*kernel, *out)
    inside = shaping.iota(x.site, x.dtype, dims, k) * step
    at = shaping.iota(x.site, x.dtype, dims, len(kernel) + k) * stride
    return shaping.reshape(inside + at - low, (prod(kernel), prod(out)))
