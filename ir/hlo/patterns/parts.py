"""Whole numbers of 24 bits in two arrays: the upper 16 bits, signed, and the lower 8."""

from __future__ import annotations

from ...dtypes import f32, s16, u8
from ..nodes import Instruction
from . import build
from .match import is_splat

LOWER = 8
"""Bits of the lower part."""


def joined(upper: Instruction, lower: Instruction) -> Instruction:
    """Return ``upper * 256 + lower`` as f32, which holds each such number, of s16 and u8."""
    dims = upper.array.dims
    shifted = build.pointwise(
        "multiply", build.convert(upper, f32), build.full(1 << LOWER, f32, dims)
    )
    return build.pointwise("add", shifted, build.convert(lower, f32))


def parts_of(x: Instruction) -> tuple[Instruction, Instruction] | None:
    """Return the upper and lower part that ``joined`` made one of; None for anything else."""
    if x.opcode != "add" or x.operands[0].opcode != "multiply":
        return None
    (shifted, factor), low = x.operands[0].operands, x.operands[1]
    if shifted.opcode != "convert" or low.opcode != "convert" or x.array.dtype != f32:
        return None
    parts = shifted.operands[0], low.operands[0]
    if [p.array.dtype for p in parts] != [s16, u8] or not is_splat(factor, 1 << LOWER):
        return None
    return parts
