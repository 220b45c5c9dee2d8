"""Elements by their places: gathers, scatters, one-hot rows and the best of every row."""

from __future__ import annotations

from ....dtypes import s64
from ...lax import bounded, indexing, order
from ...lax.indexing import Update, wrap
from ...lax.shaping import (
    broadcast_to,
    concatenate,
    expand_dims,
    iota,
    reshape,
    slice_in_dim,
    squeeze,
)
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

UPDATES: dict[str, Update | None] = {
    "none": None,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: old.do("maximum", new),
    "min": lambda old, new: old.do("minimum", new),
}
"""Ways of combining old elements with new ones, by the attribute ``reduction``."""


def _update(node: Node) -> Update | None:
    name = node.string("reduction", "none")
    if name not in UPDATES:
        node.malformed(f"its reduction is `{name}`")
    return UPDATES[name]


@operator("Gather", sized=True)
def _gather(node: Node) -> Term:
    x, indices = node.input(0), node.input(1)
    axis = node.axis("axis", x.rank, 0)
    known = indices.known()
    fixed = axis not in bounded.varying(x)
    if fixed and known is not None and known.size == 1:  # a slice, which other passes see through
        place = int(known.reshape(())) % max(x.dims[axis], 1)
        part = squeeze(slice_in_dim(x, place, place + 1, axis), [axis])
        return reshape(part, (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]))
    return indexing.take(x, bounded.wrapped(indices, x, axis), axis)


@operator("GatherElements", sized=True)
def _gather_elements(node: Node) -> Term:
    x, indices = node.input(0), node.input(1)
    axis = node.axis("axis", x.rank, 0)
    return indexing.take_along_axis(x, bounded.wrapped(indices, x, axis), axis)


@operator("GatherND", sized=True)
def _gather_nd(node: Node) -> Term:
    x, indices, batch = node.input(0), node.input(1), node.int_("batch_dims", 0)
    return indexing.gather_nd(x, _wrapped(indices, x, batch), batch)


def _wrapped(indices: Term, x: Term, first: int) -> Term:
    """Vectors of places in dimensions from ``first`` on, the negative ones counted from the end."""
    parts = [
        bounded.wrapped(slice_in_dim(indices, k, k + 1, -1), x, first + k)
        for k in range(indices.dims[-1])
    ]
    return concatenate(parts, -1) if parts else indices


@operator("ScatterND", sized=True)
def _scatter_nd(node: Node) -> Term:
    x, indices, updates = node.arrays()
    return indexing.scatter_nd(x, _wrapped(indices, x, 0), updates, _update(node))


@operator("Scatter", "ScatterElements", sized=True)
def _scatter_elements(node: Node) -> Term:
    x, indices, updates = node.arrays()
    axis = node.axis("axis", x.rank, 0)
    places = bounded.wrapped(indices, x, axis)
    return indexing.put_along_axis(x, places, updates, axis, _update(node))


@operator("TensorScatter")
def _tensor_scatter(node: Node) -> Term:
    """Rows of a cache replaced, from a place on that each element of the batch has."""
    cache, update = node.input(0), node.input(1)
    axis = node.axis("axis", cache.rank, -2)
    step = iota(node.graph, s64, update.dims, axis)
    if node.has(2):
        starts = node.input(2).to(s64)
        step = step + reshape(starts, (starts.dims[0], *([1] * (cache.rank - 1))))
    if node.string("mode", "linear") == "circular":
        step = step.do("remainder", cache.dims[axis])
    return indexing.put_along_axis(cache, step, update, axis)


@operator("OneHot", sized=True)
def _one_hot(node: Node) -> Term:
    indices, depth, values = node.input(0), int(node.known(1).reshape(())), node.input(2)
    axis = node.dimension(node.int_("axis", -1), indices.rank + 1)
    places = wrap(indices.to(s64), depth)
    dims = (*indices.dims[:axis], depth, *indices.dims[axis:])
    wide = broadcast_to(expand_dims(places, [axis]), dims)
    off, on = (reshape(slice_in_dim(values, n, n + 1, 0), ()) for n in (0, 1))
    return iota(node.graph, s64, dims, axis).equals(wide).select(on, off)


@operator("TopK", sized=True)
def _top_k(node: Node) -> tuple[Term, Term]:
    x = node.input(0)
    (k,), live = node.sizes(1) if node.has(1) else ([node.int_("k")], {})
    axis = node.axis("axis", x.rank, -1)
    k = min(k, x.dims[axis]) if live else k
    if not 0 <= k <= x.dims[axis]:
        node.malformed(f"the best {k} of {x.dims[axis]} are asked for")
    found = order.top_k(x, k, axis, bool(node.int_("largest", 1)))
    values, places = (bounded.cut(t, {axis: live[0]} if live else {}) for t in found)
    return values, places.to(s64)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _array_feature_extractor(node: Node) -> Term:
    x, places = node.input(0), node.input(1)
    return indexing.take(x, wrap(reshape(places, (places.shape.size,)), x.dims[-1]), -1)
