"""Conversions between element types: HLO ``convert`` and ``bitcast-convert``.

A float becomes an integer by truncation, saturated to the integer's range, NaN becoming 0; a
narrower float is rounded to nearest even, once. ``bf16`` is the upper 16 bits of an f32: it is
widened by a shift, and narrowed by integer arithmetic, which every machine has. f64 becomes a float
of fewer than 32 bits by way of an f32 rounded to odd, so that the second rounding sees whether the
first was inexact; bf16 alone is rounded twice, as XLA's CPU backend does. Types of 8 bits and fewer
are widened before and narrowed after every operation (``emit.llvm.narrow``); so is f16 on an x86
without F16C, for which LLVM would call functions of a compiler's runtime library.
"""

from __future__ import annotations

from ....ir.dtypes import DType, bf16, f16, f32, f64, pred, s8, s16, s32, u8
from ....ir.errors import UnsupportedError
from ....ir.formats import is_narrow
from .builder import SIGNED, IRBuilder
from .core import IRValue, element_type, mangle, register_type
from .f8_pairs import PAIRS, narrow_pairs, widen_pairs
from .fold import wrap
from .narrow import narrow_float, narrow_int, widen_float, widen_int
from .opaque import opaque_number

DIGITS = {f32: 24, f64: 53}  # bits of a significand
QUIET = 0x400000  # the bit of an f32 that makes a NaN quiet


def widen(b: IRBuilder, x: IRValue) -> IRValue:
    """Widen a float of fewer than 32 bits to f32, a narrow integer to 8 bits; return others
    unchanged.
    """
    if b.f8_pairs and x.dtype in PAIRS:
        return widen_pairs(b, x)
    if is_narrow(x.dtype):
        return widen_float(b, x) if x.dtype.is_float else widen_int(b, x)
    if x.literal is not None and x.dtype in (bf16, f16):
        return b.const(x.literal, f32, x.lanes)
    if x.dtype == bf16 and b.nvidia:
        type_ = _native_bf16(x.lanes)
        own = b.pure(f"bitcast {x} to {type_}", bf16, x.lanes, x.depth)
        text = f"fpext {type_} {own.text} to {register_type(f32, x.lanes)}"
        return b.pure(text, f32, x.lanes, x.depth)
    if x.dtype == bf16:
        high = b.binary("shl", b.cast("zext", x, s32), b.const(16, s32, x.lanes))
        return b.cast("bitcast", high, f32)
    if x.dtype == f16:
        return b.cast("fpext", x, f32) if b.has_f16 else widen_float(b, x)
    return x


def narrow(b: IRBuilder, x: IRValue, dtype: DType) -> IRValue:
    """Round an f32 to ``dtype``; return an f64 unchanged."""
    if dtype == bf16:
        return _to_bf16(b, x)
    if b.f8_pairs and dtype in PAIRS:
        return narrow_pairs(b, x, dtype)
    if is_narrow(dtype) or (dtype == f16 and not b.has_f16):
        return narrow_float(b, x, dtype)
    return b.cast("fptrunc", opaque_number(b, x), f16) if dtype == f16 else x


def _to_bf16(b: IRBuilder, x: IRValue) -> IRValue:
    if b.nvidia:
        type_ = _native_bf16(x.lanes)
        near = b.pure(f"fptrunc {x} to {type_}", bf16, x.lanes, x.depth)
        text = f"bitcast {type_} {near.text} to {near.type}"
        return b.pure(text, bf16, x.lanes, x.depth)
    bits = b.bits(x)
    sixteen = b.like(16, bits)
    odd = b.binary("and", b.binary("lshr", bits, sixteen), b.like(1, bits))
    rounded = b.binary("add", b.binary("add", bits, odd), b.like(0x7FFF, bits))
    nan = b.compare("uno", x, x)
    chosen = b.select(nan, b.binary("or", bits, b.like(QUIET, bits)), rounded)
    half = b.cast("trunc", b.binary("lshr", chosen, sixteen), s16)
    return IRValue(half.text, bf16, half.lanes, half.depth)


def _native_bf16(lanes: int) -> str:
    """Return LLVM's own bf16 type, for which a GPU has instructions."""
    return f"<{lanes} x bfloat>" if lanes else "bfloat"


