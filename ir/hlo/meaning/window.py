"""Operations on sliding windows: ``reduce-window`` and ``select-and-scatter``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...dtypes import from_numpy, to_numpy
from ...elementwise import identity
from ...reducers import UFUNCS, ufunc_of, wide_type
from ..nodes import Instruction, PadDim, Window, WindowDim
from ..signatures import window_positions
from .indexing import combine_at
from .reduce import as_results, many
from .shaping import padded
from .values import CallEvaluator, Value, simple_op

Combine = Callable[..., tuple[Array, ...]]


def reduce_window(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Reduce every window; positions outside the array or in holes of its dilation do not count.

    They are filled with the neutral element if the reducer is one known operation. With any other
    reducer a mask of the positions that count is reduced along with the values.
    """
    n = len(args) // 2
    arrays, inits, window = args[:n], args[n:], i.attrs["window"]
    op = simple_op(i.attrs["to_apply"])
    if n == 1 and op in UFUNCS and from_numpy(arrays[0].dtype).kind != "complex":
        a, init = arrays[0], inits[0]
        wide = wide_type(op, a.dtype)
        f = ufunc_of(op, a.dtype)
        neutral = np.asarray(identity(op, from_numpy(a.dtype))).astype(wide)
        values = _windows(lambda x, y: (np.asarray(f(x, y)),), (a.astype(wide),), [neutral], window)
        return convert(np.asarray(f(values[0], init.astype(wide))), to_numpy(i.array.dtype))
    reducer = many(i.attrs["to_apply"], run)
    counts = np.ones(arrays[0].shape, bool)
    combine = _masked(reducer, n)
    values = _windows(combine, (*arrays, counts), [*inits, np.asarray(False)], window)
    starts = [np.broadcast_to(v, values[0].shape) for v in inits]
    return as_results(i, combine(*starts, np.ones(values[0].shape, bool), *values)[:n])


def _masked(reducer: Combine, n: int) -> Combine:
    """Extend a reducer of n values by a mask: where one side does not count, take the other."""

    def combine(*args: Array) -> tuple[Array, ...]:
        left, right, a, b = args[:n], args[n + 1 : -1], args[n], args[-1]
        joined = reducer(*left, *right)
        rows = zip(joined, left, right, strict=True)
        return (*(np.where(a & b, j, np.where(a, x, y)) for j, x, y in rows), a | b)

    return combine


def _windows(
    combine: Combine, values: tuple[Array, ...], fill: list[Array], window: Window
) -> tuple[Array, ...]:
    """Reduce every window, one dimension after another, the last one first."""
    for axis in reversed(range(len(window))):
        if window[axis] != WindowDim(size=1):
            values = _along(combine, values, fill, axis, window[axis])
    return values


def _along(
    combine: Combine, values: tuple[Array, ...], fill: list[Array], axis: int, w: WindowDim
) -> tuple[Array, ...]:
    """Reduce windows along one dimension by doubling: 2m elements are m combined with m more."""
    count = window_positions(values[0].shape[axis], w)
    padding = tuple(
        PadDim(w.pad_low, w.pad_high, w.lhs_dilate - 1) if k == axis else PadDim(0, 0)
        for k in range(values[0].ndim)
    )
    rows = tuple(
        np.moveaxis(padded(v, f, padding), axis, 0) for v, f in zip(values, fill, strict=True)
    )
    if count == 0 or w.size == 0:
        rest = (count, *rows[0].shape[1:])
        empty = (np.broadcast_to(f, rest) for f in fill)
        return tuple(np.moveaxis(e, 0, axis) for e in empty)
    last = (count - 1) * w.stride + 1  # starts 0, stride, .. below this

    def part(v: tuple[Array, ...], begin: int) -> tuple[Array, ...]:
        return tuple(x[begin : begin + last] for x in v)

    done: tuple[Array, ...] | None = None
    covered, block, power = 0, 1, rows  # power[s] covers `block` elements from s on
    while True:
        if w.size & block:
            piece = part(power, covered * w.rhs_dilate)
            done = piece if done is None else combine(*done, *piece)
            covered += block
        if covered == w.size:
            break
        step = block * w.rhs_dilate
        power = combine(*(p[:-step] for p in power), *(p[step:] for p in power))
        block *= 2
    assert done is not None
    return tuple(np.moveaxis(d[:: w.stride], 0, axis) for d in done)


def select_and_scatter(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Combine each element of the source into the element that its window selects.

    Positions outside the array are never selected; a window without any element is ignored.
    """
    a, source, init = args
    window = i.attrs["window"]
    if a.size == 0:
        return a
    select = run.lifted(i.attrs["select"])
    counts = source.shape
    best = np.zeros(counts, a.dtype)
    at = np.full(counts, -1, np.int64)
    for offset in product(*(range(w.size) for w in window)):
        flat, inside = np.zeros(counts, np.int64), np.ones(counts, bool)
        for k, (w, o) in enumerate(zip(window, offset, strict=True)):
            place = np.arange(counts[k]) * w.stride + o * w.rhs_dilate - w.pad_low
            inside &= _spread((place >= 0) & (place < a.shape[k]), k, len(counts))
            flat = flat * a.shape[k] + _spread(place, k, len(counts))
        flat = np.where(inside, flat, 0)
        value = a.reshape(-1)[flat]
        wins = inside & ((at < 0) | ~select(best, value))
        best, at = np.where(wins, value, best), np.where(wins, flat, at)
    out = np.full(a.size, init, a.dtype)
    chosen = (at >= 0).reshape(-1)
    places, values = at.reshape(-1)[chosen], source.reshape(-1)[chosen]
    combine_at([out], places, [values], i.attrs["scatter"], run)
    return out.reshape(a.shape)


def _spread(row: Array, axis: int, rank: int) -> Array:
    return row.reshape([-1 if k == axis else 1 for k in range(rank)])
