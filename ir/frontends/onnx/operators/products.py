"""Products of matrices and of any dimensions."""

from __future__ import annotations

from ....dtypes import s64
from ...lax import linear
from ...lax.indexing import take_along_axis
from ...lax.reductions import argmax
from ...lax.shaping import broadcast_to, full, iota, reshape, slice_in_dim
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

MAX_ROWS = 64  # of a determinant, which is written out row by row


@operator("MatMul", sized=True)
def _matmul(node: Node) -> Term:
    return linear.matmul(node.input(0), node.input(1))


@operator("Gemm", sized=True)
def _gemm(node: Node) -> Term:
    """alpha A' B' + beta C."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if a.rank != 2 or b.rank != 2:
        node.malformed(f"it takes two matrices, not {list(a.dims)} and {list(b.dims)}")
    over = (1 - node.int_("transA", 0), node.int_("transB", 0))
    found = linear.dot_general(a, b, ([over[0]], [over[1]]))
    found = _scaled(found, node.float_("alpha", 1.0))
    return found if c is None else found + _scaled(c, node.float_("beta", 1.0))


def _scaled(x: Term, by: float) -> Term:
    return x if by == 1 else x * by


@operator("Einsum", sized=True)
def _einsum(node: Node) -> Term:
    return linear.einsum(node.string("equation"), node.arrays())


@operator("Det")
def _det(node: Node) -> Term:
    """Determinants by elimination with the largest pivot of each column."""
    x = node.input(0)
    if x.rank < 2 or x.dims[-2] != x.dims[-1]:
        node.malformed(f"{list(x.dims)} are no square matrices")
    if x.dims[-1] > MAX_ROWS:
        node.unsupported(f"its matrices have {x.dims[-1]} rows", f"up to {MAX_ROWS} are computed")
    found = full(node.graph, 1, x.dtype, x.dims[:-2])
    while x.dims[-1]:
        found, x = _eliminated(found, x)
    return found


def _eliminated(found: Term, x: Term) -> tuple[Term, Term]:
    """The product of pivots with one more, and the matrices without its row and column."""
    n, row = x.dims[-1], x.rank - 2
    column = slice_in_dim(x, 0, 1, -1)
    place = argmax(column.do("abs"), row, s64, keep=True)  # [.., 1, 1]
    pivot = take_along_axis(x, broadcast_to(place, (*x.dims[:-2], 1, n)), row)
    first, others = slice_in_dim(x, 0, 1, row), slice_in_dim(x, 1, n, row)
    at = iota(x.site, s64, others.dims, row) + 1
    rest = at.equals(place).select(first.like(others.shape), others)
    top = slice_in_dim(pivot, 0, 1, -1)
    safe = top.equals(0).select(1, top)
    factors = slice_in_dim(rest, 0, 1, -1) / safe
    left = slice_in_dim(rest, 1, n, -1) - factors * slice_in_dim(pivot, 1, n, -1)
    sign = place.equals(0).select(full(x.site, 1, x.dtype, place.dims), -1)
    return found * reshape(top * sign, found.dims), left
