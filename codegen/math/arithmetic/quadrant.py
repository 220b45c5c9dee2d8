"""Payne-Hanek argument reduction of an f64 of any size, as a function in LLVM text.

After Payne and Hanek (1983), in integers: only those bits of 2/pi are used that contribute to the
product with the argument's 53 bits modulo 4. They are 192, taken from a table, and the product is
correct to 2**-137.
"""

from __future__ import annotations

from ....ir.dtypes import f64, s64
from ...emit.llvm.builder import by_lane
from ...emit.llvm.core import IRValue, literal_text
from ...emit.llvm.template import render
from .arith_value import ArithValue
from .double_word import DoubleWord

_NAME, _RESULT = "nw_quadrant", "{ i64, double, double }"
_TWO_OVER_PI = (  # after a word of zeros, so that small arguments find their bits too
    0x0,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
)


def quadrant_text() -> str:
    """Return the definitions of the function and of its table."""

    def number(x: float) -> str:
        return literal_text(x, f64)

    names = {
        "count": len(_TWO_OVER_PI),
        "words": ", ".join(f"i64 {w - (w >> 63 << 64)}" for w in _TWO_OVER_PI),
        "below": number(2.0**-64),
        "unit": number(2.0**-62),
        "right": number(1.5707963267948966),
        "right_rest": number(6.123233995736766e-17),
        "eighth": number(0.7853981633974483),
    }
    return render(__package__, "quadrant.ll", names=names)


def quadrant(x: ArithValue) -> tuple[ArithValue, DoubleWord]:
    """Return the quadrant modulo 4 and the reduced argument for ``x >= 0``, lane by lane."""
    b = x.b
    b.declarations[_NAME] = quadrant_text()
    b.declare("llvm.fma.f64", "double", ["double"] * 3)
    b.declare("llvm.umin.i64", "i64", ["i64"] * 2)
    b.declare("llvm.fshl.i64", "i64", ["i64"] * 3)

    def part(k: int, v: IRValue) -> IRValue:
        call = b.pure(f"call {_RESULT} @{_NAME}({v})", f64, 0, v.depth)
        text = f"extractvalue {_RESULT} {call.text}, {k}"
        return b.pure(text, f64 if k else s64, 0, call.depth)

    number, high, low = (
        ArithValue(b, by_lane(b, (x.v,), lambda v, k=k: part(k, v))) for k in range(3)
    )
    return number, DoubleWord(high, low)


def is_odd(number: ArithValue) -> ArithValue:
    """Return the predicate "in quadrant 1 or 3", where sine and cosine change places."""
    return (number & 1).equals(1)


def signed(value: ArithValue, number: ArithValue) -> ArithValue:
    """Negate the value in quadrants 2 and 3."""
    return (number & 2).equals(2).where(-value, value)
