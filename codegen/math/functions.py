"""Elementary functions on vectors, looked up by the name of an element-wise operation.

LLVM has none for vectors. Each f32 function is straight-line code over ``ArithValue``, scalar or of
any width; the files of ``f32`` and ``f64`` hold them by family. Errors are at most 2 ulp; results
at infinities, NaN, zeros of either sign and denormals are those of IEEE. Those of f64 need a fused
multiply-add; CPUs without one call the machine's libm by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...ir.dtypes import f16, f64
from ..emit.llvm.builder import IRBuilder, by_lane
from ..emit.llvm.core import IRValue
from ..emit.llvm.tables import table_entries
from .arithmetic.arith_value import ArithValue
from .arithmetic.remainder import exact_remainder
from .f32 import estimated, exp, half, hyperbolic, log, special, trig, without_f64
from .f32.intervals import BY_INTERVALS
from .f64 import elementary
from .f64 import special as special_f64
from .f64 import trig as trig_f64

FUNCTIONS: Mapping[str, tuple[str, Callable[..., ArithValue], Callable[..., ArithValue]]] = (
    MappingProxyType(
        {
            "exponential": ("exp", exp.exp, exp.exp),
            "exponential-minus-one": ("expm1", exp.expm1, exp.expm1),
            "exp2": ("exp2", exp.exp2, exp.exp2),
            "logistic": ("", exp.logistic, exp.logistic),
            "log": ("log", log.log, elementary.log),
            "log-plus-one": ("log1p", without_f64.log1p, elementary.log1p),
            "power": ("pow", log.power_single, elementary.pow),
            "cbrt": ("cbrt", special.cbrt, special_f64.cbrt),
            "erf": ("erf", special.erf, special_f64.erf),
            "erfc": ("erfc", special.erfc, special_f64.erfc),
            "tanh": ("tanh", exp.tanh, exp.tanh),
            "sinh": ("sinh", hyperbolic.sinh, elementary.sinh),
            "cosh": ("cosh", hyperbolic.cosh, elementary.cosh),
            "asinh": ("asinh", hyperbolic.asinh, elementary.asinh),
            "acosh": ("acosh", hyperbolic.acosh, elementary.acosh),
            "atanh": ("atanh", hyperbolic.atanh, elementary.atanh),
            "sine": ("sin", trig.sin, trig_f64.sin),
            "cosine": ("cos", trig.cos, trig_f64.cos),
            "tan": ("tan", trig.tan, trig_f64.tan),
            "asin": ("asin", trig.asin, special_f64.asin),
            "acos": ("acos", trig.acos, special_f64.acos),
            "atan": ("atan", trig.atan, special_f64.atan),
            "atan2": ("atan2", trig.atan2, special_f64.atan2),
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
        "sine": without_f64.sin,
        "cosine": without_f64.cos,
        "power": without_f64.pow,
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
    elif b.final_dtype == f16 and name in HALF:
        code = HALF[name]
    else:
        code = BY_INTERVALS.get((name, table_entries(b)), code)
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
