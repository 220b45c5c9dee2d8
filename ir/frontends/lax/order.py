"""Sorting: whole rows, the order of their elements, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import DType, s32, to_numpy
from ...hlo.nodes import Computation, Shape
from .graph import Graph
from .shaping import iota, move_axis
from .term import Term, innermost, unpacked


def sort(terms: Sequence[Term], axis: int = -1, descending: bool = False) -> list[Term]:
    """Sort rows by the elements of the first array; the others are moved along.

    Equal elements keep their order; NaN is larger than any number, and zeros of both signs are
    equal.
    """
    site = innermost(terms)
    value = site.infer(
        "sort",
        [t.value for t in terms],
        dimensions=(axis % terms[0].rank,),
        is_stable=True,
        to_apply=_comparator([t.dtype for t in terms], descending),
    )
    if len(terms) == 1:
        return [Term(site, value)]
    return [
        Term(site, site.infer("get-tuple-element", [value], index=n)) for n in range(len(terms))
    ]


def argsort(x: Term, axis: int = -1, descending: bool = False) -> Term:
    """The s32 indices that sort each row, those of equal elements in order."""
    numbers = iota(x.site, s32, x.dims, axis)
    return sort([x, numbers], axis, descending)[1]


def top_k(x: Term, k: int, axis: int = -1, largest: bool = True) -> tuple[Term, Term]:
    """The ``k`` largest (or smallest) elements of each row in order, and their s32 indices."""
    rows = move_axis(x, axis, -1)
    pair = rows.site.infer("topk", [rows.value], k=k, largest=largest)
    values, places = (move_axis(t, -1, axis) for t in unpacked(rows.site, pair))
    return values, places


def _comparator(dtypes: Sequence[DType], descending: bool) -> Computation:
    graph = Graph("before")
    pairs = [(d, f"{side}{n}") for n, d in enumerate(dtypes) for side in "ab"]
    given = [Term(graph, graph.parameter(Shape(d), name)) for d, name in pairs]
    a, b = (_key(t) for t in given[:2])
    if descending:
        a, b = b, a
    kind = {"type": "TOTALORDER"} if a.dtype.is_float else {}
    return graph.finish([a.do("compare", b, direction="LT", **kind).value])


def _key(x: Term) -> Term:
    """A float whose total order is that of numbers: one zero, one NaN."""
    if not x.dtype.is_float:
        return x
    nan = Term(x.site, x.site.constant(np.asarray(np.nan).astype(to_numpy(x.dtype))))
    return x.differs(x).select(nan, x.equals(0).select(0, x))
