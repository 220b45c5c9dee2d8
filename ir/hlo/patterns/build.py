"""Constructors that never build what a simpler instruction says as well.

Each takes array instructions of static shape and returns a new instruction, or an old one where
nothing is to be done: ``reshape(reshape(x))`` is one reshape, ``transpose`` by the identity is its
operand. Passes that build through them leave nothing to clean up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType, pred, to_numpy
from ..nodes import Instruction, PadDim, Shape, SliceDim, TupleShape
from ..rewrite import constant, make
from .match import inverse, nonunit, segments, splat

Dims = tuple[int, ...]


def scalar(value: Any, dtype: DType) -> Instruction:
    """Return a rank-0 constant."""
    return constant(np.asarray(value).astype(to_numpy(dtype)))


def full(value: Any, dtype: DType, dims: Dims) -> Instruction:
    """Return an array of one value: a constant of rank 0, broadcast unless ``dims`` is empty."""
    return broadcast(scalar(value, dtype), (), dims)


def iota(dtype: DType, dims: Dims, dim: int = 0) -> Instruction:
    """Return the index along one of its dimensions."""
    return make("iota", Shape(dtype, dims), iota_dimension=dim)


def pointwise(opcode: str, *operands: Instruction, **attrs: Any) -> Instruction:
    """Return an element-wise operation on operands of one shape, of the last one's type."""
    last = operands[-1].array
    dtype = pred if opcode in ("compare", "is-finite") else last.dtype
    return make(opcode, Shape(dtype, last.dims), operands, **attrs)


def convert(x: Instruction, dtype: DType) -> Instruction:
    """Return ``x`` with elements of another type."""
    if x.array.dtype == dtype:
        return x
    return make("convert", Shape(dtype, x.array.dims), (x,))


def reshape(x: Instruction, dims: Sequence[int]) -> Instruction:
    """Return ``x`` with the same elements in row-major order under other dimensions."""
    new = tuple(dims)
    if x.array.dims == new:
        return x
    match x.opcode:
        case "reshape":
            return reshape(x.operands[0], new)
        case "constant":
            return constant(x.attrs["literal"].reshape(new))
        case "broadcast":
            if (moved := _reshape_of_broadcast(x, new)) is not None:
                return moved
        case _:
            pass
    return make("reshape", Shape(x.array.dtype, new), (x,))


def _reshape_of_broadcast(x: Instruction, new: Dims) -> Instruction | None:
    """reshape(broadcast(y))  ->  broadcast(reshape(y)), where every run of dims allows it."""
    y, mapped = x.operands[0], x.attrs.get("dimensions", ())
    runs = segments(x.array.dims, new)
    if runs is None or list(mapped) != sorted(mapped):
        return None
    position = {to: origin for origin, to in enumerate(mapped)}
    y_dims: list[int] = []
    to: list[int] = []
    for old_run, new_run in runs:
        covered = [k in position for k in old_run]
        if any(covered) and not all(covered):
            return None
        if all(covered):
            y_dims += [new[k] for k in new_run]
            to += new_run
    return broadcast(reshape(y, y_dims), tuple(to), new)


def part(x: Instruction, start: int, count: int) -> Instruction:
    """``count`` elements of a vector, from number ``start`` on."""
    if x.array.dims == (count,):
        return x
    shape = Shape(x.array.dtype, (count,))
    return make("slice", shape, (x,), slice=(SliceDim(start, start + count),))


def rows(x: Instruction, at: Instruction, count: int, dim: int = 0) -> Instruction:
    """``count`` indices of one dimension of ``x``, from the scalar ``at`` on."""
    sizes = tuple(count if d == dim else n for d, n in enumerate(x.array.dims))
    operands = (x, *_starts(x, at, dim))
    return make("dynamic-slice", Shape(x.array.dtype, sizes), operands, dynamic_slice_sizes=sizes)


