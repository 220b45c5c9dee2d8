"""Element-wise functions of values, by the names that NumPy gives them."""

from __future__ import annotations

from ..ir.dtypes import pred
from ..ir.errors import ArgumentError
from ..ir.loop import build
from ..ir.loop.nodes import Cast, Op
from .tensor import (
    DTypeLike,
    Number,
    Scalar,
    Value,
    as_dtype,
    build_value,
    coerce,
    constant,
    joined,
    operation,
)


def const(value: Number, dtype: DTypeLike) -> Value:
    """Return a literal of an element type."""
    return Value(constant(value, as_dtype(dtype)))


def cast(x: Value, dtype: DTypeLike) -> Value:
    """Return ``x`` converted as by HLO ``convert``."""
    return Value(build.cast(x.expr, as_dtype(dtype)), x.tensors)


def bitcast(x: Value, dtype: DTypeLike) -> Value:
    """Return the bits of ``x`` as another type of the same width (HLO ``bitcast-convert``)."""
    to = as_dtype(dtype)
    if to.bits != x.dtype.bits:
        raise ArgumentError(f"cannot take the bits of {x.dtype} for {to}", "the widths differ")
    return Value(Cast(x.expr, to, bits=True), x.tensors)


def select(cond: Value, a: Scalar, b: Scalar) -> Value:
    """Return ``a`` where ``cond`` (pred) holds, else ``b``."""
    if cond.dtype != pred:
        raise ArgumentError(f"the condition of select is {cond.dtype}", "it must be pred")
    x, y = coerce("select", (a, b))
    return Value(Op("select", (cond.expr, x.expr, y.expr), x.dtype), joined((cond, x, y)))


def clamp(low: Scalar, x: Value, high: Scalar) -> Value:
    """Return ``min(max(x, low), high)``."""
    return operation("clamp", low, x, high)


def equal(a: Scalar, b: Scalar) -> Value:
    """Return ``a == b`` as a pred value."""
    return operation("eq", a, b)


def not_equal(a: Scalar, b: Scalar) -> Value:
    """Return ``a != b`` as a pred value."""
    return operation("ne", a, b)


def maximum(a: Scalar, b: Scalar) -> Value:
    """Return the larger of two values; NaN if either is."""
    return operation("maximum", a, b)


def minimum(a: Scalar, b: Scalar) -> Value:
    """Return the smaller of two values; NaN if either is."""
    return operation("minimum", a, b)


def power(a: Scalar, b: Scalar) -> Value:
    """Return ``a`` raised to the power ``b``."""
    return operation("power", a, b)


def remainder(a: Scalar, b: Scalar) -> Value:
    """Return the remainder with the sign of ``a`` (C's ``%`` and ``fmod``)."""
    return operation("remainder", a, b)


def atan2(y: Scalar, x: Scalar) -> Value:
    """Return the angle of the point ``(x, y)``."""
    return operation("atan2", y, x)


class _Function:
    """An element-wise function of one argument, whose name here may differ from its opcode."""

    def __init__(self, opcode: str) -> None:
        self.opcode = opcode
        self.__doc__ = f"HLO ``{opcode}`` of a value."

    def __call__(self, x: Value) -> Value:
        if not isinstance(x, Value):
            raise ArgumentError(f"`{self.opcode}` of {x!r}", hint="te.const(value, dtype)")
        return build_value(self.opcode, (x,))

    def __repr__(self) -> str:
        return f"<te function {self.opcode}>"


abs = _Function("abs")
acos = _Function("acos")
acosh = _Function("acosh")
asin = _Function("asin")
asinh = _Function("asinh")
atan = _Function("atan")
atanh = _Function("atanh")
cbrt = _Function("cbrt")
ceil = _Function("ceil")
cos = _Function("cosine")
cosh = _Function("cosh")
erf = _Function("erf")
erfc = _Function("erfc")
exp = _Function("exponential")
expm1 = _Function("exponential-minus-one")
floor = _Function("floor")
isfinite = _Function("is-finite")
log = _Function("log")
log1p = _Function("log-plus-one")
popcount = _Function("popcnt")
rint = _Function("round-nearest-even")
round = _Function("round-nearest-afz")
rsqrt = _Function("rsqrt")
sigmoid = _Function("logistic")
sign = _Function("sign")
sin = _Function("sine")
sinh = _Function("sinh")
sqrt = _Function("sqrt")
tan = _Function("tan")
tanh = _Function("tanh")
