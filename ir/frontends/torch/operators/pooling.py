"""Pools: means and largest elements of windows, also of adaptive ones, and their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....dtypes import s64
from ....hlo.nodes import Shape
from ...lax.indexing import put_along_axis, take, take_along_axis
from ...lax.reductions import argmax, identity, max_, mean, reduce_window
from ...lax.shaping import concatenate, full, pad, reshape, slice_, slice_in_dim, transpose
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, wide

Ints = Sequence[int]
Array = np.ndarray[Any, Any]

MANY = 64
"""Windows of more elements are gathered, those of fewer are written out."""


class _Window:
    """A window over the last dimensions: sizes, strides, padding and dilation of each."""

    def __init__(
        self, dims: Ints, out: Ints, size: Ints, stride: Ints, padding: Ints, dilation: Ints
    ) -> None:
        n = len(size)
        self.dims, self.out = tuple(dims[len(dims) - n :]), tuple(out[len(out) - n :])
        self.size, self.dilation = list(size), _spread(dilation, n)
        self.stride = _spread(stride, n) if stride else list(size)
        self.low = _spread(padding, n)
        last = [
            (o - 1) * s + d * (k - 1) + 1
            for o, s, d, k in zip(self.out, self.stride, self.dilation, self.size, strict=True)
        ]
        self.high = [e - d - p for e, d, p in zip(last, self.dims, self.low, strict=True)]

    def offsets(self) -> list[tuple[int, ...]]:
        """Return the places in a window, in row-major order."""
        return list(itertools.product(*(range(k) for k in self.size)))

    def places(self, offset: Ints) -> Array:
        """Return the flat place of each window's element, of those in bounds; else -1."""
        flat, valid = np.zeros((), np.int64), np.ones((), bool)
        for o, s, d, p, n, k in zip(
            self.out, self.stride, self.dilation, self.low, self.dims, offset, strict=True
        ):
            line = np.arange(o, dtype=np.int64) * s - p + k * d
            flat = flat[..., None] * n + line
            valid = valid[..., None] & (line >= 0) & (line < n)
        return np.where(valid, flat, -1)

    def around(self, x: Term, value: Any) -> Term:
        """``x`` with its padding, as far as windows reach."""
        lead = [0] * (x.rank - len(self.size))
        return pad(x, value, lead + self.low, lead + self.high)

    def part(self, padded: Term, offset: Ints) -> Term:
        """The element at one place of every window."""
        lead = padded.rank - len(self.size)
        starts = [0] * lead + [k * d for k, d in zip(offset, self.dilation, strict=True)]
        spans = [(o - 1) * s + 1 for o, s in zip(self.out, self.stride, strict=True)]
        limits = [*padded.dims[:lead], *(a + n for a, n in zip(starts[lead:], spans, strict=True))]
        return slice_(padded, starts, limits, [1] * lead + self.stride)

    def spread(self, grad: Term, offset: Ints) -> Term:
        """A number of each window, at the window's place ``offset`` of the operand."""
        lead = [0] * (grad.rank - len(self.size))
        low = [k * d - p for k, d, p in zip(offset, self.dilation, self.low, strict=True)]
        spans = [(o - 1) * s + 1 for o, s in zip(self.out, self.stride, strict=True)]
        high = [n - a - span for n, a, span in zip(self.dims, low, spans, strict=True)]
        zero = full(grad.site, 0, grad.dtype)
        return pad(grad, zero, lead + low, lead + high, lead + [s - 1 for s in self.stride])


def _spread(values: Ints, count: int) -> list[int]:
    return list(values) * count if len(values) == 1 else list(values)


