"""torch's rules for the common element type of operands."""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias

from ....dtypes import BY_NAME, DType, bf16, c64, c128, f32, f64, pred, s16, s32, s64, u8
from ...lax.term import Number, Term

Operand: TypeAlias = "Term | Number"

_CATEGORIES = ("pred", "int", "float", "complex")


def category(dtype: DType) -> int:
    """Return the rank of a kind: truth values, integers, floats, complex numbers."""
    return _CATEGORIES.index("int" if dtype.is_int else dtype.kind)


def common_type(*operands: Operand) -> DType:
    """Return what torch computes with: arrays decide, then scalar arrays, then Python's numbers.

    A lower rank of these decides only if its category is higher.
    """
    arrays = [x.dtype for x in operands if isinstance(x, Term) and x.rank]
    scalars = [x.dtype for x in operands if isinstance(x, Term) and not x.rank]
    numbers = [number_type(x) for x in operands if not isinstance(x, Term)]
    ranks = [reduce(wider, group) for group in (arrays, scalars, numbers) if group]
    return reduce(_stronger, ranks)


def number_type(number: Number) -> DType:
    """Return the type of a Python number as torch takes it."""
    match number:
        case bool():
            return pred
        case int():
            return s64
        case float():
            return f32
        case _:
            return c64


def wider(a: DType, b: DType) -> DType:
    """Return the type that holds the values of two, as ``torch.promote_types``."""
    if a == b:
        return a
    low, high = sorted((a, b), key=category)
    if category(low) < category(high):
        return _complex_of(low, high) if high.kind == "complex" else high
    if {a, b} == {BY_NAME["f16"], bf16}:
        return f32
    if high.is_int and low.kind != high.kind:
        signed, unsigned = (low, high) if low.kind == "signed" else (high, low)
        return signed if signed.bits > unsigned.bits else _signed_over(unsigned)
    return max(a, b, key=lambda d: d.bits)


def _signed_over(unsigned: DType) -> DType:
    return s16 if unsigned == u8 else s32 if unsigned.bits == 16 else s64


def _complex_of(low: DType, high: DType) -> DType:
    return c128 if low == f64 else high


def _stronger(first: DType, second: DType) -> DType:
    """The type of a higher rank, unless the lower rank's category is above."""
    if category(second) <= category(first):
        return first
    if second.kind == "complex" and first.is_float:
        return c128 if first == f64 else c64
    return second if first == pred else wider(first, second)
