"""Elementary functions on vectors: what is called by the name of an element-wise operation.

LLVM has none for vectors. For f32 each is straight-line code over ``Num`` (an operand with
Python's operators), scalar or of any width; the files ``vector_math_*`` hold them by family. Errors
are at most 2 units in the last place; results at infinities, NaN, zeros of either sign and
denormals are those of IEEE. f64, which few models use, goes to the machine's libm lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..ir.dtypes import f64
from . import vector_math_exp as exp
from . import vector_math_hyperbolic as hyperbolic
from . import vector_math_log as log
from . import vector_math_special as special
from . import vector_math_trig as trig
from .llvm_ir_build import Builder
from .llvm_ir_core import Value
from .vector_math_num import Num

FUNCTIONS: Mapping[str, tuple[str, Callable[..., Num]]] = MappingProxyType(
    {
        "exponential": ("exp", exp.exp),
        "exponential-minus-one": ("expm1", exp.expm1),
        "logistic": ("", exp.logistic),
        "log": ("log", log.log),
        "log-plus-one": ("log1p", log.log1p),
        "power": ("pow", log.power),
        "cbrt": ("cbrt", special.cbrt),
        "erf": ("erf", special.erf),
        "erfc": ("erfc", special.erfc),
        "tanh": ("tanh", exp.tanh),
        "sinh": ("sinh", hyperbolic.sinh),
        "cosh": ("cosh", hyperbolic.cosh),
        "asinh": ("asinh", hyperbolic.asinh),
        "acosh": ("acosh", hyperbolic.acosh),
        "atanh": ("atanh", hyperbolic.atanh),
        "sine": ("sin", trig.sin),
        "cosine": ("cos", trig.cos),
        "tan": ("tan", trig.tan),
        "asin": ("asin", trig.asin),
        "acos": ("acos", trig.acos),
        "atan": ("atan", trig.atan),
        "atan2": ("atan2", trig.atan2),
    }
)
"""By operation: the function's name in libm, and our code for f32."""


def call(b: Builder, name: str, *args: Value) -> Value:
    """The function ``name`` of f32 or f64 operands, in line."""
    args = b.even(*args)
    symbol, code = FUNCTIONS[name]
    if args[0].dtype != f64:
        return code(*(Num(b, a) for a in args)).v
    if symbol:
        return _libm(b, symbol, args)
    (x,) = args  # logistic
    grown = _libm(b, "exp", (b.unary("fneg", x),))
    one = b.like(1.0, x)
    return b.binary("fdiv", one, b.binary("fadd", one, grown))


def _libm(b: Builder, symbol: str, args: tuple[Value, ...]) -> Value:
    """A call for each lane."""
    b.declare(symbol, "double", ["double"] * len(args))
    depth, lanes = max(a.depth for a in args), args[0].lanes

    def one(lane: int) -> Value:
        operands = ", ".join(str(b.lane(a, lane)) for a in args)
        return b.pure(f"call double @{symbol}({operands})", f64, 0, depth)

    if not lanes:
        return one(0)
    result = f"<{lanes} x double> poison"
    for lane in range(lanes):
        text = f"insertelement {result}, {one(lane)}, i64 {lane}"
        value = b.pure(text, f64, lanes, depth)
        result = str(value)
    return value
