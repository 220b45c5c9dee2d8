"""Products whose result is of another kind: sums are of the factors' kind, then converted.

Converting the factors instead would cut each of them to an integer or to a truth value.
"""

from __future__ import annotations

from dataclasses import replace

from ....dtypes import DType, f32, f64, s32
from ...nodes import HloModule, Instruction
from ...ops.definition import NarrowPolicy
from ...ops.registry import definition
from ...patterns import build
from ...rewrite import make, map_computations, rebuild


def expand_product_kinds(module: HloModule) -> HloModule:
    """``s32 dot(f32, x)``  ->  ``convert(f32 dot(f32, x))``"""
    return map_computations(module, lambda c: rebuild(c, _rule))


def _rule(i: Instruction) -> Instruction | None:
    if definition(i.opcode).narrow is not NarrowPolicy.SUMMED:
        return None
    dtype = _summed([x.array.dtype for x in i.operands], i.array.dtype)
    if dtype is None:
        return None
    shape = replace(i.array, dtype=dtype)
    whole = make(i.opcode, shape, i.operands, metadata=i.metadata, **i.attrs)
    return build.convert(whole, i.array.dtype)


def _summed(factors: list[DType], result: DType) -> DType | None:
    """Return the type of the sums; None if that of the result does."""
    if not result.is_int and result.kind != "pred":
        return None
    if any(t.is_float for t in factors):
        return f64 if f64 in factors else f32
    if result.is_int or all(t.kind == "pred" for t in factors):
        return None
    return max((s32, *factors), key=lambda t: t.bits)