def _window(
    rank: int, dims: Ints, out: Ints, size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> _Window:
    return _Window(dims, out, _spread(size, rank), stride, padding, dilation)


def _whole(x: Term, value: Any, window: _Window, opcode: str) -> Term:
    lead = [1] * (x.rank - len(window.size))
    none = [(0, 0)] * len(lead)
    edges = list(zip(window.low, window.high, strict=True))
    return reduce_window(
        x,
        opcode,
        lead + window.size,
        lead + window.stride,
        none + edges,
        lead + window.dilation,
        value,
    )


def _divisors(window: _Window, include_pad: bool, override: int | None) -> Array | int:
    """The numbers that the sums of windows are divided by."""
    if override is not None:
        return override
    found = np.ones((), np.int64)
    for o, s, k, p, n in zip(
        window.out, window.stride, window.size, window.low, window.dims, strict=True
    ):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        line = end - start
        if not include_pad:
            line = np.minimum(end, n) - np.maximum(start, 0)
        found = found[..., None] * line
    low = found.min() if found.size else 1
    return int(low) if found.size == 0 or (found == low).all() else found


def _divided(x: Term, divisors: Array | int) -> Term:
    if isinstance(divisors, int):
        return x / divisors
    return x / Term(x.site, x.site.constant(divisors)).to(x.dtype)


def _avg_pool(rank: int) -> Operator:
    def write(
        c: AtenCall,
        x: Term,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Term:
        window = _window(rank, x.dims, c.dims, kernel_size, stride, padding, (1,))
        total = _whole(wide(x), 0, window, "add")
        return _divided(total, _divisors(window, count_include_pad, divisor_override))

    return write


def _avg_pool_backward(rank: int) -> Operator:
    def write(
        c: AtenCall,
        grad: Term,
        x: Term,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Term:
        window = _window(rank, x.dims, grad.dims, kernel_size, stride, padding, (1,))
        part = _divided(wide(grad), _divisors(window, count_include_pad, divisor_override))
        return _sum([window.spread(part, offset) for offset in window.offsets()])

    return write


def _sum(terms: Sequence[Term]) -> Term:
    total = terms[0]
    for t in terms[1:]:
        total = total + t
    return total


def _max_pool(rank: int) -> Operator:
    """The largest element of every window, and its place in the whole operand."""

    def write(
        c: AtenCall,
        x: Term,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> list[Term]:
        if not c.shape.size:
            return [full(c.graph, 0, s.dtype, s.dims) for s in c.results if s is not None]
        window = _window(rank, x.dims, c.dims, kernel_size, stride, padding, dilation)
        return [_whole(x, None, window, "maximum"), _largest(x, window)]

    return write


def _largest(x: Term, window: _Window) -> Term:
    """The flat place of the largest element of every window: the first one, or the last NaN."""
    lowest = identity("maximum", x.dtype)
    padded = window.around(x, lowest)
    shape = Shape(s64, (*x.dims[: x.rank - len(window.size)], *window.out))
    every = [window.places(offset) for offset in window.offsets()]
    first = np.full(window.out, -1, np.int64)
    for places in reversed(every):
        first = np.where(places >= 0, places, first)
    best, where = _number(x, lowest, shape.dims), _places(x, first).like(shape)
    for offset, places in zip(window.offsets(), every, strict=True):
        value = window.part(padded, offset)
        wins = value > best
        if x.dtype.is_float:
            wins = wins | value.differs(value)
        inside = _places(x, places)
        if (places < 0).any():
            wins = wins & (inside >= 0)
        best, where = wins.select(value, best), wins.do("select", inside.like(shape), where)
    return where


def _number(x: Term, value: Any, dims: Ints) -> Term:
    return full(x.site, value, x.dtype, dims)


def _places(x: Term, places: Array) -> Term:
    return Term(x.site, x.site.constant(places))


def _max_pool_backward(rank: int) -> Operator:
    def write(
        c: AtenCall,
        grad: Term,
        x: Term,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        indices: Term,
    ) -> Term:
        window = _window(rank, x.dims, grad.dims, kernel_size, stride, padding, dilation)
        if math.prod(window.size) > MANY:
            return _unpooled(c, grad, indices, rank)
        y = wide(grad)
        parts = []
        for offset in window.offsets():
            chosen = indices.equals(_places(x, window.places(offset)))
            parts.append(window.spread(chosen.select(y, 0), offset))
        return _sum(parts)

    return write


def _unpooled(c: AtenCall, grad: Term, indices: Term, rank: int) -> Term:
    """Each number added at its place of the last dimensions."""
    lead = c.dims[: len(c.dims) - rank]
    rows, count = math.prod(lead), math.prod(c.dims[len(lead) :])
    zeros = full(c.graph, 0, wide(grad).dtype, (rows, count))
    if not grad.shape.size:
        return reshape(zeros, c.dims)
    flat, places = reshape(wide(grad), (rows, -1)), reshape(indices, (rows, -1))
    return reshape(put_along_axis(zeros, places, flat, 1, lambda old, new: old + new), c.dims)


def _edges(n: int, out: int) -> list[tuple[int, int]]:
    """The start and end of each adaptive window."""
    return [(k * n // out, -(-(k + 1) * n // out)) for k in range(out)]


def _adaptive_avg(rank: int) -> Operator:
    def write(c: AtenCall, x: Term, size: Ints) -> Term:
        found = wide(x)
        for axis in range(x.rank - rank, x.rank):
            found = _averaged(found, axis, c.dims[axis])
        return found

    return write


def _averaged(x: Term, axis: int, out: int) -> Term:
    """Means of adaptive windows along one dimension."""
    n = x.dims[axis]
    if not out or not x.shape.size:
        return full(x.site, 0, x.dtype, resized(x.dims, axis, out))
    if n % out == 0:
        dims = (*x.dims[:axis], out, n // out, *x.dims[axis + 1 :])
        return mean(reshape(x, dims), [axis + 1])
    parts = [mean(slice_in_dim(x, a, b, axis), [axis], keep=True) for a, b in _edges(n, out)]
    return concatenate(parts, axis)


def resized(dims: Ints, axis: int, size: int) -> tuple[int, ...]:
    """Return the sizes with another one at ``axis``."""
    return tuple(size if k == axis else d for k, d in enumerate(dims))


def _adaptive_avg_backward(rank: int) -> Operator:
    def write(c: AtenCall, grad: Term, x: Term) -> Term:
        found = wide(grad)
        for axis in range(x.rank - rank, x.rank):
            found = _spread_means(found, axis, x.dims[axis])
        return found

    return write


def _spread_means(grad: Term, axis: int, n: int) -> Term:
    """The gradient of ``_averaged``."""
    out = grad.dims[axis]
    if not out or not grad.shape.size:
        return full(grad.site, 0, grad.dtype, resized(grad.dims, axis, n))
    parts = []
    for k, (a, b) in enumerate(_edges(n, out)):
        line = slice_in_dim(grad, k, k + 1, axis) / (b - a)
        dims = resized(grad.dims, axis, b - a)
        low = [a if j == axis else 0 for j in range(grad.rank)]
        high = [n - b if j == axis else 0 for j in range(grad.rank)]
        parts.append(pad(line.like(Shape(grad.dtype, dims)), 0, low, high))
    return _sum(parts)


def _adaptive_max(rank: int) -> Operator:
    """By gathering windows, the shorter ones with their first elements repeated."""

    def write(c: AtenCall, x: Term, size: Ints) -> list[Term]:
        if not c.shape.size:
            return [full(c.graph, 0, s.dtype, s.dims) for s in c.results if s is not None]
        lead, spatial = x.dims[: x.rank - rank], x.dims[x.rank - rank :]
        out = c.dims[x.rank - rank :]
        lines = [_window_places(n, o) for n, o in zip(spatial, out, strict=True)]
        flat, places = x, np.zeros((1,) * 2 * rank, np.int64)
        for k, line in enumerate(lines):
            flat = take(flat, _places(x, line), len(lead) + 2 * k)
            shape = [1] * 2 * rank
            shape[2 * k : 2 * k + 2] = line.shape
            places = places * spatial[k] + line.reshape(shape)
        order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
        rows = transpose(flat, [*range(len(lead)), *(len(lead) + k for k in order)])
        rows = reshape(rows, (*lead, *out, -1))
        table = places.transpose(order).reshape(*out, -1)
        at = argmax(rows, -1, s64, keep=True)
        wide_table = _places(x, table).like(Shape(s64, rows.dims))
        found = take_along_axis(wide_table, at, rows.rank - 1)
        return [max_(rows, [-1]), reshape(found, c.dims)]

    return write


def _window_places(n: int, out: int) -> Array:
    edges = _edges(n, out)
    longest = max(b - a for a, b in edges)
    return np.array([[min(a + k, b - 1) for k in range(longest)] for a, b in edges], np.int64)


def _adaptive_max_backward(rank: int) -> Operator:
    return lambda c, grad, x, indices: _unpooled(c, grad, indices, rank)


def _each(name: str, make: Callable[[int], Operator], *ranks: int) -> Rows:
    return {f"aten.{name.replace('#', str(n))}.default": make(n) for n in ranks}


ROWS: Rows = {
    **_each("avg_pool#d", _avg_pool, 1, 2, 3),
    **_each("avg_pool#d_backward", _avg_pool_backward, 2, 3),
    **_each("max_pool#d_with_indices", _max_pool, 2, 3),
    **_each("max_pool#d_with_indices_backward", _max_pool_backward, 2, 3),
    **_each("_adaptive_avg_pool#d", _adaptive_avg, 2, 3),
    **_each("_adaptive_avg_pool#d_backward", _adaptive_avg_backward, 2, 3),
    **_each("adaptive_max_pool#d", _adaptive_max, 2, 3),
    **_each("adaptive_max_pool#d_backward", _adaptive_max_backward, 2, 3),
}
