"""Elementary functions on vectors, looked up by the name of an element-wise operation.

LLVM has none for vectors. Each f32 function is straight-line code over ``ArithValue``, scalar or of
any width; the other files of this folder hold them by family. Errors are at most 2 ulp; results at
infinities, NaN, zeros of either sign and denormals are those of IEEE. f64's are in the files
``double*``; they need a fused multiply-add, and CPUs without one call the machine's libm by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...ir.dtypes import f16, f64
from ..emit.llvm.builder import IRBuilder, by_lane
from ..emit.llvm.core import IRValue
from . import double as double
from . import double_special as double_special
from . import double_trig as double_trig
from . import estimated as estimated
from . import exp as exp
from . import half as half
from . import hyperbolic as hyperbolic
from . import log as log
from . import single as single
from . import special as special
from . import trig as trig
from .arith_value import ArithValue
from .remainder import exact_remainder

FUNCTIONS: Mapping[str, tuple[str, Callable[..., ArithValue], Callable[..., ArithValue]]] = (
    MappingProxyType(
        {
            "exponential": ("exp", exp.exp, exp.exp),
            "exponential-minus-one": ("expm1", exp.expm1, exp.expm1),
            "exp2": ("exp2", exp.exp2, exp.exp2),
            "logistic": ("", exp.logistic, exp.logistic),
            "log": ("log", log.log, double.log),
            "log-plus-one": ("log1p", single.log1p, double.log1p),
            "power": ("pow", log.power_single, double.pow),
            "cbrt": ("cbrt", special.cbrt, double_special.cbrt),
            "erf": ("erf", special.erf, double_special.erf),
            "erfc": ("erfc", special.erfc, double_special.erfc),
            "tanh": ("tanh", exp.tanh, exp.tanh),
            "sinh": ("sinh", hyperbolic.sinh, double.sinh),
            "cosh": ("cosh", hyperbolic.cosh, double.cosh),
            "asinh": ("asinh", hyperbolic.asinh, double.asinh),
            "acosh": ("acosh", hyperbolic.acosh, double.acosh),
            "atanh": ("atanh", hyperbolic.atanh, double.atanh),
            "sine": ("sin", trig.sin, double_trig.sin),
            "cosine": ("cos", trig.cos, double_trig.cos),
            "tan": ("tan", trig.tan, double_trig.tan),
            "asin": ("asin", trig.asin, double_special.asin),
            "acos": ("acos", trig.acos, double_special.acos),
            "atan": ("atan", trig.atan, double_special.atan),
            "atan2": ("atan2", trig.atan2, double_special.atan2),
        }
    )
)
"""By operation: the function's name in libm, and our code for f32 and for f64."""

SINGLE: Mapping[str, Callable[..., ArithValue]] = MappingProxyType(
    {
        "exponential": estimated.exp,
        "exp2": estimated.exp2,
        "tanh": estimated.tanh,
        "erf": estimated.erf,
        "sine": single.sin,
        "cosine": single.cos,
        "power": single.pow,
    }
)
"""What f32 takes on GPUs instead."""

BY_DOUBLE: Mapping[str, Callable[..., ArithValue]] = MappingProxyType(
    {
        "log-plus-one": log.log1p,
        "cbrt": special.cbrt_by_double,
        "erfc": special.erfc_by_double,
    }
)
"""What CPUs take where a result is rounded again, and without a fused multiply-add."""

HALF: Mapping[str, Callable[..., ArithValue]] = MappingProxyType(
    {
        "exponential": half.exp,
        "exponential-minus-one": half.expm1,
        "log": half.log,
        "logistic": half.logistic,
        "erf": half.erf,
    }
)
"""What f16 takes on CPUs instead of f32's."""


def call(b: IRBuilder, name: str, *args: IRValue) -> IRValue:
    """Emit the function ``name`` of f32 or f64 operands inline."""
    args = b.match_lanes(*args)
    symbol, code, wide = FUNCTIONS[name]
    if args[0].dtype == f64:
        if b.libm and symbol and not b.has_fma:
            return _libm(b, symbol, args)
        return wide(*(ArithValue(b, a) for a in args)).v
    if b.final_dtype is not None and name == "power" and b.libm:
        return (
            wide(*(ArithValue(b, a).double() for a in args)).single().v
        )  # exact where that is a tie
    if not b.libm:
        code = SINGLE.get(name, code)
    elif name in BY_DOUBLE and (b.final_dtype is not None or not b.has_fma):
        code = BY_DOUBLE[name]
    elif b.final_dtype == f16:
        code = HALF.get(name, code)
    return code(*(ArithValue(b, a) for a in args)).v


def remainder(b: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Return the remainder of ``x / y`` truncated to an integer, with the sign of ``x``."""
    x, y = b.match_lanes(x, y)
    return exact_remainder(ArithValue(b, x), ArithValue(b, y)).v


def improved_rsqrt(b: IRBuilder, x: IRValue, near: IRValue) -> IRValue:
    """Refine an estimate of ``1 / sqrt(x)``, good to a few ulp, to the nearest float."""
    return special.improved_rsqrt(ArithValue(b, x), ArithValue(b, near)).v


def _libm(b: IRBuilder, symbol: str, args: tuple[IRValue, ...]) -> IRValue:
    """Call libm once per lane."""
    b.declare(symbol, "double", ["double"] * len(args))
    depth = max(a.depth for a in args)

    def one(*scalars: IRValue) -> IRValue:
        operands = ", ".join(map(str, scalars))
        return b.pure(f"call double @{symbol}({operands})", f64, 0, depth)

    return by_lane(b, args, one)
