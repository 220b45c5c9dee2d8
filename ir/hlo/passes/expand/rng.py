"""``rng`` as Philox bits, drawn at a counter that the executable keeps, and its distributions.

The numbers are those that XLA gives the first program of a process: the key, which XLA draws for
each program, is fixed here, and the counter starts where XLA's does. Uniform floats use as many
bits as their mantissa has. Normal ones are computed in pairs from uniform ones (Box and Muller,
1958); a pair is adjacent along one dimension.
"""

from __future__ import annotations

from math import pi, prod

import numpy as np

from ....dtypes import BY_NAME, DType, f32, f64, u32, u64
from ....formats import FORMATS
from ...nodes import HloModule, Instruction, Shape, SliceDim
from ...patterns import build
from ...rewrite import make, map_computations, rebuild
from .random_bits import element, philox_numbers

KEY = 0xBAA1723EBDE0C74F  # of every `rng`; only the counter differs
SMALLEST = float(np.float32(1e-7))  # lower bound of uniform numbers whose logarithm is taken


def expand_rng(module: HloModule) -> HloModule:
    """``rng(a, b), distribution=..``  ->  arithmetic on bits at the executable's counter"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    return expansion(i) if i.opcode == "rng" else None


def expansion(i: Instruction) -> Instruction:
    """Return a graph that computes an ``rng``; it contains ``rng-get-and-update-state``."""
    first, second = i.operands[:2]
    if i.attrs["distribution"] == "rng_normal":
        return _normal(first, second, i.array)
    if i.array.dtype.is_float:
        return _uniform(first, second, i.array)
    return _integers(first, second, i.array)


def _numbers(count: int, wide: bool, wanted: int) -> Instruction:
    """Return ``count`` u32 or u64 for ``wanted`` results; each 32 bits advance the counter by 1."""
    blocks = -(-count * (2 if wide else 1) // 4)
    delta = max(wanted * (2 if wide else 1), 1)
    state = make("rng-get-and-update-state", Shape(u64, (2,)), delta=delta)
    key = build.scalar(KEY, u64)
    found = philox_numbers(key, element(state, 0), element(state, 1), blocks, wide)
    return build.part(found, 0, count)


def _splat(x: Instruction, shape: Shape, dtype: DType) -> Instruction:
    return build.broadcast(build.convert(x, dtype), (), shape.dims)


def _unit(numbers: Instruction, dtype: DType) -> Instruction:
    """Return floats in [0, 1) made of the words' high bits: floats in [1, 2), minus 1."""
    word, mantissa = numbers.array.dtype, FORMATS[dtype].mantissa
    dims = numbers.array.dims
    drop = build.full(dtype.bits - mantissa, word, dims)
    one = build.full(((1 << (dtype.bits - 2)) - 1) >> mantissa << mantissa, word, dims)
    bits = build.pointwise("or", build.pointwise("shift-right-logical", numbers, drop), one)
    near = make("bitcast-convert", Shape(dtype, dims), (bits,))
    return build.pointwise("subtract", near, build.full(1, dtype, dims))


def _wide(dtype: DType) -> DType:
    """Return the type in which floats of a type are computed."""
    return f64 if dtype == f64 else f32


def _uniform(low: Instruction, high: Instruction, shape: Shape) -> Instruction:
    """Return ``low + u * (high - low)``, replaced by ``low`` where rounding gives ``high``."""
    dtype = _wide(shape.dtype)
    count = prod(shape.dims)
    u = build.reshape(_unit(_numbers(count, dtype == f64, count), dtype), shape.dims)
    a, b = (_splat(x, shape, dtype) for x in (low, high))
    x = build.pointwise("add", a, build.pointwise("multiply", u, build.pointwise("subtract", b, a)))
    x, a, b = (build.convert(v, shape.dtype) for v in (x, a, b))
    inside = build.pointwise("compare", x, b, direction="LT")
    return build.pointwise("select", inside, x, a)


def _normal(mean: Instruction, deviation: Instruction, shape: Shape) -> Instruction:
    """Return pairs of ``mean + deviation * sqrt(-2 log(u)) f(2 pi v)`` for f = sin and f = cos."""
    dtype = _wide(shape.dtype)
    along = _paired(shape.dims or (1,))
    dims = list(shape.dims or (1,))
    dims[along : along + 1] = [-(-dims[along] // 2), 2]
    numbers = _numbers(prod(dims), dtype == f64, prod(shape.dims))
    both = build.reshape(_unit(numbers, dtype), dims)
    u, v = (_half(both, along + 1, at) for at in (0, 1))

    def full(value: float) -> Instruction:
        return build.full(value, dtype, u.array.dims)

    safe = build.pointwise("maximum", u, full(SMALLEST))
    radius = _of("sqrt", build.pointwise("multiply", full(-2), _of("log", safe)))
    angle = build.pointwise("multiply", full(2 * pi), v)
    sides = [build.pointwise("multiply", _of(f, angle), radius) for f in ("sine", "cosine")]
    pairs = make("concatenate", Shape(dtype, tuple(dims)), sides, dimensions=(along + 1,))
    dims[along : along + 2] = [2 * dims[along]]
    x = _first(build.reshape(pairs, dims), shape.dims)
    m, s = (_splat(p, shape, dtype) for p in (mean, deviation))
    return build.convert(build.pointwise("add", m, build.pointwise("multiply", s, x)), shape.dtype)


def _paired(dims: tuple[int, ...]) -> int:
    """Return the dimension along which pairs are adjacent: the first even one, else the largest."""
    even = [d for d, size in enumerate(dims) if size % 2 == 0]
    return even[0] if even else dims.index(max(dims))


def _half(x: Instruction, along: int, at: int) -> Instruction:
    """Return row ``at`` of a dimension of size 2."""
    dims = x.array.dims
    limits = [SliceDim(0, d) for d in dims]
    limits[along] = SliceDim(at, at + 1)
    shape = Shape(x.array.dtype, (*dims[:along], 1, *dims[along + 1 :]))
    return make("slice", shape, (x,), slice=tuple(limits))


def _first(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Return the leading elements of each dimension, ``dims`` in number."""
    if not dims:
        return build.reshape(_first(x, (1,)), ())
    if x.array.dims == dims:
        return x
    limits = tuple(SliceDim(0, d) for d in dims)
    return make("slice", Shape(x.array.dtype, dims), (x,), slice=limits)


def _of(opcode: str, x: Instruction) -> Instruction:
    return build.pointwise(opcode, x)


def _integers(low: Instruction, high: Instruction, shape: Shape) -> Instruction:
    """Return ``low + n % (high - low)`` for 32 random bits n, 64 for wide types; a pred is true if
    the top bit is set."""
    dtype, count = shape.dtype, prod(shape.dims)
    if dtype.kind == "pred":
        bits = build.reshape(_numbers(count, False, count), shape.dims)
        half = build.full(1 << 31, u32, shape.dims)
        return build.pointwise("compare", bits, half, direction="GE")
    unsigned = BY_NAME[f"u{dtype.bits}"]
    wide = dtype.bits == u64.bits
    numbers = build.reshape(_numbers(count, wide, count), shape.dims)
    span = build.convert(build.pointwise("subtract", high, low), unsigned)
    rest = build.pointwise("remainder", numbers, _splat(span, shape, numbers.array.dtype))
    return build.pointwise("add", _splat(low, shape, dtype), build.convert(rest, dtype))
