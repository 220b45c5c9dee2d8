"""Products of matrices and vectors, also of groups of rows as mixtures of experts have them, and
distances between rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....dtypes import f32
from ...lax.indexing import take
from ...lax.linear import dot_general, einsum, matmul, ragged_dot
from ...lax.reductions import max_, sum_
from ...lax.shaping import concatenate, expand_dims, full, slice_in_dim, transpose
from ...lax.term import Term
from .call import AtenCall, Rows, sized
from .logic import truth
from .promotion import Operand


def product(a: Term, b: Term) -> Term:
    """A matrix product as NumPy's ``matmul``; of narrow floats with sums in f32."""
    return narrow(a, lambda dtype: matmul(a, b, dtype))


def narrow(a: Term, make: Callable[[Any], Term]) -> Term:
    """The result of ``make(type of the sums)``, in the type of ``a``."""
    return _unrounded(a, make).to(a.dtype)


def _unrounded(a: Term, make: Callable[[Any], Term]) -> Term:
    """The result of ``make(type of the sums)``, in that type: a bias is added before rounding."""
    if a.dtype.kind == "pred":
        return truth(make(None))
    return make(f32 if a.dtype.is_float and a.dtype.bits < 32 else None)


def _matmul(c: AtenCall, a: Term, b: Term) -> Term:
    return product(*c.alike(a, b))


def _scaled(c: AtenCall, x: Term, by: Operand) -> Term:
    return x if by == 1 else x * c.term(by, x.dtype)


def _added(
    c: AtenCall, bias: Term, a: Term, b: Term, beta: Operand = 1, alpha: Operand = 1
) -> Term:
    """beta bias + alpha a b; with beta 0 the bias does not matter, not even its NaNs."""
    left, right = c.alike(a, b)
    found = _scaled(c, _unrounded(left, lambda dtype: matmul(left, right, dtype)), alpha)
    return found if beta == 0 else found + _scaled(c, bias.to(found.dtype), beta)


def _added_batches(
    c: AtenCall, bias: Term, a: Term, b: Term, beta: Operand = 1, alpha: Operand = 1
) -> Term:
    left, right = c.alike(a, b)
    products = _unrounded(left, lambda dtype: matmul(left, right, dtype))
    found = _scaled(c, sum_(products, [0]), alpha)
    return found if beta == 0 else found + _scaled(c, bias.to(found.dtype), beta)


def _addr(c: AtenCall, x: Term, a: Term, b: Term, beta: Operand = 1, alpha: Operand = 1) -> Term:
    left, right = c.alike(a, b)
    outer = expand_dims(left, [1])
    outer = outer & right if c.dtype.kind == "pred" else outer * right
    found = _scaled(c, outer, alpha)
    if beta == 0:
        return found
    bias = _scaled(c, x.to(c.dtype), beta)
    return found | bias if c.dtype.kind == "pred" else found + bias


def _dot(c: AtenCall, a: Term, b: Term) -> Term:
    x, y = c.alike(a, b)
    return narrow(x, lambda dtype: dot_general(x, y, ([0], [0]), dtype=dtype))


def _vdot(c: AtenCall, a: Term, b: Term) -> Term:
    if a.dtype.kind == "complex":
        a = a.do("real").do("complex", -a.do("imag"))
    return _dot(c, a, b)


def linear(c: AtenCall, x: Term, weight: Term, bias: Term | None = None) -> Term:
    """x times the transposed weight, and the bias; sums of narrow floats in f32."""
    a, w = c.alike(x, weight)
    pairs = ([a.rank - 1], [w.rank - 1])
    found = _unrounded(a, lambda dtype: dot_general(a, w, pairs, dtype=dtype))
    return (found if bias is None else found + bias.to(found.dtype)).to(a.dtype)


def _einsum(c: AtenCall, equation: str, terms: list[Term], **named: Any) -> Term:
    return einsum(equation, c.alike(*terms))


