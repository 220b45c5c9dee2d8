"""Arithmetic on batches of small matrices ``[rows, columns, batch]``, with the batch in lanes."""

from __future__ import annotations

from ....dtypes import DType
from ...nodes import Computation, Instruction, Shape
from ...patterns import build
from ...rewrite import assemble, make, parameter


def reduce(opcode: str, x: Instruction, start: Instruction, dim: int = 0) -> Instruction:
    """Return a reduction along a dimension."""
    dims = tuple(n for d, n in enumerate(x.array.dims) if d != dim)
    combine = _combine(opcode, x.array.dtype)
    shape = Shape(x.array.dtype, dims)
    return make("reduce", shape, (x, start), dimensions=(dim,), to_apply=combine)


def _combine(opcode: str, dtype: DType) -> Computation:
    a, b = (parameter(n, Shape(dtype)) for n in range(2))
    return assemble(f"combine_{opcode}", (a, b), build.pointwise(opcode, a, b))


def less(a: Instruction, x: Instruction, y: Instruction) -> Instruction:
    """Return ``a[r, c] - x[r] y[c]``."""
    dims = a.array.dims
    product = build.pointwise(
        "multiply", build.broadcast(x, (0, 2), dims), build.broadcast(y, (1, 2), dims)
    )
    return build.pointwise("subtract", a, product)


def over(x: Instruction, dims: tuple[int, ...], dim: int = 0) -> Instruction:
    """Return a scalar, or a vector along a dimension, in all of an array."""
    return build.broadcast(x, (dim,) if x.array.dims else (), dims)


def put(x: Instruction, value: Instruction, at: Instruction) -> Instruction:
    """Return ``x`` with a value in one of its rows."""
    return build.put_rows(x, build.reshape(value, (1, *value.array.dims)), at)


def select(where: Instruction, x: Instruction, y: Instruction) -> Instruction:
    """Return ``x`` where it is true, else ``y``."""
    return build.pointwise("select", where, x, y)


def compare(direction: str, x: Instruction, y: Instruction) -> Instruction:
    """Return where a comparison holds."""
    return build.pointwise("compare", x, y, direction=direction)
