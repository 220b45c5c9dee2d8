"""Arithmetic, comparisons, logic and elementary functions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....dtypes import f32, f64, s32, s64
from ....hlo.patterns.ranges import interval
from ....library.checks import ValueCheck
from ...lax.arithmetic import conj, floor_divide, magnitude, remainder, sign, trunc
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, sized, wide
from .promotion import Operand


def _float(opcode: str) -> Operator:
    """A function of floats: other operands are converted to the type of the result."""
    return lambda c, x: x.to(c.dtype).do(opcode)


def _own(opcode: str) -> Operator:
    """A function in the operand's own type."""
    return lambda c, x: x.do(opcode)


def _whole(opcode: str) -> Operator:
    """A rounding, which leaves integers as they are."""
    return lambda c, x: x.do(opcode) if x.dtype.is_float else x


def _binary(opcode: str, boolean: str = "") -> Operator:
    """An operation in the type of the result; another one on truth values."""

    def write(c: AtenCall, x: Operand, y: Operand) -> Term:
        a, b = c.operands(x, y)
        return a.do(boolean if boolean and a.dtype.kind == "pred" else opcode, b)

    return write


def _formula(function: Callable[[Term], Term]) -> Operator:
    """A formula in the type of the result, narrow floats in f32."""
    return lambda c, x: function(wide(x.to(c.dtype)))


def _add(c: AtenCall, x: Operand, y: Operand, alpha: Operand = 1) -> Term:
    a, b = c.operands(x, y)
    b = b if alpha == 1 else b * c.term(alpha, c.dtype)
    return a | b if c.dtype.kind == "pred" else a + b


def _sub(c: AtenCall, x: Operand, y: Operand, alpha: Operand = 1) -> Term:
    a, b = c.operands(x, y)
    return a - (b if alpha == 1 else b * c.term(alpha, c.dtype))


def _rsub(c: AtenCall, x: Operand, y: Operand, alpha: Operand = 1) -> Term:
    return _sub(c, y, x, alpha)


def _div(c: AtenCall, x: Operand, y: Operand, rounding_mode: str | None = None) -> Term:
    a, b = c.operands(x, y)
    match rounding_mode:
        case None:
            return a / b
        case "trunc":
            _check_divisor(c, b)
            return trunc(a / b)
        case _:
            _check_divisor(c, b)
            return floor_divide(a, b)


def _check_divisor(c: AtenCall, y: Term) -> None:
    """Require that whole numbers are not divided by 0."""
    known = interval(y.value)
    if y.dtype.is_int and not (known and (known[0] > 0 or known[1] < 0)):
        c.require(y.differs(0), "a whole number is divided by 0", ValueCheck.DIVISOR)


