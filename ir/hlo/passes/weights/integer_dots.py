"""Dots of dequantized operands: integers are multiplied, and scaled afterwards.

``dot((a - z) * s, w * t)  ->  (dot(a, w) - z * sums of w) * (s * t)`` for codes a of 8 bits and
constant codes w with one scale t per column: exact in 32 bits, rounded once. Both become signed
bytes. If only the weights are dequantized, their scales move behind the product: ``dot(x, w * t)
->  dot(x, w) * t``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ....dtypes import f32, s8, s32, u8
from ...nodes import HloModule, Instruction, Shape
from ...patterns import build
from ...rewrite import constant, make, map_computations, rebuild
from .dequantized import Dequantized, dequantized
from .unsigned_codes import SIGN, flipped

Array: TypeAlias = np.ndarray[Any, Any]

DEEPEST = 1 << 15
"""Most terms of a sum: the products of two bytes, shifted zero points included, stay in s32."""


def integer_dots(module: HloModule) -> HloModule:
    """``dot(dequantized, dequantized)``  ->  ``dequantized dot``"""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    """Rewrite a canonical dot ``[m, k] x [k, n]`` with constant codes as its right operand."""
    if i.opcode != "dot" or i.array.rank != 2 or i.operands[0].array.dims[1] > DEEPEST:
        return None
    x, w = i.operands
    if i.array.dtype != f32:
        return None
    right = _signed(dequantized(w))
    if right is None or right.axis not in (None, 1):
        return None
    left = dequantized(x)
    if left is None or left.axis is not None:
        return _weights_only(i, right)
    total = build.convert(_product(left.codes, right.codes, left.zero), f32)
    return _scaled(total, right.scale * left.scale)


def _signed(found: Dequantized | None) -> Dequantized | None:
    """Return weights as symmetric constant codes of s8; None if they are not, or not constant."""
    if found is None or found.codes.opcode != "constant":
        return None
    codes = found.codes.attrs["literal"].astype(np.int32) - found.zero
    if codes.size == 0 or codes.min() < -SIGN or codes.max() >= SIGN:
        return None
    if found.zero == 0 and found.codes.array.dtype == s8:
        return found
    narrow = constant(codes.astype(np.int8), name=found.codes.name)
    return Dequantized(narrow, 0, found.scale, found.axis)


def _product(x: Instruction, w: Instruction, zero: int) -> Instruction:
    """Return ``(x - zero) w`` of codes in s32, by a product of signed bytes."""
    if x.array.dtype == u8:
        x, zero = flipped(x), zero - SIGN
    shape = Shape(s32, (x.array.dims[0], w.array.dims[1]))
    sides: dict[str, Any] = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    total = make("dot", shape, (x, w), **sides)
    if not zero:
        return total
    sums = w.attrs["literal"].sum(0, dtype=np.int64) * zero
    below = build.broadcast(constant(sums.astype(np.int32)), (1,), shape.dims)
    return build.pointwise("subtract", total, below)


def _weights_only(i: Instruction, right: Dequantized) -> Instruction:
    operands = (i.operands[0], build.convert(right.codes, f32))
    return _scaled(make("dot", i.array, operands, name=i.name, **i.attrs), right.scale)


def _scaled(x: Instruction, scale: Array) -> Instruction:
    """Return ``x`` times a scale, or a scale per column."""
    if scale.size == 1:
        if scale.reshape(())[()] == 1:
            return x
        return build.pointwise("multiply", x, build.full(scale.reshape(()), f32, x.array.dims))
    spread = build.broadcast(constant(scale.astype(np.float32)), (1,), x.array.dims)
    return build.pointwise("multiply", x, spread)
