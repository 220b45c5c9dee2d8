"""Codes that are dequantized and quantized alike are the same codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .....dtypes import f32, s8, u8
from ....nodes import HloModule, Instruction
from ....patterns.match import splat
from ....rewrite import map_computations, rebuild
from .dequantized import dequantized

NEAR = 2.0**-12
"""Relative difference of two scales, by which no code of 8 bits is another one."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """The codes ``rint(value / scale) + zero``, held within their type."""

    value: Instruction
    scale: float
    zero: int


def requantized(module: HloModule) -> HloModule:
    """``quantize(dequantize(q))``  ->  ``q``, for one zero point and scale

    A code times the scale, divided by the scale or nearly the same, is nearly the code, and
    rounded to a whole number it is the code.
    """
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    found = quantized(i)
    codes = dequantized(found.value) if found is not None else None
    if found is None or codes is None or codes.codes.array.dtype != i.array.dtype:
        return None
    if codes.axis is not None or codes.zero != found.zero:
        return None
    if not abs(float(codes.scale[0]) / found.scale - 1) <= NEAR:  # NaN is not near
        return None
    return codes.codes if codes.codes.array.dims == i.array.dims else None


def quantized(i: Instruction) -> Quantized | None:
    """Match codes of 8 bits by one scale, which is positive and of moderate size."""
    if i.opcode != "convert" or i.array.dtype not in (s8, u8):
        return None
    x, zero = i.operands[0], 0
    if x.opcode == "add" and (by := splat(x.operands[1])) is not None and x.array.dtype == f32:
        if by != np.rint(by) or abs(by) > 255:
            return None
        x, zero = x.operands[0], int(by)
    if x.opcode != "round-nearest-even" or x.operands[0].opcode not in ("divide", "multiply"):
        return None
    value, scale = x.operands[0].operands
    by = splat(scale)
    if by is None or scale.array.dtype != f32 or not 1e-30 < by < 1e30:
        return None
    return Quantized(value, float(by if x.operands[0].opcode == "divide" else 1 / by), zero)
