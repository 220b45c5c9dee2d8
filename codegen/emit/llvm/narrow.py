"""Convert floats of 8 bits and fewer, and integers of 2 and 4 bits, to and from computable types.

Each is stored in a byte whose upper bits are zero. All conversions are integer arithmetic on f32's
bits, generic in the format, so that a vector loop converts as many lanes as it has on any machine;
f16 is converted likewise where the machine has no instruction for it. Bits of a byte above the
type's own are ignored when it is read.
"""

from __future__ import annotations

import math

from ....ir.dtypes import DType, f16, f32, s8, s16, s32, u8
from ....ir.formats import FORMATS, FloatFormat
from .builder import IRBuilder
from .core import IRValue

INFINITY = 0x7F800000  # the bits of f32's infinity
NAN = 0x7FC00000
SIGN, MAGNITUDE = 0x80000000, 0x7FFFFFFF


def widen_int(b: IRBuilder, x: IRValue) -> IRValue:
    """Extend an integer of 2 or 4 bits to 8 bits of the same signedness."""
    to = s8 if x.dtype.kind == "signed" else u8
    byte = IRValue(x.text, to, x.lanes, x.depth)
    if to == u8:
        return b.binary("and", byte, b.like((1 << x.dtype.bits) - 1, byte))
    spare = b.like(8 - x.dtype.bits, byte)
    return b.binary("ashr", b.binary("shl", byte, spare), spare)


