"""Recognition of constant weights that are codes with a scale for each block of their rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .....arrays import Array
from .....dtypes import f32
from ....nodes import Instruction, Shape
from ....patterns import build
from ....patterns.match import moves, splat
from ....patterns.nibbles import MASK
from ....patterns.ranges import limits
from ....rewrite import make
from ...simplify.fold_constants import is_known, value_of

SHORTEST, LONGEST = 8, 256
"""Terms of a block that are worth a scale of their own, and from which another is no loss."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The f32 weights ``(codes[k, n] - zero[k // size, n]) * scale[k // size, n]``.

    The codes are u8. ``scale`` and ``zero`` have a row for each block of ``size`` codes in a
    column, the last of which may be shorter; ``zero`` may be one number for all.
    """

    codes: Array
    zero: Array
    scale: Array
    size: int

    @property
    def nbytes(self) -> int:
        """The bytes of codes, zero points and scales."""
        each = 2 if self.packs else 1
        return self.codes.size // each + self.scale.nbytes + self.zero.nbytes * (self.zero.size > 1)

    @property
    def packs(self) -> bool:
        """True if two codes fit in a byte."""
        return self.size % 2 == 0 and int(self.codes.max(initial=0)) <= MASK

    def centered(self) -> Array | None:
        """Return ``codes - zero`` as s8; None where these are not such numbers."""
        terms = len(self.codes)
        zero = np.repeat(self.zero, self.size, 0)[:terms] if len(self.zero) > 1 else self.zero
        found = self.codes - zero
        narrow = found.astype(np.int8)
        return narrow if np.array_equal(narrow, found) else None


@dataclass(frozen=True, slots=True)
class _Coded:
    """The array ``(codes - zero) * scale`` of parts that depend on constants only."""

    codes: Instruction
    zero: Instruction | None = None
    scale: Instruction | None = None


def in_blocks(w: Instruction, excess_precision: bool = True) -> Blocks | None:
    """Return a matrix of floats ``[k, n]`` as codes and scales; None if it is anything else.

    A scale of a whole column is that of each of some blocks. With ``excess_precision`` floats of 16
    bits may have been rounded at each step; the codes and scales are not. Weights that were rounded
    to 8 bits are not taken: that rounding is meant.
    """
    if w.opcode == "constant" or w.array.rank != 2 or not w.array.size:
        return None
    parts = _parts(w, 16 if excess_precision else f32.bits) if is_known(w) else None
    if parts is None or parts.scale is None:
        return None
    scale, zero = value_of(build.convert(parts.scale, f32)), _zero(parts.zero)
    size = _length(math.gcd(_steady(scale), _steady(zero)), len(scale))
    if size < SHORTEST:
        return None
    codes = _unsigned(value_of(parts.codes))
    if codes is None:
        return None
    return Blocks(codes[0], zero[::size] - np.float32(codes[1]), scale[::size], size)


def _length(size: int, terms: int) -> int:
    """Return the terms of a block where so many are alike, or all if that is 0.

    Longer blocks are cut, so that there are several.
    """
    if not size:
        return min(LONGEST, terms // 2 // SHORTEST * SHORTEST)
    while size > LONGEST and size % 2 == 0:
        size //= 2
    return size


def _unsigned(codes: Array) -> tuple[Array, int] | None:
    """Return codes as u8, and what to add to make the given ones of them; None if they are wider.

    Those of 4 bits are below 16.
    """
    low, high = int(codes.min()), int(codes.max())
    for least, bits in ((0, 4), (-8, 4), (0, 8), (-128, 8)):
        if least <= low and high < least + (1 << bits):
            return (codes.astype(np.int16) - np.int16(least)).astype(np.uint8), least
    return None


def _zero(zero: Instruction | None) -> Array:
    """Return the zero points of all elements, or one for all."""
    if zero is None:
        return np.zeros((1, 1), np.float32)
    one = splat(zero)
    found = (
        value_of(build.convert(zero, f32))
        if one is None
        else np.asarray(one, np.float32).reshape(1, 1)
    )
    return found[:1, :1] if (found == found[0, 0]).all() else found


def _steady(x: Array) -> int:
    """Return the number of rows that are alike in each block of them; 0 if all are alike."""
    changed = np.flatnonzero((x[1:] != x[:-1]).any(axis=1)) + 1
    return int(np.gcd.reduce(changed)) if len(changed) else 0


def _parts(x: Instruction, bits: int) -> _Coded | None:
    """Return the parts of an array that was computed in floats of at least so many ``bits``."""
    if x.array.dtype.bits < bits:
        return None
    match x.opcode:
        case "convert" if x.operands[0].array.dtype.is_int:
            return _shifted(x.operands[0])
        case "convert" if x.operands[0].array.dtype.is_float:
            return _parts(x.operands[0], bits)
        case "subtract":
            found = _parts(x.operands[0], bits)
            if found is None or found.zero is not None or found.scale is not None:
                return None
            return replace(found, zero=x.operands[1])
        case "multiply":
            for coded, scale in (x.operands, x.operands[::-1]):
                found = _parts(coded, bits)
                if found is not None and found.scale is None:
                    return replace(found, scale=scale)
            return None
        case _ if moves(x):
            found = _parts(x.operands[0], bits)
            return None if found is None else _moved(x, found)
        case _:
            return None


def _shifted(x: Instruction) -> _Coded:
    """Return whole numbers; a difference that does not wrap, as codes and zero points."""
    if x.opcode != "subtract" or _may_wrap(x):
        return _Coded(x)
    codes, zero = x.operands
    return _Coded(codes, build.convert(zero, f32))


def _may_wrap(difference: Instruction) -> bool:
    """True if a difference of some of these integers would not fit in their type."""
    a, b = map(value_of, difference.operands)
    low, high = limits(difference.array.dtype)
    return int(a.min()) - int(b.max()) < low or int(a.max()) - int(b.min()) > high


def _moved(x: Instruction, p: _Coded) -> _Coded:
    """Return the parts of an array after an operation that places its elements."""
    codes, zero, scale = (
        None if part is None else _like(x, part) for part in (p.codes, p.zero, p.scale)
    )
    assert codes is not None
    return _Coded(codes, zero, scale)


def _like(x: Instruction, of: Instruction) -> Instruction:
    return make(x.opcode, Shape(of.array.dtype, x.array.dims), (of,), **x.attrs)
