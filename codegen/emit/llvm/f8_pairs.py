"""Conversions of f8e4m3fn and f8e5m2 by a GPU's instructions, which take two numbers at a time.

The instruction to narrow rounds to nearest even, but gives the largest number for what is beyond
it, infinity included. HLO has NaN there, or infinity, so these codes are put in afterwards.
A simulation calls models of the instructions, which saturate as these do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ....ir.dtypes import BY_NAME, DType, f16, f32, s8, s16, s32
from ....ir.formats import FORMATS, FloatFormat
from .builder import IRBuilder
from .core import Function, IRValue, register_type
from .narrow import narrow_float, widen_float

PAIRS: Mapping[DType, str] = MappingProxyType(
    {BY_NAME["f8e4m3fn"]: "e4m3x2", BY_NAME["f8e5m2"]: "e5m2x2"}
)
"""The types, and what the instructions call two of them."""


def widen_pairs(b: IRBuilder, x: IRValue) -> IRValue:
    """Convert to f32; every number is one of f16 as well."""
    name = _known(b, f"{PAIRS[x.dtype]}.to.f16x2.rn", "<2 x half>", "i16 %pair", x.dtype)
    codes = IRValue(x.text, s8, x.lanes, x.depth)
    if not x.lanes:
        pair = b.cast("zext", codes, s16)
        both = b.pure(f"call <2 x half> @{name}({pair})", f16, 2, x.depth)
        one = b.pure(f"extractelement {both}, i64 0", f16, 0, x.depth)
        return b.cast("fpext", one, f32)
    lanes = x.lanes + x.lanes % 2
    halves = _pieces(b, _resized(b, codes, lanes), lanes // 2, s16)
    wide = [b.pure(f"call <2 x half> @{name}({h})", f16, 2, x.depth) for h in halves]
    words = [b.pure(f"bitcast {w} to i32", s32, 0, x.depth) for w in wide]
    return b.cast("fpext", _resized(b, _joined(b, words, f16), x.lanes), f32)


def narrow_pairs(b: IRBuilder, x: IRValue, to: DType, within: bool = False) -> IRValue:
    """Round an f32 to nearest even; beyond the largest number is what the format has there.

    Where all numbers are ``within`` the format's range, the instruction is enough; NaN then loses
    its sign.
    """
    name = _known(b, f"ff.to.{PAIRS[to]}.rn", "i16", "float %high, float %low", to)
    lanes = max(1, x.lanes)
    items = [x] if not x.lanes else [b.lane(x, n) for n in range(lanes)]
    items += [b.const(0.0, f32)] * (lanes % 2)
    pairs = [
        b.pure(f"call i16 @{name}({high}, {low})", s16, 0, x.depth)
        for low, high in zip(items[::2], items[1::2], strict=True)
    ]
    if not x.lanes:
        codes = b.cast("trunc", pairs[0], s8)
    else:
        codes = _resized(b, _joined(b, pairs, s8), lanes)
    fixed = codes if within else _beyond(b, x, codes, FORMATS[to])
    return IRValue(fixed.text, to, fixed.lanes, fixed.depth)


def _known(b: IRBuilder, name: str, result: str, params: str, dtype: DType) -> str:
    """Declare an instruction, or define its model; return the name to call."""
    if b.nvidia:
        b.declare(f"llvm.nvvm.{name}", result, [p.split()[0] for p in params.split(", ")])
        return f"llvm.nvvm.{name}"
    symbol = f"nw_{name}"
    if symbol not in b.declarations:
        inner = IRBuilder(b.target)
        inner.function = Function(symbol, params, b.target)
        inner.function.returns = result
        made = _widened(inner, dtype) if "%pair" in params else _saturated(inner, dtype)
        inner.function.epilogue = [f"  ret {made}"]
        own = inner.function.text("nounwind", "internal ")
        b.declarations |= inner.declarations | {symbol: own}
    return symbol


def _widened(b: IRBuilder, dtype: DType) -> IRValue:
    """Return the two codes of ``%pair`` as f16."""
    codes = b.pure("bitcast i16 %pair to <2 x i8>", dtype, 2, 0)
    return narrow_float(b, widen_float(b, codes), f16)


def _saturated(b: IRBuilder, to: DType) -> IRValue:
    """Return ``%low`` and ``%high`` as a pair of codes; NaN is 0x7F for both types."""
    f, pair = FORMATS[to], "<2 x float>"
    first = b.pure(f"insertelement {pair} poison, float %low, i64 0", f32, 2, 0)
    x = b.pure(f"insertelement {pair} {first.text}, float %high, i64 1", f32, 2, 0)
    near = IRValue(narrow_float(b, x, to).text, s8, 2, 0)
    size = b.intrinsic("llvm.fabs", x)
    sign = b.binary("and", near, b.like(-128, near))
    most = b.binary("or", sign, b.like(f.largest, near))
    codes = b.select(b.compare("ogt", size, b.like(last_number(f), size)), most, near)
    codes = b.select(b.compare("uno", x, x), b.like(0x7F, near), codes)
    return b.pure(f"bitcast {codes} to i16", s16, 0, 0)


def _beyond(b: IRBuilder, x: IRValue, codes: IRValue, f: FloatFormat) -> IRValue:
    """Put in the codes of what rounds to no number, and of NaN, with their signs."""
    size = b.intrinsic("llvm.fabs", x)
    over = b.compare("ugt", size, b.like(last_number(f), size))
    down = b.like(31 - (f.exponent + f.mantissa), b.bits(x))
    sign = b.binary("and", b.binary("lshr", b.bits(x), down), b.like(f.sign, b.bits(x)))
    special = b.like(f.largest + 1, sign)
    if f.special == "ieee":
        nan = b.like(f.infinity | 1 << (f.mantissa - 1), sign)
        special = b.select(b.compare("uno", x, x), nan, special)
    marked = b.cast("trunc", b.binary("or", sign, special), s8)
    return b.select(over, marked, codes)


def last_number(f: FloatFormat) -> float:
    """Return the largest f32 that rounds to a number of the format: ties go to even codes."""
    step = 2.0 ** ((f.largest >> f.mantissa) - f.bias - f.mantissa)
    tie = (2**f.mantissa + f.largest % 2**f.mantissa + 0.5) * step
    return float(tie if f.largest % 2 == 0 else np.nextafter(np.float32(tie), np.float32(0)))


def _pieces(b: IRBuilder, x: IRValue, count: int, dtype: DType) -> list[IRValue]:
    """Return the bits of a vector as so many numbers of a wider type."""
    whole = b.pure(f"bitcast {x} to {register_type(dtype, count)}", dtype, count, x.depth)
    return [b.lane(whole, n) for n in range(count)]


def _joined(b: IRBuilder, words: list[IRValue], to: DType) -> IRValue:
    """Return the bits of integers, the first lowest, as a vector of twice as many numbers."""
    type_, found, depth = register_type(words[0].dtype, len(words)), "poison", 0
    for n, word in enumerate(words):
        depth = max(depth, word.depth)
        text = f"insertelement {type_} {found}, {word}, i64 {n}"
        found = b.pure(text, word.dtype, 0, depth).text
    lanes = 2 * len(words)
    return b.pure(f"bitcast {type_} {found} to {register_type(to, lanes)}", to, lanes, depth)


def _resized(b: IRBuilder, x: IRValue, lanes: int) -> IRValue:
    """Return the first lanes of a vector, or all of it and lanes of any value."""
    if x.lanes == lanes:
        return x
    return b.shuffle(x, [n if n < x.lanes else -1 for n in range(lanes)])