def to_odd(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Convert f64 to f32 with round-to-odd: truncated, the last bit set where that was inexact.

    Rounding the result to ``to`` then equals rounding ``x`` to it directly. f16 ends far above
    f32's denormals; for it the bits of f64 that f32 lacks are combined into one sticky bit.
    """
    if to == f16:
        bits = b.bits(x)
        lacking = b.like((1 << 29) - 1, bits)
        carried = b.binary("add", b.binary("and", bits, lacking), lacking)
        kept = b.binary("and", b.binary("or", bits, carried), b.like(-(1 << 29), bits))
        return b.cast("fptrunc", b.from_bits(kept), f32)
    near = b.cast("fptrunc", x, f32)
    back = b.cast("fpext", near, f64)
    inexact = b.compare("one", back, x)
    size = b.intrinsic("llvm.fabs", back), b.intrinsic("llvm.fabs", x)
    above = b.compare("ogt", *size)
    bits = b.bits(near)
    toward_zero = b.select(above, b.binary("sub", bits, b.like(1, bits)), bits)
    odd = b.binary("or", toward_zero, b.like(1, bits))
    return b.from_bits(b.select(inexact, odd, bits))


def convert(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Return ``x`` converted to element type ``to``."""
    element_type(to)  # refuses types without registers
    if x.dtype == to:
        return x
    whole = x.dtype.is_int or x.dtype == pred
    if isinstance(x.literal, bool | int) and whole and to.is_int:
        return b.const(wrap(int(x.literal), to), to, x.lanes)
    if is_narrow(x.dtype) and x.dtype.is_int:
        return convert(b, widen_int(b, x), to)
    if is_narrow(to) and to.is_int:
        return _to_narrow_int(b, x, to)
    if to == pred:
        wide = widen(b, x)
        return b.compare("une" if wide.dtype.is_float else "ne", wide, b.like(0, wide))
    if x.dtype.is_float:
        return _float_to_float(b, x, to) if to.is_float else _float_to_int(b, x, to)
    if not to.is_float:
        return _int_to_int(b, x, to)
    signed = x.dtype.kind == "signed"
    wide_type = to if to in (f32, f64) else f32
    return narrow(b, b.cast("sitofp" if signed else "uitofp", x, wide_type), to)


def _to_narrow_int(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Convert by way of 8 bits: floats saturate there first, then to the type's own range."""
    eight = convert(b, x, s8 if to.kind == "signed" else u8)
    if x.dtype.is_float:
        eight = _saturate(b, eight, to)
    return narrow_int(b, eight, to)


def _float_to_float(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    if x.dtype == f64 and to in (f32, bf16):
        return narrow(b, b.cast("fptrunc", x, f32), to)
    if x.dtype == f64:
        return narrow(b, to_odd(b, x, to), to)
    wide = widen(b, x)
    return b.cast("fpext", wide, f64) if to == f64 else narrow(b, wide, to)


def _float_to_int(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    wide = widen(b, x)
    if wide.lanes and wide.dtype in DIGITS and not b.nvidia:
        return _clamped(b, wide, to)
    name = "llvm.fptosi.sat" if to.kind == "signed" else "llvm.fptoui.sat"
    bits = max(to.bits, 32)  # narrower results are saturated by hand: LLVM scalarizes them
    result = SIGNED[bits]
    over = f"{mangle(result, x.lanes)}.{mangle(wide.dtype, x.lanes)}"
    value = b.intrinsic(name, wide, result=result, over=over)
    if to.bits < 32:
        return b.cast("trunc", _saturate(b, value, to), to)
    return IRValue(value.text, to, value.lanes, value.depth)


def _clamped(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Convert a vector of floats: it is clamped first, since LLVM scalarizes what saturates."""
    low, high = int_range(to)
    lost = max(0, high.bit_length() - DIGITS[x.dtype])
    least, most = b.like(float(low), x), b.like(float(high >> lost << lost), x)
    x = b.select(b.compare("uno", x, x), b.like(0.0, x), x)
    kept = b.select(b.compare("olt", x, least), least, x)
    kept = b.select(b.compare("ogt", kept, most), most, kept)
    wide = SIGNED[max(to.bits, 32)]
    value = b.cast("fptosi" if low or to.bits < wide.bits else "fptoui", kept, wide)
    if to.bits < wide.bits:
        return b.cast("trunc", value, to)
    if lost:
        value = b.select(b.compare("ogt", x, most), b.like(wrap(high, wide), value), value)
    return IRValue(value.text, to, value.lanes, value.depth)


def _saturate(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Clamp an integer to the range of a type of the same signedness."""
    low, high = int_range(to)
    small, large = b.like(low, x), b.like(high, x)
    compare = ("slt", "sgt") if to.kind == "signed" else ("ult", "ugt")
    x = b.select(b.compare(compare[0], x, small), small, x)
    return b.select(b.compare(compare[1], x, large), large, x)


def int_range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    if dtype.kind == "signed":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _int_to_int(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    have = 1 if x.dtype == pred else x.dtype.bits
    if have == to.bits:
        return IRValue(x.text, to, x.lanes, x.depth, None)
    if have > to.bits:
        return b.cast("trunc", x, to)
    return b.cast("sext" if x.dtype.kind == "signed" else "zext", x, to)


def reinterpret(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Return the bits of ``x`` as an element of type ``to``, of the same width."""
    if pred in (x.dtype, to):
        if x.dtype == to:
            return x
        byte = b.cast("zext", x, s8) if x.dtype == pred else x
        return convert(b, byte, pred) if to == pred else reinterpret(b, byte, to)
    if x.dtype.bits != to.bits:
        raise UnsupportedError(
            f"bitcast-convert of {x.dtype} to {to}", "the widths differ", hint="use equal widths"
        )
    if is_narrow(to) and is_narrow(x.dtype):
        return IRValue(x.text, to, x.lanes, x.depth)
    if x.literal is not None:
        x = b.pure(f"freeze {x}", x.dtype, x.lanes, 0)
    return b.cast("bitcast", x, to)


__all__ = ["convert", "int_range", "narrow", "reinterpret", "widen"]
