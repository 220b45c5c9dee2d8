"""NonMaxSuppression: the best box, then all that overlap it dropped, until none is left.

All classes of all batches take a step together; a step costs one pass over the boxes that take
part: a few of the best of each class, since boxes are chosen by falling score. Only where those
are used up before the limit is reached, and there are more, do all boxes take part. The result's
size is bounded by the boxes that may be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ....dtypes import f32, s32, s64
from ...lax import bounded, control, indexing, order, reductions, shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

FEWEST = 256
"""Boxes of each class, at least, that take part at first; and at least two for each to choose."""


def corners(boxes: Term, centered: bool) -> list[Term]:
    """Return ``y1, x1, y2, x2`` of boxes ``[b, n, 4]``, each ``[b, n]``, in rising order."""
    a, b, c, d = shaping.unstack(boxes, 2)
    if centered:  # x, y, width, height
        return [b - d / 2, a - c / 2, b + d / 2, a + c / 2]
    low, high = ([p.do(side, q) for p, q in ((a, c), (b, d))] for side in ("minimum", "maximum"))
    return [*low, *high]


def overlaps(box: Sequence[Term], boxes: Sequence[Term]) -> Term:
    """The area that boxes share over the area that they cover together; 0 where it is empty."""
    y1, x1, y2, x2 = (
        a.do(side, b)
        for a, b, side in zip(box, boxes, ("maximum",) * 2 + ("minimum",) * 2, strict=True)
    )
    shared = (y2 - y1).do("maximum", 0) * (x2 - x1).do("maximum", 0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (box, boxes)]
    together = areas[0] + areas[1] - shared
    return (shared > 0).select(shared / together, 0)


def chosen_of_best(
    scores: Term, sides: Sequence[Term], most: int, limit: Term, overlap: Term
) -> Term:
    """The same as ``chosen``, of the best boxes of each class if they are enough."""
    few = max(FEWEST, 2 * most)
    if scores.dims[2] <= 2 * few:
        return chosen(scores, sides, most, limit, overlap)
    best, places = order.top_k(scores, few)
    near = [
        indexing.take_along_axis(shaping.broadcast_to(s, scores.dims), places, 2) for s in sides
    ]
    kept = chosen(best, near, most, limit, overlap)
    found = indexing.take_along_axis(places, kept.do("maximum", 0), 2)
    found = (kept >= 0).select(found, -1)
    count = reductions.sum_((kept >= 0).to(s32), [2])
    more = reductions.sum_((scores > -inf).to(s32), [2]) > few

    def among_all(_: Term, limit: Term, overlap: Term, scores: Term, *sides: Term) -> list[Term]:
        return [chosen(scores, sides, most, limit, overlap)]

    return control.cond(
        reductions.any_(more & (count < limit)),
        among_all,
        lambda found, *_: [found],
        [found, limit, overlap, scores, *sides],
    )[0]


def chosen(scores: Term, sides: Sequence[Term], most: int, limit: Term, overlap: Term) -> Term:
    """The numbers of the boxes of each class in the order that they are chosen, then -1:
    ``[b, c, most]``, s32. ``scores[b, c, n]`` of boxes that take no part are minus infinity; sides
    are ``[b, c, n]``, or ``[b, 1, n]`` where all classes have the same boxes."""
    dims = scores.dims
    number = shaping.iota(scores.site, s32, dims, 2)

    def going(step: Term, left: Term, _: Term) -> Term:
        return (step < limit) & reductions.any_(left > -inf)

    def body(step: Term, left: Term, found: Term) -> list[Term]:
        best = reductions.argmax(left, 2, keep=True)
        there = reductions.max_(left, [2], keep=True) > -inf
        box = [indexing.take_along_axis(shaping.broadcast_to(s, dims), best, 2) for s in sides]
        gone = number.equals(best) | (overlaps(box, sides) > overlap)
        place = there.select(best, -1)
        kept = indexing.dynamic_update_slice(found, place, [0, 0, step])
        return [step + 1, gone.select(-inf, left), kept]

    nothing = shaping.full(scores.site, -1, s32, (*dims[:2], most))
    zero = shaping.full(scores.site, 0, s32)
    return control.while_loop(going, body, [zero, scores, nothing])[2]


def _scalar(node: Node, n: int) -> Term | None:
    found = node.optional(n)
    return None if found is None or not found.shape.size else shaping.reshape(found, ())


@operator("NonMaxSuppression", since=10)
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
