"""Quantized arrays, as torch's quantization of exported graphs and its 8-bit weights have them.

Codes are integers beside scales and zero points, which are numbers or arrays. What torch multiplies
by the inverse of a scale is multiplied here, too. Ends of a range that are those of the codes' type
are left to the conversion, which saturates.
"""

from __future__ import annotations

import numpy as np

from ....dtypes import DType, f32, f64, s8, s32, s64
from ...lax.linear import matmul
from ...lax.reductions import highest, lowest, max_, min_
from ...lax.shaping import full, reshape, transpose
from ...lax.term import Number, Term
from .call import AtenCall, Rows, wide
from .promotion import Operand

EPSILON = float(np.finfo(np.float32).eps)


def _held(x: Term, low: Operand, high: Operand, dtype: DType) -> Term:
    """Whole numbers as codes within a range of the type."""
    for name, end, own in (("maximum", low, lowest(dtype)), ("minimum", high, highest(dtype))):
        if isinstance(end, Term) or end != own:
            x = x.do(name, reshape(end, ()).to(x.dtype) if isinstance(end, Term) else end)
    return x.to(dtype)


def _scalar(c: AtenCall, x: Operand, dtype: DType) -> Term:
    """A number, or an array of one, as a scalar."""
    return reshape(c.term(x, dtype), ())


def _inverse(c: AtenCall, scale: Operand) -> Term:
    """1 / scale in f64, as torch's numbers are, rounded to f32."""
    if isinstance(scale, Term):
        return (1.0 / _scalar(c, scale, f64)).to(f32)
    return full(c.graph, 1.0 / complex(scale).real, f32)


def _quantize(
    c: AtenCall, x: Term, scale: Operand, zero: Operand, low: Operand, high: Operand, dtype: DType
) -> Term:
    codes = (x.to(f32) * _inverse(c, scale)).do("round-nearest-even") + _scalar(c, zero, f32)
    return _held(codes, low, high, dtype)


def _dequantize(
    c: AtenCall,
    x: Term,
    scale: Operand,
    zero: Operand,
    low: Operand,
    high: Operand,
    dtype: DType,
    out_dtype: DType | None = None,
) -> Term:
    kind = out_dtype or f32
    return (x.to(kind) - _scalar(c, zero, kind)) * _scalar(c, scale, kind)


def _along(x: Term, like: Term, axis: int) -> Term:
    """A vector along one dimension of an array."""
    dims = [1] * like.rank
    dims[axis] = x.shape.size
    return reshape(x, dims)


def _quantize_channels(
    c: AtenCall, x: Term, scales: Term, zeros: Term, axis: int, low: int, high: int, dtype: DType
) -> Term:
    inverse, zero = _along(1.0 / scales, x, axis), _along(zeros.to(f32), x, axis)
    codes = (x.to(f32) * inverse.to(f32)).do("round-nearest-even") + zero
    return _held(codes, low, high, dtype)


def _dequantize_channels(
    c: AtenCall,
    x: Term,
    scales: Term,
    zeros: Term | None,
    axis: int,
    low: int,
    high: int,
    dtype: DType,
    out_dtype: DType | None = None,
) -> Term:
    codes = x.to(f32)
    if zeros is not None:
        codes = codes - _along(zeros.to(f32), x, axis)
    return (codes * _along(scales.to(f32), x, axis)).to(out_dtype or f32)


def _quantize_tokens(
    c: AtenCall, x: Term, scales: Term, zeros: Term, low: int, high: int, dtype: DType
) -> Term:
    """The zero point is added before rounding."""
    kind = f64 if f64 in (x.dtype, scales.dtype) else f32
    shifted = x.to(kind) * (1.0 / scales.to(kind)) + zeros.to(kind)
    return _held(shifted.do("round-nearest-even"), low, high, dtype)


def _dequantize_tokens(
    c: AtenCall,
    x: Term,
    scales: Term,
    zeros: Term,
    low: int,
    high: int,
    dtype: DType,
    output_dtype: DType = f32,
) -> Term:
    """In f32, although scales are f64: codes and zero points have few digits."""
    return ((x.to(f32) - zeros.to(f32)) * scales.to(f32)).to(output_dtype)


def _grouped(x: Term, size: int) -> Term:
    """A matrix whose rows are in groups of neighbors, which are rows of their own."""
    return reshape(x, (-1, min(size, x.dims[-1])))


def _quantize_groups(
    c: AtenCall,
    x: Term,
    scales: Term,
    zeros: Term,
    low: int,
    high: int,
    dtype: DType,
    group_size: int,
) -> Term:
    scale, zero = (reshape(t, (-1, 1)) for t in (scales, zeros))
    codes = _quantize_tokens(c, _grouped(x, group_size), scale, zero, low, high, dtype)
    return reshape(codes, x.dims)


def _dequantize_groups(
    c: AtenCall,
    x: Term,
    scales: Term,
    zeros: Term | None,
    low: int,
    high: int,
    dtype: DType,
    group_size: int,
    output_dtype: DType = f32,
) -> Term:
    codes = _grouped(x, group_size).to(f32)
    if zeros is not None:
        codes = codes - reshape(zeros, (-1, 1)).to(f32)
    return reshape(codes * reshape(scales, (-1, 1)).to(f32), x.dims).to(output_dtype)


