"""f32 versions, without f64, of functions that otherwise go through it: many GPUs are slow in f64.

They need a fused multiply-add. Sines reduce their argument as ``math.quadrant`` does, with 96 bits
of 2/pi; powers take the logarithm as a double word of f32.
"""

from __future__ import annotations

import math

from ....ir.dtypes import f32, f64, s32
from ...emit.llvm.builder import by_lane
from ...emit.llvm.core import IRValue, literal_text, round_f32
from ...emit.llvm.template import render
from ..arithmetic.arith_value import ArithValue, horner
from ..arithmetic.double_log import DoubleLog
from ..arithmetic.double_word import two_sum
from ..arithmetic.quadrant import is_odd, signed
from .exp import exp_double_word
from .log import log, log_special_cases, power, power_special_cases

_LN2 = round_f32(math.log(2))
_LOG = DoubleLog(
    place=23,
    root_half_bits=0x3F3504F3,
    least_normal=2.0**-126,
    shift=24,
    ln2=(_LN2, round_f32(math.log(2) - _LN2)),
    thirds=(round_f32(2 / 3), round_f32(2 / 3 - round_f32(2 / 3))),
    series=tuple(2 / (2 * k + 5) for k in range(6)),
)
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(1, 5))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(2, 6))
_NAME, _RESULT = "nw_quadrant_single", "{ i32, float, float }"
_TWO_OVER_PI = (
    0x0,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)


def quadrant_text() -> str:
    """Return the definitions of the function and of its table."""
    names = {
        "count": len(_TWO_OVER_PI) + 1,
        "words": ", ".join(f"i32 {w - (w >> 31 << 32)}" for w in (*_TWO_OVER_PI, 0)),
        "unit": literal_text(math.pi / 2 * 2.0**-62, f64),
        "eighth": literal_text(round_f32(math.pi / 4), f32),
    }
    return render(__package__, "without_f64.ll", names=names)


def _quadrant(x: ArithValue) -> tuple[ArithValue, ArithValue, ArithValue]:
    """Return the quadrant modulo 4 and the reduced argument in two parts, for ``x >= 0``."""
    b = x.b
    b.declarations[_NAME] = quadrant_text()
    b.declare("llvm.fshl.i32", "i32", ["i32"] * 3)

    def part(k: int, v: IRValue) -> IRValue:
        call = b.pure(f"call {_RESULT} @{_NAME}({v})", f32, 0, v.depth)
        dtype = f32 if k else s32
        return b.pure(f"extractvalue {_RESULT} {call.text}, {k}", dtype, 0, call.depth)

    number, high, low = (by_lane(b, (x.v,), lambda v, k=k: part(k, v)) for k in range(3))
    return ArithValue(b, number), ArithValue(b, high), ArithValue(b, low)


def _sine_and_cosine(x: ArithValue) -> tuple[ArithValue, ArithValue, ArithValue]:
    number, r, rest = _quadrant(x.abs())
    z = r * r
    sine = (r * z).fma(horner(z, *_SINE), rest) + r
    half = z * 0.5
    near = 1.0 - half
    lost = (-r).fma(rest, (1.0 - near) - half)
    cosine = near + (z * z).fma(horner(z, *_COSINE), lost)
    return number, sine, cosine


def sin(x: ArithValue) -> ArithValue:
    """Return the sine."""
    number, sine, cosine = _sine_and_cosine(x)
    result = signed(is_odd(number).where(cosine, sine), number)
    return (x.bits() < 0).where(-result, result)


def cos(x: ArithValue) -> ArithValue:
    """Return the cosine."""
    number, sine, cosine = _sine_and_cosine(x)
    return signed(is_odd(number).where(sine, cosine), number + 1)


def log1p(x: ArithValue) -> ArithValue:
    """Return log(1 + x), corrected for the rounding of the sum."""
    total = two_sum(x, 1.0)
    result = log(total.high, total.low.over(total.high))
    result = log_special_cases(total.high, result)
    return x.equals(0.0).where(x, result)


def pow(x: ArithValue, y: ArithValue) -> ArithValue:
    """Return x**y with the special cases of IEEE 754's pow."""
    return power(x, y, _power_magnitude)


def _power_magnitude(a: ArithValue, y: ArithValue) -> ArithValue:
    exponent = _LOG.power_exponent(a, y)
    return power_special_cases(a, y, exp_double_word(exponent.high, exponent.low))
