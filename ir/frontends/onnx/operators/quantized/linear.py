"""QuantizeLinear and its inverse, in the forms that the passes for quantized graphs recognize.

``DequantizeLinear`` is ``(f32(x) - zero) * scale``, so that products of such arrays multiply their
integers (``ir/hlo/passes/weights/quantized``).
"""

from __future__ import annotations

import numpy as np

from .....dtypes import DType, f32, to_numpy, u8
from .....hlo.patterns.match import is_splat
from ....lax import reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator


def along(value: Term, x: Term, axis: int, block: int) -> Term:
    """A scale or zero point, to be broadcast to ``x``: one, one per index of ``axis``, or one for
    each block of so many of them."""
    if value.shape.size == 1:
        return shaping.reshape(value, ())
    if value.rank == 1 and not block:
        dims = [1] * x.rank
        dims[axis] = value.dims[0]
        return shaping.reshape(value, dims)
    dims = list(value.dims)
    apart = shaping.expand_dims(value, [axis + 1])
    wide = shaping.broadcast_to(apart, (*dims[: axis + 1], block, *dims[axis + 1 :]))
    dims[axis] *= block
    return shaping.slice_in_dim(shaping.reshape(wide, dims), 0, x.dims[axis], axis)


def is_zero(x: Term | None, code: int = 0) -> bool:
    """True if zero points are absent, or known to be ``code``, all of them."""
    if x is None:
        return code == 0
    if is_splat(x.value, code):
        return True
    known = x.known()
    return known is not None and bool((known.astype(np.float32) == code).all())


def quantized(x: Term, zero: Term | None, dtype: DType, saturate: bool = True) -> Term:
    """``x``, which is scaled already, rounded to even, shifted, and held within ``dtype``."""
    if dtype.is_int:
        x = x.do("round-nearest-even")
    if zero is not None and not is_zero(zero):
        x = x + zero.to(x.dtype)
    if dtype.is_int and dtype.bits >= 8:
        return x.to(dtype)  # which saturates
    if dtype.is_int:
        low, high = reductions.lowest(dtype), reductions.highest(dtype)
        return x.do("maximum", low).do("minimum", high).to(dtype)
    if saturate:
        import ml_dtypes

        most = float(ml_dtypes.finfo(to_numpy(dtype)).max)
        x = x.do("maximum", -most).do("minimum", most)
    return x.to(dtype)


def _common(a: DType, b: DType) -> DType:
    """The type that an array and its scale are divided in."""
    return a if a == b and a.is_float else f32


def _axis(node: Node, rank: int, scale: Term) -> int:
    """The dimension that scales belong to; any for a single one."""
    given = node.int_("axis", 1)
    return node.dimension(given, rank) if scale.shape.size > 1 else 0


@operator("QuantizeLinear", since=10, sized=True)
@operator("QuantizeLinear", domain="com.microsoft", sized=True)
def quantize_linear(node: Node) -> Term:
    """Per tensor, per index of an axis, or in blocks; to integers of 2 to 16 bits, f8 and f4."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    axis = _axis(node, x.rank, scale)
    block = node.int_("block_size", 0)
    number = node.int_("output_dtype", 0)
    dtype = zero.dtype if zero is not None else node.dtype("output_dtype") if number else u8
    kind = node.dtype("precision") if node.int_("precision", 0) else _common(x.dtype, scale.dtype)
    part = x.to(kind) / along(scale.to(kind), x, axis, block)
    shift = None if is_zero(zero) or zero is None else along(zero.to(kind), x, axis, block)
    return quantized(part, shift, dtype, bool(node.int_("saturate", 1)))


@operator("DequantizeLinear", since=10, sized=True)
@operator("DequantizeLinear", domain="com.microsoft", sized=True)
def dequantize_linear(node: Node) -> Term:
    """Computed in f32, then converted to the scale's type or the one that is asked for."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    axis = _axis(node, x.rank, scale)
    block = node.int_("block_size", 0)
    wide = x.to(f32)
    if zero is not None and not is_zero(zero):
        wide = wide - along(zero.to(f32), x, axis, block)
    out = node.dtype("output_dtype") if node.int_("output_dtype", 0) else scale.dtype
    return (wide * along(scale.to(f32), x, axis, block)).to(out)


def dynamic_range(x: Term) -> tuple[Term, Term]:
    """Return the scale, f32, and the zero point, u8, with which 0 to 255 cover an array and 0."""
    low = reductions.min_(x).do("minimum", 0)
    high = reductions.max_(x).do("maximum", 0)
    scale = (high - low) / 255
    safe = scale.equals(0).select(1, scale)
    zero = (-low / safe).do("maximum", 0).do("minimum", 255).do("round-nearest-even")
    return scale, zero.to(u8)


@operator("DynamicQuantizeLinear", since=11, sized=True)
def dynamic_quantize_linear(node: Node) -> tuple[Term, ...]:
    """The codes, their scale and their zero point."""
    x = node.input(0)
    scale, zero = dynamic_range(x)
    safe = scale.equals(0).select(1, scale)
    return quantized(x / safe, zero, u8), scale, zero
