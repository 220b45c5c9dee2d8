"""Codes that are dequantized and quantized alike are the same codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....dtypes import f32, s8, u8
from ...nodes import HloModule, Instruction
from ...patterns.match import splat
from ...rewrite import map_computations, rebuild
from .dequantized import dequantized


@dataclass(frozen=True, slots=True)
class Quantized:
    """The codes ``rint(value / scale) + zero``, held within their type."""

    value: Instruction
    scale: np.float32
    zero: int


def requantized(module: HloModule) -> HloModule:
    """``quantize(dequantize(q))``  ->  ``q``, for one scale and zero point

    A code times the scale, divided by the scale, is the code but for two roundings, which rounding
    to a whole number undoes.
    """
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    found = quantized(i)
    codes = dequantized(found.value) if found is not None else None
    if found is None or codes is None or codes.codes.array.dtype != i.array.dtype:
        return None
    if codes.axis is not None or codes.zero != found.zero or codes.scale[0] != found.scale:
        return None
    return codes.codes if codes.codes.array.dims == i.array.dims else None


def quantized(i: Instruction) -> Quantized | None:
    """Match codes of 8 bits by one scale, which is positive and normal."""
    if i.opcode != "convert" or i.array.dtype not in (s8, u8):
        return None
    x, zero = i.operands[0], 0
    if x.opcode == "add" and (by := splat(x.operands[1])) is not None and x.array.dtype == f32:
        if by != np.rint(by) or abs(by) > 255:
            return None
        x, zero = x.operands[0], int(by)
    if x.opcode != "round-nearest-even" or x.operands[0].opcode != "divide":
        return None
    value, scale = x.operands[0].operands
    by = splat(scale)
    if by is None or scale.array.dtype != f32 or not np.finfo(np.float32).tiny <= by < 1e30:
        return None
    return Quantized(value, np.float32(by), zero)
