"""Products of f16 as products of f32, for processors that multiply f32 alone.

``dot(f16, f16)  ->  dot(f32, f32)`` of converted operands, whose sums are f32 in both cases. What
makes the rows then writes them as f32, where the kernel would convert an element of each row in
every step, one by one. A constant is converted in the kernel, in whole vectors.
"""

from __future__ import annotations

import math

from .....dtypes import f16, f32
from ....nodes import HloModule, Instruction, Shape
from ....patterns import build
from ....rewrite import make, map_computations, rebuild

FEWEST = 8
"""Rows of a product, from which they are worth a pass over them."""

FEWEST_COMPUTED = 64
"""The same where the other operand is no constant, and takes a pass as well."""


def wide_products(module: HloModule) -> HloModule:
    """``dot(f16, f16)``  ->  ``dot(f32, f32)``; convolutions likewise"""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    """Rewrite a canonical product; its result is rounded to its own type, once as before."""
    if i.opcode not in ("dot", "convolution") or i.array.dtype not in (f16, f32):
        return None
    x, w = i.operands
    if x.array.dtype != f16 or w.array.dtype != f16:
        return None
    rows = i.array.dims[-2] if i.opcode == "dot" else math.prod(i.array.dims[:-1])
    if rows < (FEWEST if w.opcode == "constant" else FEWEST_COMPUTED):
        return None
    operands = build.convert(x, f32), build.convert(w, f32)
    wide = make(i.opcode, Shape(f32, i.array.dims), operands, name=i.name, **i.attrs)
    return build.convert(wide, i.array.dtype)
