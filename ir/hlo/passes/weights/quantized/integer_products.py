"""Products of dequantized operands: integers are multiplied, and scaled afterwards.

``dot((a - z) * s, w * t)  ->  (dot(a, w) - z * sums of w) * (s * t)`` for codes a of 8 bits and
constant codes w with one scale t per column: exact in 32 bits, rounded once. Both become signed
bytes. A convolution likewise, whose padding is then with z; in one of groups codes keep their sign.
Scales and zero points of a that are computed, one or one for each row, are applied likewise. Codes
w that are computed or given are multiplied so if they and a are signed, and z is 0. If only
constant weights are dequantized, their scales move behind the product: ``dot(x, w * t)  ->
dot(x, w) * t``.
"""

from __future__ import annotations

import math

import numpy as np

from .....arrays import Array
from .....dtypes import f32, s8, s32, u8
from ....nodes import HloModule, Instruction, Shape
from ....patterns import build
from ....patterns.ranges import limits
from ....rewrite import constant, make, map_computations, rebuild, with_operands
from .dequantized import Dequantized, dequantized
from .measured import measured
from .padded import with_padding
from .unsigned_codes import SIGN, flipped, sums_of

DEEPEST = 1 << 15
"""Most terms of a sum: the products of two bytes, shifted zero points included, stay in s32."""


def integer_products(module: HloModule) -> HloModule:
    """``dot(dequantized, dequantized)``  ->  ``dequantized dot``; convolutions likewise."""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    """Rewrite a canonical product with codes, channels last, as its right operand."""
    if i.opcode not in ("dot", "convolution") or i.array.dtype != f32:
        return None
    x, w = i.operands
    if (i.opcode == "dot" and i.array.rank != 2) or math.prod(w.array.dims[:-1]) > DEEPEST:
        return None
    right = _signed(dequantized(w))
    if right is None or right.axis not in (None, w.array.rank - 1):
        return None
    left = dequantized(x)
    constant_codes = right.codes.opcode == "constant"
    if left is None and constant_codes and (of_rows := _by_measured(i, right)) is not None:
        return of_rows
    if left is None or left.axis is not None or not _can_pad(i, left):
        return _weights_only(i, right) if constant_codes else None
    if not constant_codes and (left.zero or left.codes.array.dtype != s8):
        return None
    total = build.convert(_product(i, left.codes, right.codes, left.zero), f32)
    return _scaled(total, right.scale * left.scale)


def _can_pad(i: Instruction, x: Dequantized) -> bool:
    """True if a product needs no padding, or there is a code for its zeros."""
    low, high = limits(x.codes.array.dtype)
    return i.opcode == "dot" or low <= x.zero <= high


def _signed(found: Dequantized | None) -> Dequantized | None:
    """Return weights as symmetric codes of s8; None if they are not."""
    if found is None:
        return None
    if found.codes.opcode != "constant":
        return found if found.zero == 0 and found.codes.array.dtype == s8 else None
    codes = found.codes.attrs["literal"].astype(np.int32) - found.zero
    if codes.size == 0 or codes.min() < -SIGN or codes.max() >= SIGN:
        return None
    if found.zero == 0 and found.codes.array.dtype == s8:
        return found
    narrow = constant(codes.astype(np.int8), name=found.codes.name)
    return Dequantized(narrow, 0, found.scale, found.axis)


def _product(i: Instruction, x: Instruction, w: Instruction, zero: int) -> Instruction:
    """Return ``(x - zero) w`` of codes in s32, by a product of signed bytes like ``i``.

    No instruction multiplies bytes of groups. There codes keep their sign, or take the other one if
    their zero point is 0 with it, which is what a window pads with.
    """
    unsigned = x.array.dtype == u8
    other = zero - SIGN if unsigned else zero + SIGN
    if unsigned if i.attrs.get("feature_group_count", 1) == 1 else other == 0:
        x, zero = flipped(x), other
    x, attrs = with_padding(i, x, zero)
    total = make(i.opcode, Shape(s32, i.array.dims), (x, w), **attrs)
    if not zero:
        return total
    return build.pointwise("subtract", total, sums_of(w, zero, total.array.dims))


def _by_measured(i: Instruction, right: Dequantized) -> Instruction | None:
    """Return a dot of codes with computed scales and zero points and constant weights."""
    left = measured(i.operands[0]) if i.opcode == "dot" else None
    if left is None:
        return None
    dims, codes, w = i.array.dims, left.codes, right.codes
    zero = None if left.zero is None else build.convert(left.zero, s32)
    if codes.array.dtype == u8:
        codes = flipped(codes)
        sign = build.full(SIGN, s32, () if zero is None else zero.array.dims)
        zero = build.pointwise("negate", sign) if zero is None else _minus(zero, sign)
    total = make("dot", Shape(s32, dims), (codes, w), **i.attrs)
    if zero is not None:
        each = build.pointwise("multiply", _along_rows(zero, dims), sums_of(w, 1, dims))
        total = _minus(total, each)
    scaled = build.pointwise("multiply", build.convert(total, f32), _along_rows(left.scale, dims))
    return _scaled(scaled, right.scale)


def _minus(x: Instruction, y: Instruction) -> Instruction:
    return build.pointwise("subtract", x, y)


def _along_rows(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Return a number, or one for each row, for all elements of a matrix."""
    return build.broadcast(x, tuple(range(x.array.rank)), dims)


def _weights_only(i: Instruction, right: Dequantized) -> Instruction:
    operands = (i.operands[0], build.convert(right.codes, f32))
    return _scaled(with_operands(i, operands), right.scale)


def _scaled(x: Instruction, scale: Array) -> Instruction:
    """Return ``x`` times a scale, or a scale per index of the last dimension."""
    if scale.size == 1:
        if scale.reshape(())[()] == 1:
            return x
        return build.pointwise("multiply", x, build.full(scale.reshape(()), f32, x.array.dims))
    channel = (x.array.rank - 1,)
    spread = build.broadcast(constant(scale.astype(np.float32)), channel, x.array.dims)
    return build.pointwise("multiply", x, spread)