def put_rows(x: Instruction, new: Instruction, at: Instruction, dim: int = 0) -> Instruction:
    """Return ``x`` with ``new`` over what ``rows`` takes."""
    return make("dynamic-update-slice", x.array, (x, new, *_starts(x, at, dim)))


def _starts(x: Instruction, at: Instruction, dim: int) -> list[Instruction]:
    zero = scalar(0, at.array.dtype)
    return [at if d == dim else zero for d in range(x.array.rank)]


def pad(x: Instruction, value: Instruction, padding: Sequence[PadDim]) -> Instruction:
    """Return ``x`` with a scalar around and between its elements; no part of it is cut off."""
    if all(p == PadDim(0, 0) for p in padding):
        return x
    pairs = zip(x.array.dims, padding, strict=True)
    dims = tuple(p.low + n + max(n - 1, 0) * p.interior + p.high for n, p in pairs)
    return make("pad", Shape(x.array.dtype, dims), (x, value), padding=tuple(padding))


def extended(x: Instruction, dim: int, by: int) -> Instruction:
    """Return ``x`` with ``by`` zeros appended along a dimension."""
    padding = [PadDim(0, by if d == dim else 0) for d in range(x.array.rank)]
    return pad(x, scalar(0, x.array.dtype), padding)


def tuple_of(values: Sequence[Instruction]) -> Instruction:
    """Return a tuple, of values of any shape."""
    return make("tuple", TupleShape(tuple(v.shape for v in values)), values)


def element(x: Instruction, n: int) -> Instruction:
    """Element ``n`` of a tuple."""
    assert isinstance(x.shape, TupleShape)
    return make("get-tuple-element", x.shape.elements[n], (x,), index=n)


def transpose(x: Instruction, permutation: Sequence[int]) -> Instruction:
    """Return ``x`` with result dimension ``k`` taken from dimension ``permutation[k]``."""
    order = tuple(permutation)
    dims = tuple(x.array.dims[k] for k in order)
    if order == tuple(range(len(order))):
        return x
    if [k for k in order if x.array.dims[k] != 1] == [
        k for k in range(len(order)) if x.array.dims[k] != 1
    ]:
        return reshape(x, dims)
    match x.opcode:
        case "transpose":
            inner = x.attrs["dimensions"]
            return transpose(x.operands[0], [inner[k] for k in order])
        case "broadcast":
            back = inverse(order)
            mapped = x.attrs.get("dimensions", ())
            return broadcast(x.operands[0], tuple(back[d] for d in mapped), dims)
        case _:
            return make("transpose", Shape(x.array.dtype, dims), (x,), dimensions=order)


def broadcast(x: Instruction, mapped: Dims, dims: Dims) -> Instruction:
    """Return ``x`` repeated: its dimension ``k`` becomes dimension ``mapped[k]`` of the result.

    The operand of a broadcast so built has no dimension of size 1, and ``mapped`` rises.
    """
    if x.array.dims == dims and mapped == tuple(range(len(dims))):
        return x
    if x.opcode == "broadcast":
        inner = x.attrs.get("dimensions", ())
        return broadcast(x.operands[0], tuple(mapped[k] for k in inner), dims)
    order = sorted(range(len(mapped)), key=lambda k: mapped[k])
    if order != list(range(len(mapped))):
        return broadcast(transpose(x, order), tuple(sorted(mapped)), dims)
    if nonunit(x.array.dims) == nonunit(dims):
        return reshape(x, dims) if dims else x
    kept = tuple(k for k, d in enumerate(x.array.dims) if d != 1)
    small = reshape(x, [x.array.dims[k] for k in kept])
    value = splat(small)
    if value is not None and small.array.rank == 0:
        small = small if small.opcode == "constant" else constant(value)
    shape = Shape(x.array.dtype, dims)
    return make("broadcast", shape, (small,), dimensions=tuple(mapped[k] for k in kept))
