"""Reductions of dimensions, the places of extremes, and cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable

from ....dtypes import f64, pred, s64
from ...lax import bounded, reductions
from ...lax.arithmetic import magnitude
from ...lax.functions import logsumexp, mean
from ...lax.shaping import full
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

Reduction = Callable[[Term, list[int], bool], Term]


def _mean(x: Term, axes: list[int], keep: bool) -> Term:
    if x.dtype.is_float:
        return mean(x, axes, keep)
    count = bounded.count(x, axes)
    total = reductions.sum_(x, axes, keep)
    return total / (
        count.to(x.dtype).do("maximum", 1) if isinstance(count, Term) else max(count, 1)
    )


def _extreme(opcode: str) -> Reduction:
    def extreme(x: Term, axes: list[int], keep: bool) -> Term:
        if x.dtype == pred:
            return reductions.reduce_by("or" if opcode == "maximum" else "and", x, axes, keep)
        return reductions.reduce_by(opcode, x, axes, keep)

    return extreme


REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: reductions.sum_(magnitude(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _root(reductions.sum_(x * x, axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: reductions.sum_(x, axes, keep).do("log"),
    "ReduceLogSumExp": logsumexp,
    "ReduceMax": _extreme("maximum"),
    "ReduceMean": _mean,
    "ReduceMin": _extreme("minimum"),
    "ReduceProd": reductions.prod_,
    "ReduceSum": reductions.sum_,
    "ReduceSumSquare": lambda x, axes, keep: reductions.sum_(x * x, axes, keep),
}


def _root(x: Term) -> Term:
    return x.do("sqrt") if x.dtype.is_float else x.to(f64).do("sqrt").to(x.dtype)


@operator(*REDUCTIONS, sized=True)
def _reduce(node: Node) -> Term:
    """Axes are an input since 18, in ``ReduceSum`` since 13; before, an attribute."""
    x = node.input(0)
    axes = node.known_ints(1) if node.has(1) else node.ints("axes")
    if not axes and node.int_("noop_with_empty_axes", 0):
        if node.op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
            return REDUCTIONS[node.op](x, [], True)
        return x * x if node.op == "ReduceSumSquare" else x
    along = sorted({node.dimension(a, x.rank) for a in axes} if axes else range(x.rank))
    return REDUCTIONS[node.op](x, along, bool(node.int_("keepdims", 1)))


@operator("ArgMax", "ArgMin", sized=True)
def _arg(node: Node) -> Term:
    x, find = node.input(0), reductions.argmax if node.op == "ArgMax" else reductions.argmin
    axis = node.axis("axis", x.rank, 0)
    last = bool(node.int_("select_last_index", 0))
    return find(x, axis, s64, bool(node.int_("keepdims", 1)), last)


CUMULATIVE = {"CumSum": "add", "CumProd": "multiply"}


@operator(*CUMULATIVE, sized=True)
def _cumulative(node: Node) -> Term:
    x = node.input(0)
    if not x.shape.size:
        return full(node.graph, 0, x.dtype, x.dims)
    axis = node.dimension(int(node.known(1).reshape(())), x.rank)
    backwards, exclusive = node.int_("reverse", 0), node.int_("exclusive", 0)
    return reductions.cumulative(x, CUMULATIVE[node.op], axis, bool(backwards), bool(exclusive))
