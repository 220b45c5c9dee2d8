"""Sums, extremes, variances and norms of dimensions, and what accumulates along one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ....dtypes import s64, u8
from ...lax import bounded
from ...lax.arithmetic import magnitude
from ...lax.functions import average, logsumexp
from ...lax.reductions import all_, any_, argmax, argmin, cumulative, max_, min_, prod_, sum_
from ...lax.shaping import full, iota, pad, reshape, slice_in_dim
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, sized, wide
from .logic import truth

Axes = Sequence[int] | int | None
Reduction = Callable[..., Term]


def axes_of(x: Term, dim: Axes) -> tuple[int, ...]:
    """Return the dimensions that are reduced: none given means all."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(x.rank))
    given = [dim] if isinstance(dim, int) else dim
    return tuple(sorted(d % x.rank for d in given)) if x.rank else ()


def _accumulated(c: AtenCall, x: Term) -> Term:
    """An operand in the type of the result, or f32 if that is narrower."""
    return wide(x.to(c.dtype))


def _sum(c: AtenCall, x: Term, dim: Axes = None, keepdim: bool = False, **named: Any) -> Term:
    return sum_(_accumulated(c, x), axes_of(x, dim), keepdim)


def _prod(c: AtenCall, x: Term, dim: Axes = None, keepdim: bool = False, **named: Any) -> Term:
    return prod_(_accumulated(c, x), axes_of(x, dim), keepdim)


def _mean(c: AtenCall, x: Term, dim: Axes = None, keepdim: bool = False, **named: Any) -> Term:
    axes = axes_of(x, dim)
    return average(sum_(_accumulated(c, x), axes, keepdim), x, axes)


def _extreme(reduction: Reduction, boolean: Reduction) -> Operator:
    def write(c: AtenCall, x: Term, dim: Axes = None, keepdim: bool = False, **named: Any) -> Term:
        found = boolean if x.dtype.kind == "pred" else reduction
        _require_elements(c, x, axes_of(x, dim))
        return found(x, axes_of(x, dim), keepdim)

    return write


def _require_elements(c: AtenCall, x: Term, axes: Sequence[int]) -> None:
    if not all(x.dims[k] for k in axes):
        c.refuse("there is no extreme of no elements")


def _truths(reduction: Reduction) -> Operator:
    return lambda c, x, dim=None, keepdim=False: reduction(truth(x), axes_of(x, dim), keepdim)


def _position(search: Callable[..., Term]) -> Operator:
    def write(c: AtenCall, x: Term, dim: int | None = None, keepdim: bool = False) -> Term:
        if dim is None or not x.rank:
            found = search(reshape(ordered(x), (x.shape.size,)), 0, c.dtype)
            return reshape(found, c.dims)
        return search(ordered(x), dim, c.dtype, keepdim)

    return write


def ordered(x: Term) -> Term:
    """Truth values as integers; others as they are."""
    return x.to(u8) if x.dtype.kind == "pred" else x


def _extreme_and_place(search: Callable[..., Term], reduction: Reduction) -> Operator:
    def write(c: AtenCall, x: Term, dim: int, keepdim: bool = False) -> list[Term]:
        if not x.rank:
            return [x, full(c.graph, 0, s64)]
        _require_elements(c, x, [dim])
        y = ordered(x)
        return [reduction(y, [dim], keepdim), search(y, dim, s64, keepdim)]

    return write


def variance(x: Term, axes: Sequence[int], correction: float, keep: bool) -> tuple[Term, Term]:
    """The variance over dimensions, of the count less a correction, and the mean."""
    count = bounded.count(x, axes)
    center = average(sum_(x, axes, keep=True), x, axes)
    apart = x - center
    size = apart.do("abs") if x.dtype.kind == "complex" else apart
    total = sum_(size * size, axes, keep)
    if isinstance(count, Term):
        left = (count.to(total.dtype) - correction).do("maximum", 0)
        found = total / (count.differs(0).select(left, 0) if correction < 0 else left)
    else:
        found = total / (max(0.0, count - correction) if count else 0.0)
    return found, center if keep else reshape(center, found.dims)


def _variance(root: bool = False, with_mean: bool = False) -> Operator:
    def write(
        c: AtenCall,
        x: Term,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
        **named: Any,
    ) -> Any:
        if isinstance(dim, bool):  # var(x, unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1.0 if unbiased is None else float(unbiased)
        found, center = variance(wide(x), axes_of(x, dim), float(correction), keepdim)
        result = found.do("sqrt") if root else found
        return [result, center] if with_mean else result

    return write


def _vector_norm(
    c: AtenCall,
    x: Term,
    order: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    **named: Any,
) -> Term:
    axes = axes_of(x, dim)
    size = magnitude(wide(x)) if x.dtype.kind != "unsigned" else x
    size = size.to(c.dtype) if c.dtype.bits >= size.dtype.bits else size
    return norm(size, order, axes, keepdim)


def norm(size: Term, order: float, axes: Sequence[int], keep: bool) -> Term:
    """The norm of this order of absolute values."""
    match order:
        case 0:
            return sum_(size.differs(0).to(size.dtype), axes, keep)
        case 1:
            return sum_(size, axes, keep)
        case 2:
            return sum_(size * size, axes, keep).do("sqrt")
        case math.inf:
            return max_(size, axes, keep)
        case _ if order == -math.inf:
            return min_(size, axes, keep)
        case _:
            return sum_(size ** float(order), axes, keep) ** (1 / float(order))


