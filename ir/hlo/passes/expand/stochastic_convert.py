"""``stochastic-convert`` in terms of ``convert``: the fraction is compared with random bits.

The magnitude is truncated to an integer. It is incremented where the random bits, an unsigned
integer as wide as the operand, are below the fraction times two to the power of that width; then
the sign is restored. Values out of range saturate and NaN becomes 0, as XLA defines it for signed
integers.
"""

from __future__ import annotations

import math

from ....dtypes import f32
from ....formats import is_narrow
from ...nodes import HloModule, Instruction
from ...patterns import build
from ...rewrite import map_computations, rebuild


def expand_stochastic_convert(module: HloModule) -> HloModule:
    """``stochastic-convert(x, bits)``  ->  ``select(x < 0, -n - up, n + up)``"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    if i.opcode != "stochastic-convert":
        return None
    x, bits = i.operands
    old, new, dims = x.array.dtype, i.array.dtype, x.array.dims
    if is_narrow(old):
        x = build.convert(x, f32)
    low, high = -(1 << (new.bits - 1)), (1 << (new.bits - 1)) - 1

    def full(value: float, like: Instruction) -> Instruction:
        return build.full(value, like.array.dtype, dims)

    def compare(a: Instruction, b: Instruction, direction: str) -> Instruction:
        return build.pointwise("compare", a, b, direction=direction)

    magnitude = build.pointwise("abs", x)
    whole = build.convert(magnitude, new)
    part = build.pointwise("subtract", magnitude, build.convert(whole, x.array.dtype))
    for _ in range(2):  # in two steps, since 2**16 exceeds f16
        part = build.pointwise("multiply", part, full(2.0 ** (old.bits // 2), part))
    rises = compare(bits, build.convert(part, bits.array.dtype), "LT")
    one, zero = build.full(1, new, dims), build.full(0, new, dims)
    below = compare(whole, build.full(high, new, dims), "LT")
    up = build.pointwise("select", build.pointwise("and", rises, below), one, zero)
    down = build.pointwise("select", rises, one, zero)
    above_zero = build.pointwise("add", whole, up)
    below_zero = build.pointwise("subtract", build.pointwise("negate", whole), down)
    signed = build.pointwise("select", compare(x, full(0.0, x), "LT"), below_zero, above_zero)
    lowest = compare(x, full(math.ldexp(-1.0, new.bits - 1), x), "LE")
    return build.pointwise("select", lowest, build.full(low, new, dims), signed)
