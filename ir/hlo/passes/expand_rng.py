"""``rng`` as Philox bits at a counter that the executable keeps, shaped to its distribution.

The numbers are not XLA's: it too gives others on each device. Uniform floats take as many bits as
their mantissa holds; normal ones come in pairs from uniform ones (Box and Muller, 1958).
"""

from __future__ import annotations

from math import pi, prod

from ...dtypes import BY_NAME, DType, f32, f64, u32, u64
from ..nodes import HloModule, Instruction, Shape
from ..rewrite import make, map_computations, rebuild
from . import build
from .expand_random_bits import element, philox_numbers

KEY = 0x9E3779B97F4A7C15  # of all numbers that `rng` gives: what differs is the counter


def expand_rng(module: HloModule) -> HloModule:
    """``rng(a, b), distribution=..``  ->  bits at the executable's own counter, and arithmetic"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    return meaning(i) if i.opcode == "rng" else None


def meaning(i: Instruction) -> Instruction:
    """The same as other operations; ``rng-get-and-update-state`` is among them."""
    first, second = i.operands
    if i.attrs["distribution"] == "rng_normal":
        return _normal(first, second, i.array)
    if i.array.dtype.is_float:
        return _uniform(first, second, i.array)
    return _integers(first, second, i.array)


def _numbers(count: int, wide: bool) -> Instruction:
    """``count`` u32 or u64 that nothing else gets."""
    blocks = -(-count * (2 if wide else 1) // 4)
    state = make("rng-get-and-update-state", Shape(u64, (2,)), delta=max(blocks, 1))
    key = build.scalar(KEY, u64)
    found = philox_numbers(key, element(state, 0), element(state, 1), blocks, wide)
    return build.part(found, 0, count)


def _everywhere(x: Instruction, shape: Shape, dtype: DType) -> Instruction:
    return build.broadcast(build.convert(x, dtype), (), shape.dims)


def _unit(numbers: Instruction, dtype: DType) -> Instruction:
    """Floats of [0, 1) from the high bits of words: those of [1, 2) less one."""
    word, mantissa = numbers.array.dtype, {f32: 23, f64: 52}[dtype]
    dims = numbers.array.dims
    drop = build.full(dtype.bits - mantissa, word, dims)
    one = build.full(((1 << (dtype.bits - 2)) - 1) >> mantissa << mantissa, word, dims)
    bits = build.pointwise("or", build.pointwise("shift-right-logical", numbers, drop), one)
    near = make("bitcast-convert", Shape(dtype, dims), (bits,))
    return build.pointwise("subtract", near, build.full(1, dtype, dims))


def _wide(dtype: DType) -> DType:
    """The type in which floats are made."""
    return f64 if dtype == f64 else f32


def _uniform(low: Instruction, high: Instruction, shape: Shape) -> Instruction:
    """``low + u * (high - low)``, never ``high`` itself."""
    dtype = _wide(shape.dtype)
    u = build.reshape(_unit(_numbers(prod(shape.dims), dtype == f64), dtype), shape.dims)
    a, b = (_everywhere(x, shape, dtype) for x in (low, high))
    x = build.pointwise("add", a, build.pointwise("multiply", u, build.pointwise("subtract", b, a)))
    x, a, b = (build.convert(v, shape.dtype) for v in (x, a, b))
    inside = build.pointwise("compare", x, b, direction="LT")
    return build.pointwise("select", inside, x, a)


def _normal(mean: Instruction, deviation: Instruction, shape: Shape) -> Instruction:
    """``mean + deviation * sqrt(-2 log(1 - u)) cos(2 pi v)``, and the sine's as the second half."""
    dtype, count = _wide(shape.dtype), prod(shape.dims)
    half = -(-count // 2)
    both = _unit(_numbers(2 * half, dtype == f64), dtype)
    dims = (half,)
    u, v = (build.part(both, at, half) for at in (0, half))
    away = build.pointwise("subtract", build.full(1, dtype, dims), u)  # (0, 1]: it has a logarithm
    scaled = build.pointwise("multiply", build.full(-2, dtype, dims), _of("log", away))
    radius = _of("sqrt", scaled)
    angle = build.pointwise("multiply", build.full(2 * pi, dtype, dims), v)
    sides = [build.pointwise("multiply", radius, _of(f, angle)) for f in ("cosine", "sine")]
    flat = make("concatenate", Shape(dtype, (2 * half,)), sides, dimensions=(0,))
    x = build.reshape(build.part(flat, 0, count), shape.dims)
    m, s = (_everywhere(p, shape, dtype) for p in (mean, deviation))
    return build.convert(build.pointwise("add", m, build.pointwise("multiply", s, x)), shape.dtype)


def _of(opcode: str, x: Instruction) -> Instruction:
    return build.pointwise(opcode, x)


def _integers(low: Instruction, high: Instruction, shape: Shape) -> Instruction:
    """``low + n % (high - low)`` of 64 random bits; truth values are bits."""
    dtype, count = shape.dtype, prod(shape.dims)
    if dtype.kind == "pred":
        bits = build.reshape(_numbers(count, False), shape.dims)
        half = build.full(1 << 31, u32, shape.dims)
        return build.pointwise("compare", bits, half, direction="GE")
    unsigned = BY_NAME[f"u{dtype.bits}"]
    numbers = build.reshape(_numbers(count, True), shape.dims)
    span = build.convert(build.pointwise("subtract", high, low), unsigned)
    rest = build.pointwise("remainder", numbers, _everywhere(span, shape, u64))
    return build.pointwise("add", _everywhere(low, shape, dtype), build.convert(rest, dtype))