def _trilinear(
    c: AtenCall,
    first: Term,
    second: Term,
    third: Term,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Term:
    given = zip((first, second, third), (expand1, expand2, expand3), strict=True)
    a, b, w = (expand_dims(t, axes) for t, axes in given)
    return sum_(a * b * w, sumdim)


def _distance(apart: Term, p: float) -> Term:
    """The p-norm of differences along the last dimension."""
    size = apart.do("abs")
    match p:
        case 0:
            return sum_(size.differs(0).to(size.dtype), [-1])
        case 1:
            return sum_(size, [-1])
        case 2:
            return sum_(size * size, [-1]).do("sqrt")
        case math.inf:
            return max_(size, [-1])
        case _:
            return sum_(size**p, [-1]) ** (1 / p)


def _cdist(c: AtenCall, a: Term, b: Term, p: float, mode: int | None = None) -> Term:
    if not c.shape.size or not a.dims[-1]:
        return full(c.graph, 0, c.dtype, c.dims)
    apart = expand_dims(a, [a.rank - 1]) - expand_dims(b, [b.rank - 2])
    return _distance(apart, p)


def _cdist_backward(c: AtenCall, grad: Term, a: Term, b: Term, p: float, distances: Term) -> Term:
    """The gradient of the first rows; rows at distance 0 have none, whatever the norm."""
    if not c.shape.size or not grad.shape.size or not p:
        return full(c.graph, 0, c.dtype, c.dims)
    apart = expand_dims(a, [a.rank - 1]) - expand_dims(b, [b.rank - 2])
    size, last = apart.do("abs"), [distances.rank]
    far, along = expand_dims(distances, last), expand_dims(grad, last)
    away, none = far.differs(0), apart.number(0)
    if p == math.inf:
        share = size.equals(far).do("select", apart.do("sign"), none)
    elif p < 2:
        kept = away.do("and", apart.differs(0)) if p < 1 else away
        share = kept.do("select", apart.do("sign") * (size / far) ** (p - 1), none)
    else:
        part = apart / far if p == 2 else apart / far * (size / far) ** (p - 2)
        share = away.do("select", part, none)
    return sum_(along * share, [-2])


def _pdist(c: AtenCall, x: Term, p: float = 2) -> Term:
    if not c.shape.size or not x.dims[-1]:
        return full(c.graph, 0, c.dtype, c.dims)
    rows, columns = np.triu_indices(x.dims[0], 1)
    left, right = (
        take(x, Term(c.graph, c.graph.constant(k.astype(np.int32))), 0) for k in (rows, columns)
    )
    return _distance(left - right, p)


def _pdist_backward(c: AtenCall, grad: Term, x: Term, p: float, distances: Term) -> Term:
    """The gradient of rows of which each meets all others, as the gradient of ``cdist``."""
    if not c.shape.size or not grad.shape.size:
        return full(c.graph, 0, c.dtype, c.dims)
    n = x.dims[0]
    pairs = np.zeros((n, n), np.int32)
    pairs[np.triu_indices(n, 1)] = np.arange(1, grad.dims[0] + 1)
    places = Term(c.graph, c.graph.constant(pairs + pairs.T))  # 0 of a row with itself
    grads, apart = (
        take(concatenate([full(c.graph, 0, t.dtype, (1,)), t], 0), places, 0)
        for t in (grad, distances)
    )
    return _cdist_backward(c, grads, x, x, p, apart)


def _sizes(ends: Term) -> Term:
    """The sizes of groups that end before these rows."""
    before = slice_in_dim(ends, 0, ends.dims[0] - 1, 0)
    return ends - concatenate([full(ends.site, 0, ends.dtype, [1]), before], 0)


def _grouped_mm(
    c: AtenCall,
    a: Term,
    b: Term,
    offs: Term | None = None,
    bias: Term | None = None,
    out_dtype: Any = None,
) -> Term:
    """Of two matrices the columns of the first are in groups, of one the rows or columns of it."""
    a, b = c.alike(a, b)
    if bias is not None:
        c.refuse("it has a bias", "add the bias to the rows of each group")
    if offs is None:
        return product(a, b).to(c.dtype)
    sizes = _sizes(offs)
    match a.rank, b.rank:
        case 2, 3:
            made = narrow(a, lambda dtype: ragged_dot(a, b, sizes, (1, 1), 0, 0, dtype))
        case 3, 2:
            made = narrow(a, lambda dtype: ragged_dot(b, a, sizes, (0, 2), 1, 0, dtype))
            made = transpose(made, [1, 0])
        case 2, 2:
            made = narrow(a, lambda dtype: ragged_dot(a, b, sizes, (1, 0), 1, None, dtype))
        case _:
            c.refuse("groups of batches have no ends", "leave out `offs`")
    return made.to(c.dtype)


def _grouped_gradients(
    c: AtenCall, x: Term, weight: Term, offs: Term, gradient: Term
) -> list[Term]:
    sizes = _sizes(offs)
    of_rows = narrow(x, lambda dtype: ragged_dot(gradient, weight, sizes, (1, 2), 0, 0, dtype))
    of_weights = narrow(x, lambda dtype: ragged_dot(x, gradient, sizes, (0, 0), 0, None, dtype))
    return [of_rows, of_weights]


ROWS: Rows = {
    **sized(
        {
            **{f"aten.{n}.default": _matmul for n in ("mm", "bmm", "mv", "matmul")},
            **{f"aten.{n}.default": _added for n in ("addmm", "addmv", "baddbmm")},
            "aten.addbmm.default": _added_batches,
            "aten.dot.default": _dot,
            "aten.vdot.default": _vdot,
            "aten.linear.default": linear,
            "aten.einsum.default": _einsum,
        }
    ),
    "aten.addr.default": _addr,
    "aten._trilinear.default": _trilinear,
    "aten._cdist_forward.default": _cdist,
    "aten._cdist_backward.default": _cdist_backward,
    "aten._pdist_forward.default": _pdist,
    "aten._pdist_backward.default": _pdist_backward,
    "aten._grouped_mm.default": _grouped_mm,
    "transformers.grouped_mm_fallback.default": _grouped_mm,
    "transformers.grouped_mm_fallback_backward.default": _grouped_gradients,
}
