"""Pools: the largest, mean or norm of every window, of all places, and back again."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from ....dtypes import f32, s64
from ...lax import reductions
from ...lax.indexing import scatter_nd
from ...lax.shaping import expand_dims, full, iota, pad, reshape, slice_, stack
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator
from .windows import Window, window

MAX_PLACES = 4096  # of a window whose largest element's place is asked for


def pool_window(node: Node, x: Term) -> Window:
    """Return a pool's window, padded further where ``ceil_mode`` adds places."""
    if x.rank < 3:
        node.malformed(f"its input {list(x.dims)} has no spatial dimensions")
    shape = window(node, x.dims[2:])
    if not node.int_("ceil_mode", 0):
        return shape
    pads = []
    for size, span, stride, (low, high) in zip(
        x.dims[2:], shape.spans, shape.strides, shape.pads, strict=True
    ):
        count = -(-(size + low + high - span) // stride) + 1
        if (count - 1) * stride >= size + low:  # it would start in the padding behind
            count -= 1
        pads.append((low, max((count - 1) * stride + span - size - low, high)))
    return replace(shape, pads=tuple(pads))


def _reduced(x: Term, opcode: str, shape: Window) -> Term:
    ones = (1, 1)
    return reductions.reduce_window(
        x,
        opcode,
        (*ones, *shape.kernel),
        (*ones, *shape.strides),
        ((0, 0), (0, 0), *shape.pads),
        (*ones, *shape.dilations),
    )


@operator("MaxPool")
def _max_pool(node: Node) -> tuple[Term, ...]:
    x = node.input(0)
    shape = pool_window(node, x)
    found = _reduced(x, "maximum", shape)
    return (found, _places(node, x, shape)) if node.wants(1) else (found,)


def _places(node: Node, x: Term, shape: Window) -> Term:
    """The place of each window's largest element in the array, counted through all of it."""
    if prod(shape.kernel) > MAX_PLACES:
        node.unsupported(f"places in windows of {prod(shape.kernel)}", f"up to {MAX_PLACES} do")
    spatial = x.dims[2:]
    strides = [prod(spatial[k + 1 :]) for k in range(len(spatial))]
    if node.int_("storage_order", 0):
        strides = [prod(spatial[:k]) for k in range(len(spatial))]
    grid = np.indices(spatial).reshape(len(spatial), *spatial)
    numbers = sum(g * s for g, s in zip(grid, strides, strict=True))
    planes = np.arange(prod(x.dims[:2]), dtype=np.int64).reshape(*x.dims[:2], *([1] * len(spatial)))
    own = node.constant(np.asarray(numbers, np.int64)).like(replace(x.shape, dtype=s64))
    values = _patches(x, reductions.lowest(x.dtype), shape)
    places = _patches(own, -1, shape)
    best = reductions.argmax(values, 0, s64)
    hit = best.equals(_numbers(node, places))
    found = reductions.max_(hit.select(places, -1), [0])
    return found + node.constant(planes * prod(spatial))


def _numbers(node: Node, like: Term) -> Term:

    return iota(node.graph, s64, like.dims, 0)


def _patches(x: Term, filler: float | complex, shape: Window) -> Term:
    """The elements of every window, along a new first dimension."""
    low = [0, 0, *(a for a, _ in shape.pads)]
    high = [0, 0, *(b for _, b in shape.pads)]
    wide = pad(x, filler, low, high)
    counts = [
        (d - span) // s + 1
        for d, span, s in zip(wide.dims[2:], shape.spans, shape.strides, strict=True)
    ]
    parts = []
    for offsets in product(*map(range, shape.kernel)):
        starts = [o * d for o, d in zip(offsets, shape.dilations, strict=True)]
        limits = [
            a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, shape.strides, strict=True)
        ]
        steps = [1, 1, *shape.strides]
        parts.append(slice_(wide, [0, 0, *starts], [*wide.dims[:2], *limits], steps))
    return stack(parts)


@operator("AveragePool")
def _average_pool(node: Node) -> Term:
    x = node.input(0)
    shape = pool_window(node, x)
    wide = x if x.dtype.bits >= 32 else x.to(f32)
    total = _reduced(wide, "add", shape)
    counts = node.constant(_counts(node, x, shape).astype(np.float64), wide.dtype)
    return (total / counts).to(x.dtype)


def _counts(node: Node, x: Term, shape: Window) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """How many elements every window has: those of the array, or of its padding too."""
    given = window(node, x.dims[2:]).pads
    total = np.ones((), np.int64)
    for k, size in enumerate(x.dims[2:]):
        low, high = given[k]
        first, last = (-low, size + high) if node.int_("count_include_pad", 0) else (0, size)
        count = (size + sum(shape.pads[k]) - shape.spans[k]) // shape.strides[k] + 1
        starts = np.arange(count)[:, None] * shape.strides[k] - shape.pads[k][0]
        places = starts + np.arange(shape.kernel[k]) * shape.dilations[k]
        inside = ((places >= first) & (places < last)).sum(1)
        total = total[..., None] * np.maximum(inside, 1)
    return total


@operator("LpPool")
def _lp_pool(node: Node) -> Term:
    x, p = node.input(0), node.int_("p", 2)
    return _norm(_reduced(_powers(x, p), "add", pool_window(node, x)), p)


@operator("GlobalLpPool")
def _global_lp_pool(node: Node) -> Term:
    x, p = node.input(0), node.int_("p", 2)
    return _norm(reductions.sum_(_powers(x, p), range(2, x.rank), keep=True), p)


def _powers(x: Term, p: int) -> Term:
    return x * x if p == 2 else x.do("abs") if p == 1 else x.do("abs") ** p


def _norm(x: Term, p: int) -> Term:
    return x.do("sqrt") if p == 2 else x if p == 1 else x ** (1 / p)


@operator("GlobalAveragePool")
def _global_average_pool(node: Node) -> Term:
    x = node.input(0)
    return reductions.mean(x, range(2, x.rank), keep=True)


@operator("GlobalMaxPool")
def _global_max_pool(node: Node) -> Term:
    x = node.input(0)
    return reductions.max_(x, range(2, x.rank), keep=True)


@operator("MaxUnpool")
def _max_unpool(node: Node) -> Term:
    """Elements at the places that a pool found, zeros elsewhere and behind, up to a given size."""
    x, places = node.input(0), node.input(1).to(s64)
    shape = window(node, x.dims[2:])
    sizes = [
        (d - 1) * s + k - sum(edge)
        for d, s, k, edge in zip(x.dims[2:], shape.strides, shape.kernel, shape.pads, strict=True)
    ]
    dims = (*x.dims[:2], *sizes)
    flat = full(node.graph, 0, x.dtype, (prod(dims),))
    rows = expand_dims(reshape(places, (x.shape.size,)), [1])
    found = reshape(scatter_nd(flat, rows, reshape(x, (x.shape.size,))), dims)
    if not node.has(2):
        return found
    more = [b - a for a, b in zip(dims, node.known_ints(2), strict=True)]
    return pad(found, 0, [0] * x.rank, more)
