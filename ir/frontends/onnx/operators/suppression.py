"""NonMaxSuppression: the batches, classes and numbers of the boxes that are chosen."""

from __future__ import annotations

from math import inf

from ....dtypes import f32, s32, s64
from ...lax import bounded, indexing, shaping
from ...lax.images.suppression import chosen_of_best, corners
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


def _scalar(node: Node, n: int) -> Term | None:
    found = node.optional(n)
    return None if found is None or not found.shape.size else shaping.reshape(found, ())


@operator("NonMaxSuppression", since=10, sized=True)
def non_max_suppression(node: Node) -> Term:
    """Rows ``batch, class, box`` of the chosen boxes, ``[<=most, 3]``."""
    boxes, scores = node.input(0).to(f32), node.input(1).to(f32)
    b, c, n = scores.dims
    limit = _scalar(node, 2)
    if limit is None:
        return shaping.full(node.graph, 0, s64, (0, 3))
    known = limit.known()
    most = n if known is None else max(0, min(n, int(known)))
    if not b * c * most:
        return shaping.full(node.graph, 0, s64, (0, 3))
    overlap, threshold = _scalar(node, 3), _scalar(node, 4)
    least = -inf if threshold is None else threshold
    scores = (scores > least).select(scores, -inf)  # NaN takes no part
    held = limit.do("maximum", 0).do("minimum", most).to(s32)
    if overlap is None:
        overlap = shaping.full(node.graph, 0, f32)
    sides = corners(boxes, bool(node.int_("center_point_box")))
    sides = [shaping.expand_dims(s, [1]) for s in sides]
    found = chosen_of_best(scores, sides, most, held, overlap.to(f32))
    places = [shaping.iota(found.site, s32, found.dims, k) for k in (0, 1)]
    rows = [shaping.reshape(t, (b * c * most,)) for t in (*places, found)]
    order, count = bounded.places_of(rows[2] >= 0)
    columns = [indexing.take(r, order, 0).to(s64) for r in rows]
    return bounded.resized(shaping.stack(columns, 1), 0, count)
