"""Products of signed bytes as products of unsigned by signed ones, for processors that have those.

``dot(x, constant)  ->  dot(x + 128, constant) - 128 * sums of the constant`` for s8 operands. The
sum of a column is a constant, and flipping the highest bit of a byte fuses into what makes it.
"""

from __future__ import annotations

import numpy as np

from ....dtypes import s8, s32, u8
from ...nodes import HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import is_splat
from ...rewrite import constant, make, map_computations, rebuild, with_operands

SIGN = 128
"""The bit by which a byte's unsigned code differs from the signed one of the same rank."""


def unsigned_codes(module: HloModule) -> HloModule:
    """``dot(s8, constant s8)``  ->  ``dot(u8, constant s8) - constant``"""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    """Rewrite a canonical dot ``[m, k] x [k, n]``; 32 bits wrap alike on both sides."""
    if i.opcode != "dot" or i.array.rank != 2 or i.array.dtype != s32:
        return None
    x, w = i.operands
    if x.array.dtype != s8 or w.array.dtype != s8 or w.opcode != "constant":
        return None
    product = with_operands(i, (flipped(x), w))
    sums = w.attrs["literal"].sum(0, dtype=np.int64) * SIGN
    wrapped = sums.astype(np.uint64).astype(np.uint32).view(np.int32)
    return build.pointwise(
        "subtract", product, build.broadcast(constant(wrapped), (1,), i.array.dims)
    )


def flipped(x: Instruction) -> Instruction:
    """Return s8 codes as u8 codes of the same order, 128 more, or the other way round."""
    other = u8 if x.array.dtype == s8 else s8
    if x.opcode == "bitcast-convert" and x.array.dtype == s8 and _is_flip(x.operands[0]):
        return x.operands[0].operands[0]
    bit = build.full(-SIGN if x.array.dtype == s8 else SIGN, x.array.dtype, x.array.dims)
    turned = build.pointwise("xor", x, bit)
    return make("bitcast-convert", Shape(other, x.array.dims), (turned,))


def _is_flip(x: Instruction) -> bool:
    return x.opcode == "xor" and x.array.dtype == u8 and is_splat(x.operands[1], SIGN)
