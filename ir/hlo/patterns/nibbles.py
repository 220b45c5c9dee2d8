"""Codes of 4 bits, two in a byte: the lower halves are the first half of a block of rows."""

from __future__ import annotations

import numpy as np

from ...arrays import Array
from ...dtypes import u8
from ..nodes import Instruction
from . import build
from .match import is_splat

BITS = 4
MASK = (1 << BITS) - 1


def packed(codes: Array) -> Array:
    """Return codes ``[block, terms, columns]`` below 16 as bytes ``[block, terms / 2, columns]``.

    ``terms`` is even.
    """
    half = codes.shape[1] // 2
    return np.asarray(codes[:, :half] | codes[:, half:] << BITS, np.uint8)


def unpacked(bytes_: Instruction) -> Instruction:
    """Return bytes ``[block, terms / 2, columns]`` as codes ``[block, terms, columns]`` of u8."""
    blocks, half, columns = bytes_.array.dims
    dims = (blocks, 2, half, columns)
    amount = build.pointwise("multiply", build.iota(u8, dims, 1), build.full(BITS, u8, dims))
    both = build.broadcast(bytes_, (0, 2, 3), dims)
    shifted = build.pointwise("shift-right-logical", both, amount)
    codes = build.pointwise("and", shifted, build.full(MASK, u8, dims))
    return build.reshape(codes, (blocks, 2 * half, columns))


def nibbles_of(x: Instruction) -> Instruction | None:
    """Return the bytes that ``unpacked`` took apart, also before its reshape or converted after it;
    else None.
    """
    while x.opcode in ("reshape", "convert"):
        x = x.operands[0]
    if x.opcode != "and" or x.array.dtype != u8 or not is_splat(x.operands[1], MASK):
        return None
    shifted = x.operands[0]
    if shifted.opcode != "shift-right-logical" or shifted.operands[0].opcode != "broadcast":
        return None
    both, amount = shifted.operands
    if amount.opcode != "multiply" or not is_splat(amount.operands[1], BITS):
        return None
    counted = amount.operands[0]
    along_second = counted.opcode == "iota" and counted.attrs["iota_dimension"] == 1
    places = tuple(both.attrs["dimensions"]) == (0, 2, 3)
    return both.operands[0] if along_second and places else None
