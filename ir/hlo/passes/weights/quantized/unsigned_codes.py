"""Products of signed bytes as products of unsigned by signed ones, for processors that have those.

``dot(x, w)  ->  dot(x + 128, w) - 128 * sums of the columns of w`` for s8 operands, and
convolutions likewise, of constants. The sums of a constant are constants, and flipping the highest
bit of a byte fuses into what makes it. Where w is computed, its sums take a pass over it.
"""

from __future__ import annotations

import numpy as np

from .....dtypes import s8, s32, u8
from ....nodes import HloModule, Instruction, Shape
from ....ops.registry import definition
from ....patterns import build
from ....patterns.match import is_splat, splat
from ....rewrite import constant, make, map_computations, rebuild
from ...canonical.convolution import without_pad
from ...canonical.dot import sum_over
from .padded import with_padding

SIGN = 128
"""The bit by which a byte's unsigned code differs from the signed one of the same rank."""

FEWEST = 16
"""Rows and columns of a product, from which a pass over each of two computed operands pays."""


def unsigned_codes(module: HloModule) -> HloModule:
    """``dot(s8, s8)``  ->  ``dot(u8, s8) - 128 * sums``; convolutions with constants likewise."""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    """Rewrite a canonical product of one group; 32 bits wrap alike on both sides.

    What is then subtracted twice is subtracted at once.
    """
    if i.opcode == "subtract" and i.array.dtype == s32:
        return _at_once(i)
    if i.opcode not in ("dot", "convolution") or i.array.dtype != s32:
        return None
    x, w = i.operands
    if x.array.dtype != s8 or w.array.dtype != s8:
        return None
    if w.opcode != "constant":
        return _computed(i) if i.opcode == "dot" else None
    if (i.opcode == "dot" and i.array.rank != 2) or i.attrs.get("feature_group_count", 1) > 1:
        return None
    codes, attrs = with_padding(i, flipped(x), SIGN)
    product = make(i.opcode, i.shape, (codes, w), **attrs)
    if i.opcode == "convolution":
        product = without_pad(product) or product
    return build.pointwise("subtract", product, sums_of(w, SIGN, i.array.dims))


def _computed(i: Instruction) -> Instruction | None:
    """Rewrite a dot of two computed operands of which both are large enough."""
    x, w = i.operands
    rank = i.array.rank
    if x is w or min(i.array.dims[-2:]) < FEWEST:
        return None
    product = make("dot", i.shape, (flipped(x), w), **i.attrs)
    source, axis = w, rank - 2
    if definition(w.opcode).permutes and w.attrs["dimensions"] == (
        *range(rank - 2),
        rank - 1,
        axis,
    ):
        source, axis = w.operands[0], rank - 1  # so that only the product needs the transpose
    sums = sum_over(build.convert(source, s32), (axis,))
    scaled = build.pointwise("multiply", sums, build.full(SIGN, s32, sums.array.dims))
    places = (*range(rank - 2), rank - 1)
    return build.pointwise("subtract", product, build.broadcast(scaled, places, i.array.dims))


def _at_once(i: Instruction) -> Instruction | None:
    """``(x - constant) - constant``  ->  ``x - constant``, of rows of constants."""
    first, second = i.operands
    if first.opcode != "subtract" or not (_is_row(first.operands[1]) and _is_row(second)):
        return None
    a, b = (x.operands[0].attrs["literal"] for x in (first.operands[1], second))
    row = constant((a.view(np.uint32) + b.view(np.uint32)).view(np.int32))
    spread = build.broadcast(row, second.attrs["dimensions"], i.array.dims)
    return build.pointwise("subtract", first.operands[0], spread)


def _is_row(x: Instruction) -> bool:
    """True for a constant with an element per index of the last dimension."""
    last = (x.array.rank - 1,)
    return (
        x.opcode == "broadcast"
        and x.operands[0].opcode == "constant"
        and x.attrs["dimensions"] == last
    )


def sums_of(weights: Instruction, factor: int, dims: tuple[int, ...]) -> Instruction:
    """Return ``factor`` times the sums of constant codes over all dimensions but the last, in s32,
    for each element of a result of dimensions ``dims``; beyond 32 bits they wrap.
    """
    codes = weights.attrs["literal"]
    sums = codes.reshape(-1, codes.shape[-1]).sum(0, dtype=np.int64) * factor
    wrapped = sums.astype(np.uint64).astype(np.uint32).view(np.int32)
    return build.broadcast(constant(wrapped), (len(dims) - 1,), dims)


def flipped(x: Instruction) -> Instruction:
    """Return s8 codes as u8 codes of the same order, 128 more, or the other way round."""
    other = u8 if x.array.dtype == s8 else s8
    if x.opcode == "bitcast-convert" and x.array.dtype == s8:
        before = x.operands[0]
        if _is_flip(before):
            return before.operands[0]
        if before.opcode == "reshape" and _is_flip(before.operands[0]):
            return build.reshape(before.operands[0].operands[0], x.array.dims)
    if x.opcode == "pad" and (value := splat(x.operands[1])) is not None:
        turned = int(value) + (SIGN if other == u8 else -SIGN)
        inner = flipped(x.operands[0]), build.scalar(turned, other)
        return make("pad", Shape(other, x.array.dims), inner, padding=x.attrs["padding"])
    bit = build.full(-SIGN if x.array.dtype == s8 else SIGN, x.array.dtype, x.array.dims)
    return make("bitcast-convert", Shape(other, x.array.dims), (build.pointwise("xor", x, bit),))


def _is_flip(x: Instruction) -> bool:
    return x.opcode == "xor" and x.array.dtype == u8 and is_splat(x.operands[1], SIGN)
