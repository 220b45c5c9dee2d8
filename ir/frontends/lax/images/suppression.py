"""Suppression of boxes: the best box, then all that overlap it dropped, until none is left.

All classes of all batches take a step together; a step costs one pass over the boxes that take
part: a few of the best of each class, since boxes are chosen by falling score. Only where those
are used up before the limit is reached, and there are more, do all boxes take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ....dtypes import s32
from ..control import cond, while_loop
from ..indexing import dynamic_update_slice, take_along_axis
from ..order import top_k
from ..reductions import any_, argmax, max_, sum_
from ..shaping import broadcast_to, full, iota, unstack
from ..term import Term

FEWEST = 256
"""Boxes of each class, at least, that take part at first; and at least two for each to choose."""


def corners(boxes: Term, centered: bool) -> list[Term]:
    """Return ``y1, x1, y2, x2`` of boxes ``[b, n, 4]``, each ``[b, n]``, in rising order."""
    a, b, c, d = unstack(boxes, 2)
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
    best, places = top_k(scores, few)
    near = [take_along_axis(broadcast_to(s, scores.dims), places, 2) for s in sides]
    kept = chosen(best, near, most, limit, overlap)
    found = take_along_axis(places, kept.do("maximum", 0), 2)
    found = (kept >= 0).select(found, -1)
    count = sum_((kept >= 0).to(s32), [2])
    more = sum_((scores > -inf).to(s32), [2]) > few

    def among_all(_: Term, limit: Term, overlap: Term, scores: Term, *sides: Term) -> list[Term]:
        return [chosen(scores, sides, most, limit, overlap)]

    return cond(
        any_(more & (count < limit)),
        among_all,
        lambda found, *_: [found],
        [found, limit, overlap, scores, *sides],
    )[0]


def chosen(scores: Term, sides: Sequence[Term], most: int, limit: Term, overlap: Term) -> Term:
    """The numbers of the boxes of each class in the order that they are chosen, then -1:
    ``[b, c, most]``, s32. ``scores[b, c, n]`` of boxes that take no part are minus infinity; sides
    are ``[b, c, n]``, or ``[b, 1, n]`` where all classes have the same boxes."""
    dims = scores.dims
    number = iota(scores.site, s32, dims, 2)

    def going(step: Term, left: Term, _: Term) -> Term:
        return (step < limit) & any_(left > -inf)

    def body(step: Term, left: Term, found: Term) -> list[Term]:
        best = argmax(left, 2, keep=True)
        there = max_(left, [2], keep=True) > -inf
        box = [take_along_axis(broadcast_to(s, dims), best, 2) for s in sides]
        gone = number.equals(best) | (overlaps(box, sides) > overlap)
        place = there.select(best, -1)
        kept = dynamic_update_slice(found, place, [0, 0, step])
        return [step + 1, gone.select(-inf, left), kept]

    nothing = full(scores.site, -1, s32, (*dims[:2], most))
    zero = full(scores.site, 0, s32)
    return while_loop(going, body, [zero, scores, nothing])[2]
