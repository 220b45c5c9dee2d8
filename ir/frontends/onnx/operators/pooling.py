"""Pools: the largest, mean or norm of every window, of all places, and back again."""

from __future__ import annotations

from math import prod

import numpy as np

from ....dtypes import f32, s64
from ...lax import functions, reductions
from ...lax.indexing import scatter_nd
from ...lax.shaping import expand_dims, full, pad, reshape
from ...lax.term import Term
from ...lax.windows import (
    Windows,
    divided,
    elements_of_windows,
    number_of_windows,
    places_of_largest,
    pool,
)
from ..nodes.node import Node
from ..nodes.table import operator
from .windows import window

MAX_PLACES = 4096  # of a window whose largest element's place is asked for


def _windows(node: Node, x: Term) -> Windows:
    """A pool's windows, one more of them where ``ceil_mode`` adds one."""
    if x.rank < 3:
        node.malformed(f"its input {list(x.dims)} has no spatial dimensions")
    shape, ceil = window(node, x), bool(node.int_("ceil_mode", 0))
    if ceil:
        node.fixed(x, range(2, x.rank))
    given = zip(x.dims[2:], shape.spans, shape.strides, shape.pads, strict=True)
    counts = tuple(number_of_windows(*numbers, ceil) for numbers in given)
    return Windows(x.dims[2:], counts, shape.kernel, shape.strides, shape.dilations, shape.pads)


def largest(node: Node, x: Term) -> Term:
    """The largest element of every window."""
    return pool(x, "maximum", _windows(node, x))


@operator("MaxPool", sized=True)
def _max_pool(node: Node) -> tuple[Term, ...]:
    x = node.input(0)
    found = largest(node, x)
    if node.wants(1):
        node.require_fixed()
    return (found, _places(node, x, _windows(node, x))) if node.wants(1) else (found,)


def _places(node: Node, x: Term, windows: Windows) -> Term:
    """The place of each window's largest element in the array, counted through all of it."""
    if prod(windows.sizes) > MAX_PLACES:
        node.unsupported(f"places in windows of {prod(windows.sizes)}", f"up to {MAX_PLACES} do")
    numbers = np.arange(prod(windows.dims), dtype=np.int64)
    columns_first = bool(node.int_("storage_order", 0))
    plane = numbers.reshape(windows.dims[::-1]).T if columns_first else numbers
    planes = np.arange(prod(x.dims[:2]), dtype=np.int64) * prod(windows.dims)
    ones = [1] * len(windows.dims)
    found = places_of_largest(x, windows, plane)
    return found + node.constant(planes.reshape(*x.dims[:2], *ones))


def averaged(node: Node, x: Term) -> Term:
    """The mean of every window."""
    node.fixed(x, range(2, x.rank))
    windows = _windows(node, x)
    wide = x if x.dtype.bits >= 32 else x.to(f32)
    counts = elements_of_windows(windows, bool(node.int_("count_include_pad", 0)))
    return divided(pool(wide, "add", windows), counts).to(x.dtype)


@operator("AveragePool", sized=True)
def _average_pool(node: Node) -> Term:
    return averaged(node, node.input(0))


@operator("LpPool", sized=True)
def _lp_pool(node: Node) -> Term:
    x, p = node.input(0), node.int_("p", 2)
    return _norm(pool(_powers(x, p), "add", _windows(node, x)), p)


@operator("GlobalLpPool", sized=True)
def _global_lp_pool(node: Node) -> Term:
    x, p = node.input(0), node.int_("p", 2)
    return _norm(reductions.sum_(_powers(x, p), range(2, x.rank), keep=True), p)


def _powers(x: Term, p: int) -> Term:
    return x * x if p == 2 else x.do("abs") if p == 1 else x.do("abs") ** p


def _norm(x: Term, p: int) -> Term:
    return x.do("sqrt") if p == 2 else x if p == 1 else x ** (1 / p)


@operator("GlobalAveragePool", sized=True)
def _global_average_pool(node: Node) -> Term:
    x = node.input(0)
    return functions.mean(x, range(2, x.rank), keep=True)


@operator("GlobalMaxPool", sized=True)
def _global_max_pool(node: Node) -> Term:
    x = node.input(0)
    return reductions.max_(x, range(2, x.rank), keep=True)


@operator("MaxUnpool")
def _max_unpool(node: Node) -> Term:
    """Elements at the places that a pool found, zeros elsewhere and behind, up to a given size."""
    x, places = node.input(0), node.input(1).to(s64)
    shape = window(node, x)
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
