"""Elements around an array: a number, the array reflected, its edges; and the gradient of edges."""

from __future__ import annotations

from collections.abc import Sequence

from ...lax.reductions import sum_
from ...lax.shaping import concatenate, pad, reverse, slice_in_dim
from ...lax.term import Term
from .call import AtenCall, Rows, Sized, wide
from .promotion import Operand

Ints = Sequence[int]


def _constant_pad(c: AtenCall, x: Term, edges: Ints, value: Operand = 0) -> Term:
    low, high = [0] * x.rank, [0] * x.rank
    for k in range(len(edges) // 2):
        low[x.rank - 1 - k], high[x.rank - 1 - k] = edges[2 * k], edges[2 * k + 1]
    return pad(x, c.term(value, x.dtype), low, high)


def _reflection_pad(c: AtenCall, x: Term, edges: Ints) -> Term:
    for k in range(len(edges) // 2):
        axis, (left, right) = x.rank - 1 - k, edges[2 * k : 2 * k + 2]
        n = x.dims[axis]
        parts = [x]
        if left > 0:
            parts.insert(0, reverse(slice_in_dim(x, 1, left + 1, axis), [axis]))
        if right > 0:
            parts.append(reverse(slice_in_dim(x, n - 1 - right, n - 1, axis), [axis]))
        whole = concatenate(parts, axis)
        low, high = max(0, -left), whole.dims[axis] - max(0, -right)
        x = slice_in_dim(whole, low, high, axis)
    return x


def _replication_pad(c: AtenCall, x: Term, edges: Ints) -> Term:
    for k in range(len(edges) // 2):
        axis, (left, right) = x.rank - 1 - k, edges[2 * k : 2 * k + 2]
        n = x.dims[axis]
        inner = slice_in_dim(x, max(0, -left), n - max(0, -right), axis)
        parts = [inner]
        if left > 0:
            parts.insert(0, _edge(x, 0, left, axis))
        if right > 0:
            parts.append(_edge(x, n - 1, right, axis))
        x = concatenate(parts, axis)
    return x


def _edge(x: Term, at: int, count: int, axis: int) -> Term:
    dims = [count if k == axis else d for k, d in enumerate(x.dims)]
    line = slice_in_dim(x, at, at + 1, axis)
    return line.like(type(x.shape)(x.dtype, tuple(dims)))


def _replication_pad_backward(c: AtenCall, grad: Term, x: Term, edges: Ints) -> Term:
    """The gradient of the inner part, and the sums of each edge added to what it repeats."""
    found = wide(grad)
    for k in range(len(edges) // 2):
        axis, (left, right) = x.rank - 1 - k, edges[2 * k : 2 * k + 2]
        n, total = x.dims[axis], found.dims[axis]
        inner = slice_in_dim(found, max(0, left), total - max(0, right), axis)
        parts = [_placed(inner, axis, max(0, -left), n)]
        if left > 0:
            head = slice_in_dim(found, 0, left, axis)
            parts.append(_placed(sum_(head, [axis], keep=True), axis, 0, n))
        if right > 0:
            tail = slice_in_dim(found, total - right, total, axis)
            parts.append(_placed(sum_(tail, [axis], keep=True), axis, n - 1, n))
        found = sum(parts[1:], parts[0])
    return found


def _placed(x: Term, axis: int, start: int, size: int) -> Term:
    """``x`` from a start on, among zeros."""
    low, high = [0] * x.rank, [0] * x.rank
    low[axis], high[axis] = start, size - start - x.dims[axis]
    return pad(x, 0, low, high)


ROWS: Rows = {
    "aten.constant_pad_nd.default": Sized(_constant_pad),
    **{f"aten.reflection_pad{n}d.default": _reflection_pad for n in (1, 2, 3)},
    **{f"aten.replication_pad{n}d.default": _replication_pad for n in (1, 2, 3)},
    **{f"aten.replication_pad{n}d_backward.default": _replication_pad_backward for n in (1, 2, 3)},
}
