"""Pointwise operations that are not in the element-wise table: compare, conversions, parts."""

from __future__ import annotations

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...dtypes import DType, from_numpy, to_numpy
from ...elementwise import DIRECTIONS, TABLE
from ...formats import FORMATS
from ..nodes import Instruction
from .values import CallEvaluator, Value


def compare(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Compare elements in the given direction; with ``TOTALORDER``, floats in total order."""
    a, b = args
    if i.attrs.get("type") == "TOTALORDER" and a.dtype.kind not in "biu":
        a, b = total_order(a), total_order(b)
    return np.asarray(TABLE[DIRECTIONS[i.attrs["direction"]]].numpy(a, b))


def total_order(a: Array) -> Array:
    """Map floats to integers in IEEE 754's total order: -NaN < -inf < .. < -0 < 0 < .. < inf < NaN.

    Unsigned formats are their own order. The integers have the width of the stored float.
    """
    dtype = from_numpy(a.dtype)
    if dtype in FORMATS and not FORMATS[dtype].sign:
        return np.asarray(a).view(np.uint8)
    bits = np.asarray(a).view(f"i{a.dtype.itemsize}")
    if dtype.bits < 8:
        bits = bits << (8 - dtype.bits)
    top = bits.dtype.type(np.iinfo(bits.dtype).max)
    return np.asarray(bits ^ ((bits >> (8 * a.dtype.itemsize - 1)) & top))


def conversion(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Convert to the result's element type, by the rules of ``ir.conversion``."""
    return convert(args[0], to_numpy(i.array.dtype))


def bitcast_convert(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Reinterpret bits as the result's element type; a change of width changes the rank."""
    return reinterpret(args[0], i.operands[0].array.dtype, i.array.dtype)


def reinterpret(value: Array, old: DType, new: DType) -> Array:
    """Reinterpret bits as another type; a narrower one adds a last dimension, a wider one drops it.

    ``[..]`` of ``old`` becomes ``[.., old.bits / new.bits]`` of ``new``, and the reverse.
    """
    a, to = np.ascontiguousarray(value).reshape(value.shape), to_numpy(new)
    have, want = old.bits, new.bits
    if have == want:
        return a.view(to)
    if have < min(8, want):
        a = packed(a.view(np.uint8), have, min(8, want))
    if have < want <= 8:
        return a[..., 0].view(to)
    if want < 8:
        return unpacked(a[..., None].view(np.uint8), min(8, have), want).view(to)
    return a[..., None].view(to) if have > want else a.view(to)[..., 0]


def packed(codes: Array, bits: int, whole: int) -> Array:
    """Pack codes of ``bits`` bits along the last dimension into bytes of ``whole`` bits, the first
    code in the lowest bits."""
    parts = codes.reshape(*codes.shape[:-1], -1, whole // bits)
    shifted = (parts & ((1 << bits) - 1)) << np.arange(0, whole, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(shifted, axis=-1))


def unpacked(codes: Array, whole: int, bits: int) -> Array:
    """Split each byte of ``whole`` bits into codes of ``bits`` bits; the inverse of ``packed``."""
    parts = codes[..., None] >> np.arange(0, whole, bits, dtype=np.uint8)
    return (parts & ((1 << bits) - 1)).reshape(*codes.shape[:-1], -1)


def stochastic_convert(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Round to an integer at random: up in magnitude where the random bits, read as a fraction of
    1, are below the fractional part."""
    x, bits = args[0].astype(np.float64), args[1].astype(np.uint64)
    magnitude = np.abs(x)
    whole = np.floor(magnitude)
    part = np.ldexp(np.where(np.isfinite(x), magnitude - whole, 0.0), args[1].dtype.itemsize * 8)
    rounded = whole + (bits < part.astype(np.uint64))
    return convert(np.copysign(rounded, x), to_numpy(i.array.dtype))


def reduce_precision(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Round to fewer exponent and mantissa bits, in the same element type.

    Floats of 8 bits or fewer are rounded in f16, or f32 for wider exponents, so that their
    denormals are kept.
    """
    exponent, mantissa = i.attrs["exponent_bits"], i.attrs["mantissa_bits"]
    a = args[0]
    if a.dtype.itemsize > 1:
        return with_fewer_bits(a, exponent, mantissa)
    wide = np.float16 if FORMATS[i.array.dtype].exponent <= 5 else np.float32
    return convert(with_fewer_bits(a.astype(wide), exponent, mantissa), a.dtype)


def with_fewer_bits(a: Array, exponent: int, mantissa: int) -> Array:
    """Round floats to fewer bits: to nearest even, overflow to infinity, underflow to zero.

    Values too small for the target's normal range become (signed) zeros, as XLA defines it.
    """
    own = FORMATS[from_numpy(a.dtype)]
    u = np.dtype(f"u{a.dtype.itemsize}").type
    bits = a.view(u)
    sign = bits & u(own.sign)
    if mantissa < own.mantissa:
        drop = own.mantissa - mantissa
        last = (bits >> u(drop)) & u(1)
        bits = (bits + last + u((1 << (drop - 1)) - 1)) & ~u((1 << drop) - 1)
    if exponent < own.exponent:
        infinity, bias = u(own.infinity), (1 << (exponent - 1)) - 1
        field = bits & infinity
        over = field > u((own.bias + bias) << own.mantissa)
        under = field <= u((own.bias - bias) << own.mantissa)
        bits = np.where(over, sign | infinity, np.where(under, sign, bits))
    return np.where(np.isnan(a), a, np.asarray(bits).view(a.dtype))


def complex_(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Join real and imaginary parts."""
    out = np.empty(np.broadcast_shapes(*(a.shape for a in args)), to_numpy(i.array.dtype))
    out.real, out.imag = args
    return out


def real(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the real part of complex elements; real elements are returned as they are."""
    return args[0].real.copy() if args[0].dtype.kind == "c" else args[0]


def imag(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the imaginary part, which is 0 for real elements."""
    if args[0].dtype.kind == "c":
        return args[0].imag.copy()
    return convert(np.zeros(args[0].shape, np.float32), args[0].dtype)
