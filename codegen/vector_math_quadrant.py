"""The multiple of pi/2 next to an f64 of any size, and what is left, as a function in LLVM's text.

After Payne and Hanek (1983), in integers: of the bits of 2/pi only those count that make the
product with the argument's 53 bits a number modulo 4. They are 192, taken from a table, and the
product is right to 2**-137.
"""

from __future__ import annotations

from ..ir.dtypes import f64, s64
from .llvm_ir_build import Builder
from .llvm_ir_core import Value, literal_text
from .vector_math_num import Num

_NAME, _RESULT = "nw_quadrant", "{ i64, double, double }"
_TWO_OVER_PI = (  # after a word of zeros, so that small arguments find their bits too
    0x0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D,
)  # fmt: skip
_TEXT = """
@nw_two_over_pi = internal unnamed_addr constant [{count} x i64] [{words}]
define internal {result} @{name}(double %x) {{
  %bits = bitcast double %x to i64
  %biased = lshr i64 %bits, 52
  %large = icmp ugt i64 %biased, 1013
  %field = select i1 %large, i64 %biased, i64 1013
  %fraction = and i64 %bits, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  %first = sub i64 %field, 1013
  %word = lshr i64 %first, 6
  %capped = call i64 @llvm.umin.i64(i64 %word, i64 17)
  %by = and i64 %first, 63
  %at = getelementptr [{count} x i64], ptr @nw_two_over_pi, i64 0, i64 %capped
  %at1 = getelementptr i64, ptr %at, i64 1
  %at2 = getelementptr i64, ptr %at, i64 2
  %at3 = getelementptr i64, ptr %at, i64 3
  %t0 = load i64, ptr %at
  %t1 = load i64, ptr %at1
  %t2 = load i64, ptr %at2
  %t3 = load i64, ptr %at3
  %w0 = call i64 @llvm.fshl.i64(i64 %t0, i64 %t1, i64 %by)
  %w1 = call i64 @llvm.fshl.i64(i64 %t1, i64 %t2, i64 %by)
  %w2 = call i64 @llvm.fshl.i64(i64 %t2, i64 %t3, i64 %by)
  %mw = zext i64 %m to i128
  %w1w = zext i64 %w1 to i128
  %w2w = zext i64 %w2 to i128
  %p0 = mul i64 %m, %w0
  %p1 = mul i128 %mw, %w1w
  %p2 = mul i128 %mw, %w2w
  %carry = lshr i128 %p2, 64
  %middle = add i128 %p1, %carry
  %p0w = zext i64 %p0 to i128
  %p0s = shl i128 %p0w, 64
  %turn = add i128 %middle, %p0s
  %half = shl i128 1, 125
  %up = add i128 %turn, %half
  %q = lshr i128 %up, 126
  %quarters = shl i128 %q, 126
  %left = sub i128 %turn, %quarters
  %topw = ashr i128 %left, 64
  %top = trunc i128 %topw to i64
  %low = trunc i128 %left to i64
  %high = sitofp i64 %top to double
  %back = fptosi double %high to i64
  %lost = sub i64 %top, %back
  %lostf = sitofp i64 %lost to double
  %lowf = uitofp i64 %low to double
  %lows = fmul double %lowf, {below}
  %rest = fadd double %lostf, %lows
  %sum = fadd double %high, %rest
  %diff = fsub double %sum, %high
  %over = fsub double %rest, %diff
  %f = fmul double %sum, {unit}
  %g = fmul double %over, {unit}
  %r = fmul double %f, {right}
  %minus = fneg double %r
  %err = call double @llvm.fma.f64(double %f, double {right}, double %minus)
  %err1 = call double @llvm.fma.f64(double %f, double {right_rest}, double %err)
  %err2 = call double @llvm.fma.f64(double %g, double {right}, double %err1)
  %q64 = trunc i128 %q to i64
  %near = fcmp ole double %x, {eighth}
  %number = select i1 %near, i64 0, i64 %q64
  %r.near = select i1 %near, double %x, double %r
  %e.near = select i1 %near, double 0.0, double %err2
  %finite = fcmp olt double %x, 0x7FF0000000000000
  %r.all = select i1 %finite, double %r.near, double 0x7FF8000000000000
  %a = insertvalue {result} poison, i64 %number, 0
  %b = insertvalue {result} %a, double %r.all, 1
  %c = insertvalue {result} %b, double %e.near, 2
  ret {result} %c
}}
"""


def _text() -> str:
    def number(x: float) -> str:
        return literal_text(x, f64)

    return _TEXT.format(
        name=_NAME,
        result=_RESULT,
        count=len(_TWO_OVER_PI),
        words=", ".join(f"i64 {w - (w >> 63 << 64)}" for w in _TWO_OVER_PI),
        below=number(2.0**-64),
        unit=number(2.0**-62),
        right=number(1.5707963267948966),
        right_rest=number(6.123233995736766e-17),
        eighth=number(0.7853981633974483),
    )


def quadrant(x: Num) -> tuple[Num, Num, Num]:
    """The quadrant's number modulo 4, and the rest in two parts, of one ``x >= 0``."""
    b, v = x.b, x.v
    b.declarations[_NAME] = _text()
    b.declare("llvm.fma.f64", "double", ["double"] * 3)
    b.declare("llvm.umin.i64", "i64", ["i64"] * 2)
    b.declare("llvm.fshl.i64", "i64", ["i64"] * 3)
    call = b.pure(f"call {_RESULT} @{_NAME}({v})", f64, 0, v.depth)
    return (
        Num(b, _part(b, call, 0)),
        Num(b, _part(b, call, 1)),
        Num(b, _part(b, call, 2)),
    )


def _part(b: Builder, call: Value, k: int) -> Value:
    text = f"extractvalue {_RESULT} {call.text}, {k}"
    return b.pure(text, f64 if k else s64, 0, call.depth)
