"""Elementary functions in f64 and in 80-bit extended precision, to measure results by.

NumPy's functions serve where it has them. ``erf`` and ``erfc`` are loops over the C library's,
compiled with LLVM. In f64 an error is a few units in the last place, 2**-27 of an f32's; extended
numbers (64 bits, x86 only) have errors of about 2**-10 units of an f64.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from nestwright.ir.arrays import Array

EXTENDED = np.finfo(np.longdouble).nmant == 63
"""True if this machine's ``long double`` is the 80-bit one."""

_LOOP = """
declare {t} @{name}({t})
define void @loop(ptr %x, ptr %y, i64 %n) {{
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %p = getelementptr {t}, ptr %x, i64 %i
  %q = getelementptr {t}, ptr %y, i64 %i
  %a = load {t}, ptr %p
  %r = call {t} @{name}({t} %a)
  store {t} %r, ptr %q
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %exit
exit:
  ret void
}}
"""


@cache
def _loop(name: str, extended: bool) -> tuple[Any, Callable[..., None]]:
    """Return a function of the C library over an array; the engine that owns the code."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    type_ = "x86_fp80" if extended else "double"
    module = llvm.parse_assembly(_LOOP.format(t=type_, name=name + "l" * extended))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return engine, signature(engine.get_function_address("loop"))


def _from_libm(name: str) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        x = np.ascontiguousarray(x)
        y = np.empty_like(x)
        if x.size:
            _loop(name, x.dtype == np.longdouble)[1](x.ctypes.data, y.ctypes.data, x.size)
        return y

    return run


def _logistic(x: Array) -> Array:
    """By way of ``e**-|x|``, which neither overflows nor loses the small results."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (1 + small)


def _within(inside: Callable[[Array], Array], f: Callable[[Array], Array]) -> Callable[..., Array]:
    """Return ``f`` where it has a value, else NaN: libraries take their time over wrong
    arguments.
    """

    def run(x: Array) -> Array:
        at = inside(x)
        y = np.full_like(x, np.nan)
        y[at] = f(x[at])
        return y

    return run


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": _logistic,
    "tanh": np.tanh,
    "erf": _from_libm("erf"),
    "erfc": _from_libm("erfc"),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": _within(lambda x: x >= 1, np.arccosh),
    "atanh": _within(lambda x: np.abs(x) <= 1, np.arctanh),
    "power": np.power,
    "atan2": np.arctan2,
    "divide": np.divide,
    "remainder": np.fmod,
}
"""By operation: its meaning for arrays of f64 or of ``np.longdouble``."""

ARITY = {name: 2 if name in ("power", "atan2", "divide", "remainder") else 1 for name in FUNCTIONS}


def exact(name: str, *args: Array) -> Array:
    """Return the function of f64 operands in extended precision, of all others in f64."""
    wide = np.longdouble if args[0].dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[name](*(a.astype(wide) for a in args)))