def _logsumexp(c: AtenCall, x: Term, dim: Axes, keepdim: bool = False) -> Term:
    axes = axes_of(x, dim)
    y = wide(x.to(c.dtype))
    if not axes:
        return y
    return reshape(logsumexp(y, axes, keep=True), c.dims)


def _running(opcode: str) -> Operator:
    def write(c: AtenCall, x: Term, dim: int, **named: Any) -> Term:
        if not x.rank:
            return x
        return cumulative(_accumulated(c, x), opcode, dim)

    return write


def _running_extreme(opcode: str) -> Operator:
    """The extreme so far, and the place of its last occurrence."""

    def write(c: AtenCall, x: Term, dim: int) -> list[Term]:
        if not x.rank or not x.shape.size:
            return [x, full(c.graph, 0, s64, x.dims)]
        y = ordered(x)
        best = cumulative(y, opcode, dim)
        here = y.equals(best) | y.differs(y) if y.dtype.is_float else y.equals(best)
        places = here.select(iota(c.graph, s64, x.dims, dim % x.rank), -1)
        return [best, cumulative(places, "maximum", dim)]

    return write


def prefixes(x: Term, axis: int, combine: Callable[[Term, Term], Term], neutral: float) -> Term:
    """``combine`` of each element with all before it, in log2(n) steps over the whole array."""
    n, distance = x.dims[axis], 1
    while distance < n:
        low = [distance if k == axis else 0 for k in range(x.rank)]
        shifted = slice_in_dim(pad(x, neutral, low, [0] * x.rank), 0, n, axis)
        x, distance = combine(shifted, x), 2 * distance
    return x


def _logcumsumexp(c: AtenCall, x: Term, dim: int) -> Term:
    """The logarithm of sums of exponentials; of complex ones to a multiple of two pi i."""
    if not x.rank:
        return x

    def combine(a: Term, b: Term) -> Term:
        if a.dtype.kind == "complex":
            above = a.do("real") > b.do("real")
            high, low = above.select(a, b), above.select(b, a)
        else:
            high, low = a.do("maximum", b), a.do("minimum", b)
        same = high.equals(low)
        apart = same.select(0, low - high)
        return high + apart.do("exponential").do("log-plus-one")

    return prefixes(wide(x), dim % x.rank, combine, -math.inf)


def _listed(dims: Axes) -> tuple[int, ...]:
    return tuple(dims) if isinstance(dims, Sequence) else (dims,) if dims is not None else ()


def _prims(reduction: Reduction, boolean: Reduction | None = None) -> Operator:
    def write(c: AtenCall, x: Term, dims: Axes = None, **named: Any) -> Term:
        found = boolean if boolean is not None and x.dtype.kind == "pred" else reduction
        y = x if boolean is not None else _accumulated(c, x)
        return found(y, tuple(range(x.rank)) if dims is None else _listed(dims))

    return write


def _prims_var(c: AtenCall, x: Term, dims: Axes, correction: float = 1.0, **named: Any) -> Term:
    return variance(wide(x), _listed(dims), correction, keep=False)[0]


_SUMS = {"sum.default": _sum, "sum.dim_IntList": _sum, "mean.default": _mean, "mean.dim": _mean}
_PRODUCTS = {"prod.default": _prod, "prod.dim_int": _prod}
_EXTREMES = {"max": (max_, any_), "min": (min_, all_)}
_TRUTHS = {"any": any_, "all": all_}

ROWS: Rows = {
    "aten.logcumsumexp.default": _logcumsumexp,
    **sized(
        {
            **{f"aten.{n}": f for n, f in {**_SUMS, **_PRODUCTS}.items()},
            **{f"aten.a{n}.default": _extreme(*f) for n, f in _EXTREMES.items()},
            **{f"aten.{n}.default": _extreme(*f) for n, f in _EXTREMES.items()},
            **{f"prims.a{n}.default": _prims(*f) for n, f in _EXTREMES.items()},
            "prims.sum.default": _prims(sum_),
            "prims.prod.default": _prims(prod_),
            "prims.var.default": _prims_var,
            **{
                f"aten.{n}.{k}": _truths(f)
                for n, f in _TRUTHS.items()
                for k in ("default", "dim", "dims")
            },
            "aten.argmax.default": _position(argmax),
            "aten.argmin.default": _position(argmin),
            "aten.max.dim": _extreme_and_place(argmax, max_),
            "aten.min.dim": _extreme_and_place(argmin, min_),
            **{f"aten.var.{k}": _variance() for k in ("default", "dim", "correction")},
            **{f"aten.std.{k}": _variance(root=True) for k in ("default", "dim", "correction")},
            "aten.var_mean.correction": _variance(with_mean=True),
            "aten.std_mean.correction": _variance(root=True, with_mean=True),
            "aten.linalg_vector_norm.default": _vector_norm,
            "aten.logsumexp.default": _logsumexp,
            "aten.cumsum.default": _running("add"),
            "aten.cumprod.default": _running("multiply"),
            "aten.cummax.default": _running_extreme("maximum"),
            "aten.cummin.default": _running_extreme("minimum"),
        }
    ),
}