def narrow_int(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Return the low bits of an integer of 8 bits."""
    kept = b.binary("and", x, b.like((1 << to.bits) - 1, x))
    return IRValue(kept.text, to, kept.lanes, kept.depth)


def widen_float(b: IRBuilder, x: IRValue) -> IRValue:
    """Convert a narrow float, or f16, to f32, which holds every value of it."""
    f = FORMATS[x.dtype]
    code = b.bits(x) if x.dtype == f16 else IRValue(x.text, u8, x.lanes, x.depth)
    bits = b.cast("zext", code, s32)
    if f.special == "scale":
        return _widen_scale(b, bits)
    place = b.like(23 - f.mantissa, bits)
    size = b.binary("and", bits, b.like(f.sign - 1, bits))
    normal = b.binary("shl", size, place)
    normal = b.binary("add", normal, b.like((127 - f.bias) << 23, bits))
    unit = b.like(math.ldexp(1.0, 1 - f.bias - f.mantissa), b.cast("bitcast", size, f32))
    small = b.bits(b.binary("fmul", b.cast("sitofp", size, f32), unit))
    first = b.like(1 << f.mantissa, bits)
    result = b.select(b.compare("slt", size, first), small, normal)
    if f.special in ("ieee", "fn"):
        result = _special(b, f, size, place, result)
    sign = b.binary("and", bits, b.like(f.sign, bits))
    up = b.like(31 - (f.exponent + f.mantissa), bits)
    result = b.binary("or", result, b.binary("shl", sign, up))
    if f.special == "fnuz":
        own = b.binary("and", bits, b.like(2 * f.sign - 1, bits))
        nan = b.compare("eq", own, b.like(f.sign, bits))
        result = b.select(nan, b.like(NAN | SIGN, bits), result)
    return b.from_bits(result)


def _special(
    b: IRBuilder, f: FloatFormat, size: IRValue, place: IRValue, result: IRValue
) -> IRValue:
    """Replace the codes of infinities and NaNs."""
    if f.special == "fn":
        top = b.compare("eq", size, b.like(f.largest + 1, size))
        return b.select(top, b.like(NAN, size), result)
    over = b.compare("sge", size, b.like(f.infinity, size))
    top = b.binary("or", b.binary("shl", size, place), b.like(INFINITY, size))
    return b.select(over, top, result)


def _widen_scale(b: IRBuilder, bits: IRValue) -> IRValue:
    """Return a power of two; the least is a denormal of f32."""
    least = b.compare("eq", bits, b.like(0, bits))
    value = b.binary("shl", bits, b.like(23, bits))
    value = b.select(least, b.like(1 << 22, bits), value)
    nan = b.compare("eq", bits, b.like(0xFF, bits))
    return b.from_bits(b.select(nan, b.like(NAN, bits), value))


def narrow_float(b: IRBuilder, x: IRValue, to: DType) -> IRValue:
    """Round an f32 to a narrow float, or f16, to nearest even.

    Overflow gives infinity, NaN or the largest number, as the format defines.
    """
    f = FORMATS[to]
    bits = b.bits(x)
    size = b.binary("and", bits, b.like(MAGNITUDE, bits))
    if f.special == "scale":
        code = _narrow_scale(b, bits)
    else:
        code = _rounded(b, f, size)
        code = _bounded(b, f, size, code)
        code = _signed(b, f, bits, size, code)
    if to == f16:
        return b.cast("bitcast", b.cast("trunc", code, s16), f16)
    byte = b.cast("trunc", code, s8)
    return IRValue(byte.text, to, byte.lanes, byte.depth)


def _rounded(b: IRBuilder, f: FloatFormat, size: IRValue) -> IRValue:
    """Return the code of a magnitude as if exponents were unbounded."""
    drop = 23 - f.mantissa
    place = b.like(drop, size)
    odd = b.binary("and", b.binary("lshr", size, place), b.like(1, size))
    near = b.binary("add", b.binary("add", size, odd), b.like((1 << (drop - 1)) - 1, size))
    normal = b.binary("lshr", near, place)
    normal = b.binary("sub", normal, b.like((127 - f.bias) << f.mantissa, size))
    # Below the normal numbers a sum with the float whose last bit is the format's rounds.
    value = b.from_bits(size)
    anchor = b.like(math.ldexp(1.0, 24 - f.bias - f.mantissa), value)
    small = b.bits(b.binary("fadd", value, anchor))
    small = b.binary("sub", small, b.bits(anchor))
    least = b.like((128 - f.bias) << 23, size)
    return b.select(b.compare("slt", size, least), small, normal)


def _bounded(b: IRBuilder, f: FloatFormat, size: IRValue, code: IRValue) -> IRValue:
    """Return the code, or the format's overflow code for a magnitude above the largest number."""
    past = {"ieee": f.infinity, "fn": f.largest + 1, "fnuz": f.sign, "finite": f.largest}[f.special]
    over = b.compare("sgt", code, b.like(f.largest, code))
    code = b.select(over, b.like(past, code), code)
    nan = b.compare("sgt", size, b.like(INFINITY, size))
    quiet = {"ieee": f.infinity | (1 << (f.mantissa - 1)), "finite": f.sign}.get(f.special, past)
    return b.select(nan, b.like(quiet, code), code)


def _signed(b: IRBuilder, f: FloatFormat, bits: IRValue, size: IRValue, code: IRValue) -> IRValue:
    down = b.like(31 - (f.exponent + f.mantissa), bits)
    sign = b.binary("and", b.binary("lshr", bits, down), b.like(f.sign, bits))
    if f.special == "fnuz":  # neither zero nor NaN has a sign
        plain = b.binary("and", code, b.like(f.sign - 1, code))
        bare = b.compare("eq", plain, b.like(0, code))
        sign = b.select(bare, b.like(0, sign), sign)
    return b.binary("xor", code, sign)


def _narrow_scale(b: IRBuilder, bits: IRValue) -> IRValue:
    """Return the nearest power of two of a positive number, NaN for all others.

    Ties go to the greater one, and everything between the least one and the next goes to the next,
    as in ml_dtypes and XLA.
    """
    half, denormal = b.like(1 << 22, bits), b.compare("slt", bits, b.like(1 << 23, bits))
    near = b.binary("add", bits, b.select(denormal, b.like((1 << 22) - 1, bits), half))
    code = b.binary("lshr", near, b.like(23, bits))
    # One comparison for 0, negative numbers, infinity and NaN: what is not in 1 ... infinity - 1.
    inside = b.compare("ult", b.binary("sub", bits, b.like(1, bits)), b.like(INFINITY - 1, bits))
    return b.select(inside, code, b.like(0xFF, code))


__all__ = ["narrow_float", "narrow_int", "widen_float", "widen_int"]
