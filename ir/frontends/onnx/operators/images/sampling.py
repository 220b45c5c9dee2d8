"""Images read at computed places: GridSample, DeformConv and RoiAlign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from .....dtypes import s32
from ....lax import indexing, linear, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


@dataclass(frozen=True, slots=True)
class Tap:
    """A neighbour along a dimension: its index (s32, inside the array), its weight; None is 1."""

    index: Term
    weight: Term | None


def _floor(x: Term) -> Term:
    return x.do("floor")


def nearest_taps(place: Term) -> list[tuple[Term, Term | None]]:
    """The one nearest element, of two the even one."""
    return [(place.do("round-nearest-even"), None)]


def linear_taps(place: Term) -> list[tuple[Term, Term | None]]:
    """Both neighbours."""
    low = _floor(place)
    part = place - low
    return [(low, 1 - part), (low + 1, part)]


def cubic_taps(place: Term) -> list[tuple[Term, Term | None]]:
    """Four neighbours, by cubic convolution (R. Keys, 1981) with a = -0.75."""
    a = -0.75
    low = _floor(place)
    t = place - low

    def near(d: Term) -> Term:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Term) -> Term:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(low + (k - 1), w) for k, w in enumerate(weights)]


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
    width = high - low
    if width <= 0:
        return place * 0 + low
    beyond = (place < low).select(low - place, place - high)
    turns = (beyond / width).do("floor")
    rest = beyond - turns * width
    even = (turns - (turns / 2).do("floor") * 2).equals(0)
    from_low, from_high = low + rest, high - rest
    below = even.select(from_low, from_high)
    above = even.select(from_high, from_low)
    return (place < low).select(below, (place > high).select(above, place))


def _padded(
    taps: list[tuple[Term, Term | None]], size: int, padding: str, ends: tuple[float, float]
) -> list[Tap]:
    """Neighbours inside the array: clamped, mirrored, or with weight 0 where they lie outside."""
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


def neighbours(
    x: Term, taps: Sequence[Sequence[Tap]], batch: Term | None = None
) -> list[tuple[Term, Term | None]]:
    """The elements ``[n, c, p]`` of ``x[n, c, ..]`` that taps ``[n, p]`` of each dimension mean
    together, and their weights ``[n, 1, p]``; ``batch[n]`` says which ``x[b]`` is read, by default
    that of the same number."""
    dims = x.dims[2:]
    flat = shaping.reshape(x, (*x.dims[:2], prod(dims)))
    found = []
    for axes in product(*taps):
        place, weight = _joined(axes, dims)
        apart = None if weight is None else shaping.expand_dims(weight, [1])
        found.append((_rows(flat, place, batch), apart))
    return found


def sample(x: Term, taps: Sequence[Sequence[Tap]], batch: Term | None = None) -> Term:
    """The weighted sums of ``neighbours``: ``[n, c, p]``. A weight of 0 counts nothing, not even
    NaN."""
    total: Term | None = None
    for part, weight in neighbours(x, taps, batch):
        if weight is not None:
            part = weight.equals(0).select(0, part * weight)
        total = part if total is None else total + part
    assert total is not None
    return total


def _rows(x: Term, place: Term, batch: Term | None) -> Term:
    """``x[batch[n], c, place[n, p]]`` for all ``n, c, p``."""
    n, p = place.dims
    number = shaping.iota(x.site, s32, (n, p)) if batch is None else batch.to(s32)
    rows = shaping.broadcast_to(shaping.expand_dims(number, [1]) if batch else number, (n, p))
    return indexing.gather(
        x,
        shaping.stack([rows, place], 2),
        offset_dims=[1],
        collapsed=[0, 2],
        start_map=[0, 2],
        vector=2,
        sizes=[1, x.dims[1], 1],
    )


@operator("GridSample", since=16)
def grid_sample(node: Node) -> Term:
    """``X[n, c, d1, ..]`` at the places of ``grid[n, o1, .., k]``, which are -1 to 1, those of the
    last dimension first."""
    x, grid = node.input(0), node.input(1)
    dims, corners = x.dims[2:], bool(node.int_("align_corners"))
    padding, mode = node.string("padding_mode"), node.string("mode", "linear")
    if mode not in MODES:
        node.unsupported(f"mode `{mode}` is not known", ", ".join(MODES))
    places = shaping.reshape(grid, (grid.dims[0], prod(grid.dims[1:-1]), len(dims)))
    taps = []
    for k, size in enumerate(dims):
        at = shaping.squeeze(shaping.slice_in_dim(places, len(dims) - 1 - k, len(dims) - k, 2), [2])
        at = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) / 2
        ends = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        if mode == "nearest":
            at = at.do("round-nearest-even")
        if padding == "border":
            at = ((at < ends[0]) | (at > ends[1])).select(
                at.do("maximum", 0).do("minimum", size - 1), at
            )
        elif padding == "reflection":
            at = reflected(at, *ends)
        taps.append(_padded(MODES[mode](at.to(x.dtype)), size, padding, ends))
    return shaping.reshape(sample(x, taps), (*x.dims[:2], *grid.dims[1:-1]))


@operator("DeformConv", since=19)
def deform_conv(node: Node) -> Term:
    """A convolution whose kernel reads at places that ``offset`` moves, weighed by ``mask``."""
    x, w, offset = node.input(0), node.input(1), node.input(2)
    bias, mask = node.optional(3), node.optional(4)
    spatial = x.rank - 2
    kernel, out = w.dims[2:], offset.dims[2:]
    groups, parts = node.int_("group"), node.int_("offset_group")
    strides, dilations = (node.ints(n) or [1] * spatial for n in ("strides", "dilations"))
    pads = node.ints("pads") or [0] * (2 * spatial)
    n, c = x.dims[:2]
    taps_n, points = prod(kernel), prod(out)
    if offset.dims[1] != parts * taps_n * spatial or c % parts:
        node.malformed(f"offsets {list(offset.dims)} do not fit {parts} groups of {list(kernel)}")
    moved = shaping.reshape(offset, (n * parts, taps_n, spatial, points))
    taps = []
    for k, size in enumerate(x.dims[2:]):
        base = _kernel_places(x, k, kernel, out, strides[k], dilations[k], pads[k])
        by = shaping.squeeze(shaping.slice_in_dim(moved, k, k + 1, 2), [2])
        at = shaping.reshape(by + base, (n * parts, taps_n * points))
        taps.append(_padded(linear_taps(at), size, "zeros", (0.0, 0.0)))
    rows = shaping.reshape(x, (n * parts, c // parts, *x.dims[2:]))
    columns = shaping.reshape(sample(rows, taps), (n, parts, c // parts, taps_n, points))
    if mask is not None:
        columns = columns * shaping.reshape(mask, (n, parts, 1, taps_n, points))
    columns = shaping.reshape(columns, (n, groups, (c // groups) * taps_n, points))
    weights = shaping.reshape(w, (groups, w.dims[0] // groups, (c // groups) * taps_n))
    made = linear.dot_general(weights, columns, ([2], [2]), ([0], [1]))  # [groups, o, n, points]
    y = shaping.reshape(shaping.transpose(made, (2, 0, 1, 3)), (n, w.dims[0], *out))
    return y if bias is None else y + shaping.reshape(bias, (-1, *[1] * spatial))


def _kernel_places(
    x: Term, k: int, kernel: Sequence[int], out: Sequence[int], stride: int, step: int, low: int
) -> Term:
    """Where kernel elements read along dimension ``k`` without offsets: ``[taps, points]``."""
    dims = (*kernel, *out)
    inside = shaping.iota(x.site, x.dtype, dims, k) * step
    at = shaping.iota(x.site, x.dtype, dims, len(kernel) + k) * stride
    return shaping.reshape(inside + at - low, (prod(kernel), prod(out)))
