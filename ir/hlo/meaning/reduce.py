"""Reductions by any reducer of one or several values, and ``map``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...dtypes import to_numpy
from ...reducers import UFUNCS, ufunc_of, wide_type
from ..nodes import Computation, Instruction, Shape, TupleShape
from .values import CallEvaluator, Value, simple_op


def reduce(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Reduce n arrays over ``dimensions``, starting from n initial values."""
    n = len(args) // 2
    arrays, inits, axes = args[:n], args[n:], i.attrs["dimensions"]
    op = simple_op(i.attrs["to_apply"])
    if n == 1 and op in UFUNCS and arrays[0].dtype == to_numpy(i.array.dtype):
        return reduce_simple(op, arrays[0], inits[0], axes)
    return as_results(i, reduce_general(i.attrs["to_apply"], arrays, inits, axes, run))


def as_results(i: Instruction, values: tuple[Array, ...]) -> Value:
    """Convert reduced values to the element types of an instruction's result or results."""
    shapes = i.shape.elements if isinstance(i.shape, TupleShape) else (i.shape,)
    types = [to_numpy(s.dtype) for s in shapes if isinstance(s, Shape)]
    out = tuple(convert(v, t) for v, t in zip(values, types, strict=True))
    return out if isinstance(i.shape, TupleShape) else out[0]


def reduce_simple(op: str, a: Array, init: Array, axes: tuple[int, ...]) -> Array:
    """Reduce by one binary operation over ``axes``, starting from ``init``."""
    f, wide = ufunc_of(op, a.dtype), wide_type(op, a.dtype)
    out, a, init = a.dtype, a.astype(wide), init.astype(wide)
    folded = _fold(f, a, axes, init) if axes else a
    return convert(np.asarray(f(folded, init)), out)


def _fold(f: np.ufunc, a: Array, axes: tuple[int, ...], init: Array) -> Array:
    if 0 in (a.shape[d] for d in axes):
        kept = [n for d, n in enumerate(a.shape) if d not in axes]
        if f.identity is None:
            return np.broadcast_to(init, kept)
        return np.full(kept, np.asarray(f.identity).astype(a.dtype))  # the identity of `and` is -1
    if f.nin == 2 and f in (np.add, np.multiply):
        return np.asarray(f.reduce(a, axis=axes, dtype=a.dtype))
    return np.asarray(f.reduce(a, axis=axes))


def reduce_general(
    c: Computation,
    arrays: list[Array],
    inits: list[Array],
    axes: tuple[int, ...],
    run: CallEvaluator,
) -> tuple[Array, ...]:
    """Reduce by any associative reducer, combining neighbors pairwise until one value is left.

    Elements stay in order, so the reducer need not be commutative.
    """
    apply = many(c, run)
    kept = [d for d in range(arrays[0].ndim) if d not in axes]
    order = [*sorted(axes), *kept]
    rest = [arrays[0].shape[d] for d in kept]
    count = int(np.prod([arrays[0].shape[d] for d in axes], dtype=np.int64))
    values = tuple(a.transpose(order).reshape([count, *rest]) for a in arrays)
    start = tuple(np.broadcast_to(v, rest) for v in inits)
    if count == 0:
        return start
    while len(values[0]) > 1:
        pairs = len(values[0]) // 2
        left = tuple(v[0 : 2 * pairs : 2] for v in values)
        right = tuple(v[1 : 2 * pairs : 2] for v in values)
        joined = apply(*left, *right)
        if len(values[0]) % 2:
            tail = tuple(v[-1:] for v in values)
            joined = tuple(np.concatenate(p) for p in zip(joined, tail, strict=True))
        values = joined
    return apply(*start, *(v[0] for v in values))


def many(c: Computation, run: CallEvaluator) -> Callable[..., tuple[Array, ...]]:
    """Return a reducer as a function of arrays that always returns a tuple."""
    apply = run.lifted(c)

    def call(*args: Array) -> tuple[Array, ...]:
        result = apply(*args)
        return result if isinstance(result, tuple) else (result,)

    return call


def map_(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Apply a computation of scalars to the elements of arrays of one shape."""
    return run.lifted(i.attrs["to_apply"])(*args)