def _fmod(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    _check_divisor(c, b)
    return a.do("remainder", b)


def _remainder(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    _check_divisor(c, b)
    return remainder(a, b)


def _pow(c: AtenCall, x: Operand, y: Operand) -> Term:
    base, exponent = x, y
    if isinstance(base, Term) and isinstance(exponent, int | float):
        known = _known_power(base.to(c.dtype), float(exponent))
        if known is not None:
            return known
    a, b = c.operands(base, exponent)
    if not a.dtype.is_int:
        return a**b
    return integer_power(a, b)


def _known_power(x: Term, exponent: float) -> Term | None:
    """The powers that torch computes without ``pow``."""
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if not x.dtype.is_float:
        return None
    match exponent:
        case 0.5:
            return x.do("sqrt")
        case -0.5:
            return x.do("rsqrt")
        case -1:
            return 1 / x
        case -2:
            return 1 / (x * x)
        case _:
            return None


def integer_power(base: Term, exponent: Term) -> Term:
    """Integers by repeated squaring; to a negative power 1, -1 or 0, as torch says."""
    odd = (exponent & 1).differs(0)
    total, square, left = base * 0 + 1, base, exponent
    for _ in range(6):
        total = (left & 1).differs(0).select(total * square, total)
        square, left = square * square, left.do("shift-right-logical", 1)
    if base.dtype.kind == "unsigned":
        return total
    flipped = odd.select(base * 0 - 1, base * 0 + 1)
    inverse = base.equals(1).select(1, base.equals(-1).select(flipped, base * 0))
    return (exponent < 0).select(inverse, total)


def _clamp(c: AtenCall, x: Term, low: Operand | None = None, high: Operand | None = None) -> Term:
    found = x.to(c.dtype)
    if low is not None:
        found = found.do("maximum", c.term(low, c.dtype))
    if high is not None:
        found = found.do("minimum", c.term(high, c.dtype))
    return found


def _round(c: AtenCall, x: Term, decimals: int = 0) -> Term:
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return x.do("round-nearest-even")
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return (x * scale).do("round-nearest-even") / scale
    return (x / scale).do("round-nearest-even") * scale


def _sign(c: AtenCall, x: Term) -> Term:
    if x.dtype.kind == "pred":
        return x
    if x.dtype.is_float:  # NaN has no sign
        return (x > 0).select(x.number(1), (x < 0).select(x.number(-1), 0))
    return sign(x)


def _sgn(c: AtenCall, x: Term) -> Term:
    return x.do("sign") if x.dtype.kind == "complex" else _sign(c, x)


def _abs(c: AtenCall, x: Term) -> Term:
    return magnitude(x)


def _fmax(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    best = a.do("maximum", b)
    return a.differs(a).select(b, b.differs(b).select(a, best)) if a.dtype.is_float else best


def _fmin(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    best = a.do("minimum", b)
    return a.differs(a).select(b, b.differs(b).select(a, best)) if a.dtype.is_float else best


def _hypot(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = (t.do("abs") for t in c.operands(x, y))
    large, small = a.do("maximum", b), a.do("minimum", b)
    ratio = small / large.equals(0).select(1, large)
    found = large * (ratio * ratio + 1).do("sqrt")
    return (a.equals(math.inf) | b.equals(math.inf)).select(math.inf, found)


def _angle(c: AtenCall, x: Term) -> Term:
    if x.dtype.kind == "complex":
        return x.do("imag").do("atan2", x.do("real"))
    y = x.to(c.dtype)
    return y.differs(y).select(y, (y < 0).select(y.number(math.pi), 0))


def _real_part(c: AtenCall, x: Term) -> Term:
    return x.do("real") if x.dtype.kind == "complex" else x


def _complex(c: AtenCall, x: Term, y: Term) -> Term:
    return x.do("complex", y)


def _polar(c: AtenCall, size: Term, angle: Term) -> Term:
    return (size * angle.do("cosine")).do("complex", size * angle.do("sine"))


def _cast(c: AtenCall, x: Operand, *rest: object, **named: object) -> Term:
    """A change of type; a complex number loses its imaginary part, a float its fraction."""
    if not isinstance(x, Term):
        return c.term(x, c.dtype)
    if x.dtype == c.dtype:
        return x
    y = x.do("real") if x.dtype.kind == "complex" and c.dtype.kind != "complex" else x
    match c.dtype.name:
        case "f8e4m3fn":  # what is too large becomes the largest number, infinities too
            return y.to(f32).do("maximum", -448).do("minimum", 448)
        case "f8e8m0fnu":  # it has powers of 2 alone, and neither zero nor signs
            return y.to(f32).do("abs").do("maximum", 2.0**-127)
        case _:
            return y


def _addcmul(c: AtenCall, x: Term, a: Term, b: Term, value: Operand = 1) -> Term:
    x, a, b = map(wide, c.operands(x, a, b))
    return x + (a * b if value == 1 else c.term(value, x.dtype) * a * b)


def _multiply_add(c: AtenCall, x: Operand, y: Operand, z: Operand) -> Term:
    a, b, added = map(wide, c.operands(x, y, z))
    return a * b + added


def _addcdiv(c: AtenCall, x: Term, a: Term, b: Term, value: Operand = 1) -> Term:
    x, a, b = map(wide, c.operands(x, a, b))
    return x + (a / b if value == 1 else c.term(value, x.dtype) * (a / b))


def _lerp(c: AtenCall, x: Term, end: Term, weight: Operand) -> Term:
    a, b, w = c.operands(x, end, weight)
    near = a + w * (b - a)
    far = b - (b - a) * (1 - w)
    return (w.do("abs") < 0.5).do("select", near, far)


def _log2(x: Term) -> Term:
    """A whole number for a power of 2, as ``log`` over a constant would not be."""
    y = wide(x)
    if y.dtype.kind == "complex":
        return y.do("log") * (1 / math.log(2))
    mantissa, exponent = _parts(y)
    low = mantissa < math.sqrt(0.5)
    near = low.select(mantissa * 2, mantissa).do("log") * (1 / math.log(2))
    found = near + (exponent - low.to(s32)).to(y.dtype)
    return ((y > 0) & y.do("is-finite")).select(found, y.do("log"))


def _exp2(x: Term) -> Term:
    """A power of 2 for a whole number: only what is left of it is an exponential."""
    y = wide(x)
    if y.dtype.kind == "complex":
        return (y * math.log(2)).do("exponential")
    ints, digits, bias = (s64, 52, 1023) if y.dtype == f64 else (s32, 23, 127)
    whole = y.do("round-nearest-even").do("maximum", -2.0 * bias).do("minimum", 2.0 * bias)
    half = (whole * 0.5).do("floor")

    def power(n: Term) -> Term:
        return (n.to(ints) + bias).do("shift-left", digits).to(y.dtype, "bitcast-convert")

    rest = ((y - whole) * math.log(2)).do("exponential")
    return rest * power(half) * power(whole - half)


def _log10(x: Term) -> Term:
    """A whole number for a power of 10: what is within rounding of one."""
    y = wide(x)
    found = y.do("log") * (1 / math.log(10))
    if y.dtype.kind == "complex":
        return found
    whole = found.do("round-nearest-even")
    rounding = 1.5 * 2.0 ** (-52 if y.dtype == f64 else -23)
    near = (found - whole).do("abs") <= whole.do("abs") * rounding  # false with NaN
    return near.select(whole, found)


def _xlogy(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    found = a.equals(0).select(a * 0, a * b.do("log"))
    return b.differs(b).do("select", b, found)


def _frexp(c: AtenCall, x: Term) -> tuple[Term, Term]:
    return _parts(wide(x))


def _parts(x: Term) -> tuple[Term, Term]:
    """Mantissa in [0.5, 1) and exponent of f32 or f64, by the bits; of what has none, it and 0."""
    ints, digits, bias = (s64, 52, 1022) if x.dtype == f64 else (s32, 23, 126)
    field = (2 * bias + 3) << digits
    tiny = x.do("abs") < 2.0**-bias
    scaled = tiny.select(x * 2.0 ** (digits + 2), x)
    bits = scaled.to(ints, "bitcast-convert")
    exponent = ((bits & field).do("shift-right-logical", digits) - bias).to(s32)
    mantissa = ((bits & ~field) | (bias << digits)).to(x.dtype, "bitcast-convert")
    plain = x.do("is-finite") & x.differs(0)
    exponent = tiny.select(exponent - (digits + 2), exponent)
    return plain.select(mantissa, x), plain.select(exponent, exponent * 0)


def _ldexp(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    return a * b.number(2) ** b


_FLOATS = {
    "exp": "exponential",
    "expm1": "exponential-minus-one",
    "log": "log",
    "log1p": "log-plus-one",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "erfc": "erfc",
    "sigmoid": "logistic",
}
"""Functions of floats that are one operation of HLO, by torch's name."""

_FORMULAS: dict[str, Callable[[Term], Term]] = {
    "reciprocal": lambda x: 1 / x,
    "exp2": _exp2,
    "log2": _log2,
    "log10": _log10,
    "square": lambda x: x * x,
    "positive": lambda x: x,
    "frac": lambda x: x - trunc(x),
    "rad2deg": lambda x: x * (180 / math.pi),
    "deg2rad": lambda x: x * (math.pi / 180),
}


def _both(name: str, operator: Operator) -> Rows:
    """The overloads of a second operand that is an array or a number."""
    return {f"aten.{name}.{kind}": operator for kind in ("Tensor", "Scalar")}


ROWS: Rows = sized(
    {
        **{
            f"{space}.{n}.default": _float(op)
            for n, op in _FLOATS.items()
            for space in ("aten", "prims")
        },
        **{
            f"{space}.{n}.default": _formula(f)
            for n, f in _FORMULAS.items()
            for space in ("aten", "prims")
        },
        **{
            f"{space}.{n}.default": _whole(op)
            for n, op in {"ceil": "ceil", "floor": "floor"}.items()
            for space in ("aten", "prims")
        },
        **_both("add", _add),
        "prims.add.default": _add,
        **_both("sub", _sub),
        "prims.sub.default": _sub,
        **_both("rsub", _rsub),
        **_both("mul", _binary("multiply", "and")),
        "prims.mul.default": _binary("multiply", "and"),
        **_both("div", _div),
        "aten.div.Tensor_mode": _div,
        "aten.div.Scalar_mode": _div,
        "prims.div.default": lambda c, x, y: _div(c, x, y, None if c.dtype.is_float else "trunc"),
        "aten.floor_divide.default": lambda c, x, y: _div(c, x, y, "floor"),
        **_both("fmod", _fmod),
        "prims.fmod.default": _fmod,
        **_both("remainder", _remainder),
        "aten.remainder.Scalar_Tensor": _remainder,
        "prims.remainder.default": _remainder,
        "aten.pow.Tensor_Tensor": _pow,
        "aten.pow.Tensor_Scalar": _pow,
        "aten.pow.Scalar": _pow,
        "prims.pow.default": _pow,
        "aten.maximum.default": _binary("maximum"),
        "aten.minimum.default": _binary("minimum"),
        "prims.maximum.default": _binary("maximum"),
        "prims.minimum.default": _binary("minimum"),
        "aten.fmax.default": _fmax,
        "aten.fmin.default": _fmin,
        "prims.fmax.default": _fmax,
        "prims.fmin.default": _fmin,
        "aten.atan2.default": _binary("atan2"),
        "prims.atan2.default": _binary("atan2"),
        "aten.clamp.default": _clamp,
        "aten.clamp.Tensor": _clamp,
        "aten.clamp_min.default": _clamp,
        "aten.clamp_max.default": lambda c, x, high: _clamp(c, x, None, high),
        "aten.neg.default": _own("negate"),
        "prims.neg.default": _own("negate"),
        "aten._neg_view.default": _own("negate"),
        "aten.abs.default": _abs,
        "prims.abs.default": _abs,
        "aten.sign.default": _sign,
        "prims.sign.default": _sign,
        "aten.sgn.default": _sgn,
        "aten.trunc.default": lambda c, x: trunc(x),
        "prims.trunc.default": lambda c, x: trunc(x),
        "aten.round.default": _round,
        "aten.round.decimals": _round,
        "prims.round.default": _round,
        "aten.hypot.default": _hypot,
        "prims.hypot.default": _hypot,
        "aten.angle.default": _angle,
        "aten.real.default": _real_part,
        "prims.real.default": _real_part,
        "aten.imag.default": _own("imag"),
        "prims.imag.default": _own("imag"),
        "aten._conj.default": _formula(conj),
        "aten._conj_physical.default": _formula(conj),
        "aten.conj_physical.default": _formula(conj),
        "prims.conj.default": _formula(conj),
        "prims.conj_physical.default": _formula(conj),
        "aten.complex.default": _complex,
        "aten.polar.default": _polar,
        "aten._to_copy.default": _cast,
        "aten.to.dtype": _cast,
        "aten.copy.default": lambda c, x, source, *_: _cast(c, source).to(c.dtype).like(c.shape),
        "prims.convert_element_type.default": _cast,
        "prims.device_put.default": _cast,
        "aten.addcmul.default": _addcmul,
        "prims.fma.default": _multiply_add,
        "aten.addcdiv.default": _addcdiv,
        "aten.lerp.Scalar": _lerp,
        "aten.lerp.Tensor": _lerp,
        "aten.xlogy.Tensor": _xlogy,
        "prims.frexp.default": _frexp,
        "aten.frexp.Tensor": _frexp,
        "aten.ldexp.Tensor": _ldexp,
    },
    numbers=True,
)
