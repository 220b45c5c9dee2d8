"""Operations that move elements to statically known places: broadcast, pad, slice, reverse, ..."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from ...arrays import Array
from ...dtypes import DType, to_numpy
from ..layouts import slowest_first
from ..nodes import Instruction, PadDim
from .pointwise import reinterpret
from .values import CallEvaluator, Value


def broadcast(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Repeat the operand, whose dimension k is dimension ``dimensions[k]`` of the result."""
    a, dims = args[0], i.attrs["dimensions"]
    if not dims and a.ndim == i.array.rank:
        dims = tuple(range(a.ndim))
    shape = list(i.array.dims)
    for axis, d in enumerate(dims):
        shape[d] = a.shape[axis]
    order = np.argsort(dims).tolist() if dims else []
    spread = [1] * i.array.rank
    for d in dims:
        spread[d] = shape[d]
    return np.broadcast_to(a.transpose(order).reshape(spread), shape)


def reshape(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Give elements in row-major order another shape; a single bounded dimension is computed."""
    a, dims = args[0], i.array.dims
    if i.array.dynamic and a.size != i.array.size:
        fixed = prod(d for d, m in zip(dims, i.array.dynamic, strict=True) if not m)
        if sum(i.array.dynamic) == 1 and fixed:
            live = a.size // fixed
            dims = tuple(live if m else d for d, m in zip(dims, i.array.dynamic, strict=True))
    return a.reshape(dims)


def bitcast(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Reinterpret the bytes of an array, stored in its layout, in the result's type and layout."""
    a, old, new = args[0], i.operands[0].array, i.array
    flat = a.transpose(slowest_first(old)).reshape(-1)
    if old.dtype != new.dtype:
        few = new.dtype.bits // old.dtype.bits
        flat = reinterpret(flat.reshape(-1, few) if few > 1 else flat, old.dtype, new.dtype)
    order = slowest_first(new)
    stored = flat.reshape([new.dims[d] for d in order])
    return stored.transpose(np.argsort(order).tolist()) if order else stored


def transpose(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Permute dimensions: dimension k of the result is ``dimensions[k]`` of the operand."""
    return args[0].transpose(i.attrs["dimensions"])


def reverse(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Reverse the order of elements along ``dimensions``."""
    return np.flip(args[0], i.attrs["dimensions"])


def concatenate(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Join arrays along one dimension."""
    return np.concatenate(args, i.attrs["dimensions"][0])


def slice_(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Take elements start, start + stride, ... below limit of each dimension."""
    cuts = i.attrs["slice"]
    return args[0][tuple(slice(c.start, c.limit, c.stride) for c in cuts)]


def pad(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Pad each dimension with the second operand, as ``padding`` says."""
    return padded(args[0], args[1], i.attrs["padding"])


def padded(a: Array, value: Array, padding: tuple[PadDim, ...]) -> Array:
    """Insert ``padding`` elements before, after and between those of ``a``; negative low and high
    amounts remove elements."""
    size = [
        max(0, d + max(0, d - 1) * p.interior + p.low + p.high)
        for d, p in zip(a.shape, padding, strict=True)
    ]
    out = np.full(size, value, a.dtype)
    target, source = [], []
    for d, p, n in zip(a.shape, padding, size, strict=True):
        step = p.interior + 1
        first = max(0, -(p.low // step)) if p.low < 0 else 0
        last = min(d, (n - 1 - p.low) // step + 1) if n > 0 else 0
        last = max(last, first)
        source.append(slice(first, last))
        begin = p.low + first * step
        target.append(slice(begin, begin + max(0, (last - first - 1) * step + 1), step))
    if all(s.stop > s.start for s in source):
        out[tuple(target)] = a[tuple(source)]
    return out


def iota(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return each element's index along ``iota_dimension``."""
    return _counting(i.array.dtype, i.array.dims, i.attrs["iota_dimension"])


@lru_cache(maxsize=16)  # a while loop needs the same array in every iteration
def _counting(dtype: DType, dims: tuple[int, ...], axis: int) -> Array:
    row = np.arange(dims[axis]).astype(to_numpy(dtype))
    spread = [n if d == axis else 1 for d, n in enumerate(dims)]
    return np.broadcast_to(row.reshape(spread), dims)


def get_dimension_size(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the live size of one dimension, as s32."""
    return np.asarray(args[0].shape[i.attrs["dimensions"][0]], np.int32)


def set_dimension_size(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Set the live size of one dimension: crop it, or append zeros if the size grows."""
    a, size, axis = args[0], int(args[1]), i.attrs["dimensions"][0]
    if size <= a.shape[axis]:
        return a[(slice(None),) * axis + (slice(0, size),)]
    more = [PadDim(0, size - a.shape[axis] if k == axis else 0) for k in range(a.ndim)]
    return padded(a, np.zeros((), a.dtype), tuple(more))
