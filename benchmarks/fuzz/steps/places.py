"""Steps by index: gather, scatter, sort, the largest k, and the gradients of a look-up."""

from __future__ import annotations

import math

import numpy as np

from ..builder import ELEMENTS, Builder, Value, listed, shape_of
from .moves import value
from .pointwise import any_value
from .registry import step


def indices(b: Builder, dims: tuple[int, ...], bound: int, unique: bool = False) -> Value:
    """Integers that mostly lie in range(bound)."""
    dtype = b.pick(("s32", "s32", "s64", "u32", "u8", "s8"))
    found = b.fresh(dtype, dims)
    top = min(bound + (0 if unique else 2), 127)
    low = 0 if unique or dtype[0] == "u" else -1
    if unique and math.prod(dims) <= bound <= 127:
        drawn = b.rng.permutation(bound)[: math.prod(dims)].reshape(dims)
    else:
        drawn = b.rng.integers(low, max(top, low + 1), dims)
    b.arguments[-1] = np.asarray(drawn).astype(b.arguments[-1].dtype)
    return found


@step(3, inner=False)
def take(b: Builder) -> object:
    """Rows of a table, along any dimension."""
    x = value(b)
    if not x.dims or not x.size:
        return None
    d = b.number(0, len(x.dims) - 1)
    where = b.dims(b.number(0, 2))
    at = indices(b, where, x.dims[d])
    sizes = [1 if k == d else b.number(1, n) if b.chance(0.2) else n for k, n in enumerate(x.dims)]
    inside = [n for k, n in enumerate(sizes) if k != d]
    rank = len(inside) + len(where)
    offsets = sorted(b.shuffled(rank)[: len(inside)])
    inner, outer = iter(inside), iter(where)
    dims = [next(inner) if k in offsets else next(outer) for k in range(rank)]
    if math.prod(dims) > ELEMENTS:
        return None
    text = (
        f"gather({x.name}, {at.name}), offset_dims={listed(offsets)}, collapsed_slice_dims={{{d}}},"
        f" start_index_map={{{d}}}, index_vector_dim={len(where)}, slice_sizes={listed(sizes)}"
    )
    return b.emit(x.dtype, dims, text, x.bound)


@step(3, inner=False)
def scatter_rows(b: Builder) -> object:
    """Rows added to, or put into, a table: the gradient of a look-up."""
    x = any_value(b, "isf" if b.exact else "f")
    if not x.dims or not x.size:
        return None
    d = b.number(0, len(x.dims) - 1)
    add = b.chance(0.7)
    count = b.number(0, 9) if add else b.number(0, min(x.dims[d], 9))
    if not add and x.dims[d] > 127:
        return None
    at = indices(b, (count,), x.dims[d], unique=not add)
    dims = (count, *(n for k, n in enumerate(x.dims) if k != d))
    updates = b.fresh(x.dtype, dims)
    bound = x.bound + updates.bound * max(count, 1) if add else max(x.bound, updates.bound)
    if not b.holds(x.dtype, bound) or math.prod(dims) > ELEMENTS:
        return None
    rows = [f"r = {x.dtype}[] add(q0, q1)"] if add else [f"r = {x.dtype}[] copy(q1)"]
    by = b.combiner([x.dtype, x.dtype], rows)
    text = (
        f"scatter({x.name}, {at.name}, {updates.name}), "
        f"update_window_dims={listed(range(1, len(x.dims)))}, inserted_window_dims={{{d}}}, "
        f"scatter_dims_to_operand_dims={{{d}}}, index_vector_dim=1, to_apply={by}"
    )
    return b.emit(x.dtype, x.dims, text, bound)


@step(2, smooth=False)
def sort(b: Builder) -> object:
    """Along a dimension, with a second array carried along."""
    x = any_value(b, "isf")
    if not x.dims:
        return None
    d = b.number(0, len(x.dims) - 1)
    way = b.pick(("LT", "GT"))
    if b.chance(0.5):
        by = b.combiner([x.dtype] * 2, [f"r = pred[] compare(q0, q1), direction={way}"])
        text = f"sort({x.name}), dimensions={{{d}}}, is_stable=true, to_apply={by}"
        return b.emit(x.dtype, x.dims, text, x.bound)
    y = b.emit("s32", x.dims, f"iota(), iota_dimension={d}", 0.0)
    types = [x.dtype, x.dtype, "s32", "s32"]
    by = b.combiner(types, [f"r = pred[] compare(q0, q1), direction={way}"])
    text = f"sort({x.name}, {y.name}), dimensions={{{d}}}, is_stable=true, to_apply={by}"
    both = b.row(f"({x.shape}, {y.shape})", text)
    b.emit(x.dtype, x.dims, f"get-tuple-element({both}), index=0", x.bound)
    return b.emit("s32", x.dims, f"get-tuple-element({both}), index=1", 0.0)


@step(1, smooth=False)
def topk(b: Builder) -> object:
    """Return the largest or smallest k of each row, and where they are."""
    x = any_value(b, "if")
    if not x.dims:
        return None
    k = b.number(0, x.dims[-1])
    out = (*x.dims[:-1], k)
    way = b.pick(("true", "false"))
    shape = f"({shape_of(x.dtype, out)}, {shape_of('s32', out)})"
    both = b.row(shape, f"topk({x.name}), k={k}, largest={way}")
    b.emit("s32", out, f"get-tuple-element({both}), index=1", 0.0)
    return b.emit(x.dtype, out, f"get-tuple-element({both}), index=0", x.bound)