def _choose(c: AtenCall, x: Term, low: int, high: int, eps: float, dtype: DType) -> list[Term]:
    """The scale and the zero point with which codes cover an array and 0."""
    least, most = min_(wide(x)).do("minimum", 0), max_(wide(x)).do("maximum", 0)
    scale = ((most - least) / float(high - low)).do("maximum", eps)
    zero = low - (least / scale).do("round-nearest-even").to(s32)
    zero = zero.do("maximum", low).do("minimum", high)
    return [reshape(scale, (1,)).to(f64), reshape(zero, (1,)).to(s64)]


def _choose_symmetric(
    c: AtenCall, x: Term, low: int, high: int, eps: float, dtype: DType
) -> list[Term]:
    least, most = min_(wide(x)).do("minimum", 0), max_(wide(x)).do("maximum", 0)
    scale = ((-least).do("maximum", most) / (float(high - low) / 2)).do("maximum", eps)
    middle: Number = 0 if dtype.kind == "signed" else 128
    return [reshape(scale, (1,)).to(f64), full(c.graph, middle, s64, (1,))]


def _choose_tokens(c: AtenCall, x: Term, dtype: DType) -> list[Term]:
    """Scales and zero points of rows; the end that is rounded less decides the zero point."""
    least = min_(x, [-1], keep=True).do("minimum", 0)
    most = max_(x, [-1], keep=True).do("maximum", 0)
    low, high = lowest(s8), highest(s8)
    scale = ((most - least) / 255.0).do("maximum", EPSILON)
    below, above = least / scale, most / scale
    nearer = ((low + below) + (high + above)) > 0
    zero = nearer.select(low - below, high - above)
    zero = zero.do("maximum", low).do("minimum", high).do("round-nearest-even")
    return [scale.to(f64), zero.to(s8).to(s64)]


def _fake(c: AtenCall, x: Term, scale: Operand, zero: Operand, low: int, high: int) -> list[Term]:
    """An array through codes and back, and where it is within their range."""
    return _through_codes(x, _scalar(c, scale, f32), _scalar(c, zero, f32), low, high)


def _fake_channels(
    c: AtenCall, x: Term, scales: Term, zeros: Term, axis: int, low: int, high: int
) -> list[Term]:
    step, shift = (_along(t.to(f32), x, axis) for t in (scales, zeros))
    return _through_codes(x, step, shift, low, high)


def _through_codes(x: Term, step: Term, shift: Term, low: int, high: int) -> list[Term]:
    codes = (x.to(f32) * (1.0 / step)).do("round-nearest-even") + shift
    kept = codes.do("maximum", low).do("minimum", high)
    return [((kept - shift) * step).to(x.dtype), (codes >= low) & (codes <= high)]


def _fake_where_enabled(
    c: AtenCall, x: Term, scale: Term, zero: Term, enabled: Term, low: int, high: int
) -> list[Term]:
    """Where the observer is off, the array as it is."""
    found, inside = _fake(c, x, scale, zero, low, high)
    off = _scalar(c, enabled, f32).equals(0)
    return [off.select(x, found), off | inside]


def _int_mm(c: AtenCall, a: Term, b: Term) -> Term:
    return matmul(a, b, s32)


def _int8pack_mm(c: AtenCall, x: Term, weight: Term, scales: Term) -> Term:
    """Rows of weights as codes with a scale each."""
    floats = weight.to(f32) * reshape(scales.to(f32), (-1, 1))
    return matmul(wide(x), transpose(floats, (1, 0))).to(x.dtype)


_LIBRARY = "quantized_decomposed"

ROWS: Rows = {
    **{f"{_LIBRARY}.quantize_per_tensor.{o}": _quantize for o in ("default", "tensor", "tensor2")},
    **{
        f"{_LIBRARY}.dequantize_per_tensor.{o}": _dequantize
        for o in ("default", "tensor", "tensor2")
    },
    f"{_LIBRARY}.quantize_per_channel.default": _quantize_channels,
    f"{_LIBRARY}.dequantize_per_channel.default": _dequantize_channels,
    f"{_LIBRARY}.quantize_per_token.default": _quantize_tokens,
    f"{_LIBRARY}.dequantize_per_token.default": _dequantize_tokens,
    f"{_LIBRARY}.quantize_per_channel_group.default": _quantize_groups,
    f"{_LIBRARY}.dequantize_per_channel_group.default": _dequantize_groups,
    f"{_LIBRARY}.choose_qparams.tensor": _choose,
    f"{_LIBRARY}.choose_qparams_symmetric.tensor": _choose_symmetric,
    f"{_LIBRARY}.choose_qparams_per_token_asymmetric.default": _choose_tokens,
    "aten.fake_quantize_per_tensor_affine_cachemask.default": _fake,
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": _fake_where_enabled,
    "aten.fake_quantize_per_channel_affine_cachemask.default": _fake_channels,
    "aten._int_mm.default": _int_mm,
    "aten._weight_int8pack_mm.default": _int8pack_mm,
}
