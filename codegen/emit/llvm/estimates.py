"""A GPU's approximate instructions, and on a processor that simulates one the worst they may give.

The PTX manual bounds their errors: ``rcp`` to 1 unit in the last place, ``rsqrt`` to 2**-22.9 of
the result, ``ex2`` to 2**-22.5 in the range where the result is 1 to 2 (1.41 units), which integer
exponents scale; ``rcp`` of f64 keeps 20 bits. ``rcp`` and ``ex2`` take subnormal numbers for 0 and
give 0 for a subnormal result. The models are off by as much, up or down by a hash of the operand,
so what holds in a simulation holds for any hardware within these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ....ir.dtypes import DType, f32, f64
from .core import literal_text
from .template import render

_ROUNDING = 2.0**-24  # of the model's result, half a unit at its start: the rest is the bound's
_RECIPROCAL = 2.0**-25  # of the result: half a unit at most
_RSQRT = 2.0**-22.9 - _ROUNDING
_EXP2 = 2.0**-22.5 - _ROUNDING
_TERMS = 12


@dataclass(frozen=True, slots=True)
class Estimate:
    """An approximate instruction: NVPTX's intrinsic, and the function that models it elsewhere."""

    intrinsic: str
    model: str


ESTIMATES: Mapping[tuple[str, DType], Estimate] = MappingProxyType(
    {
        ("reciprocal", f32): Estimate("llvm.nvvm.rcp.approx.ftz.f", "nw_reciprocal_estimate"),
        ("reciprocal", f64): Estimate("llvm.nvvm.rcp.approx.ftz.d", "nw_reciprocal_estimate_f64"),
        ("rsqrt", f32): Estimate("llvm.nvvm.rsqrt.approx.f", "nw_rsqrt_estimate"),
        ("exp2", f32): Estimate("llvm.nvvm.ex2.approx.ftz.f", "nw_exp2_estimate"),
    }
)
"""By function and element type."""

CALLED = MappingProxyType(
    {
        "llvm.fabs.f32": ("float", ["float"]),
        "llvm.copysign.f32": ("float", ["float", "float"]),
        "llvm.floor.f64": ("double", ["double"]),
        "llvm.sqrt.f64": ("double", ["double"]),
    }
)
"""What the models call: result and operands."""


def models_text() -> str:
    """Return the definitions of all models."""
    numbers = {
        "reciprocal.up": 1 + _RECIPROCAL,
        "reciprocal.down": 1 - _RECIPROCAL,
        "rsqrt.up": 1 + _RSQRT,
        "rsqrt.down": 1 - _RSQRT,
        "exp2.up": _EXP2,
        "exp2.down": -_EXP2,
    }
    names = {name: literal_text(value, f64) for name, value in numbers.items()}
    return render(__package__, "estimates.ll", names=names | {"exp2.series": _series()})


def _series() -> str:
    """Return instructions for ``%series``, 2**f for f from 0 to 1: Taylor's, around one half."""
    terms = [math.sqrt(2) * math.log(2) ** k / math.factorial(k) for k in range(_TERMS)]
    first, *rest = (literal_text(term, f64) for term in reversed(terms))
    half = literal_text(0.5, f64)
    lines = [f"  %g = fsub double %f, {half}", f"  %s0 = fadd double {first}, 0.0"]
    for k, term in enumerate(rest):
        name = "%series" if k == len(rest) - 1 else f"%s{k + 1}"
        lines += [f"  %p{k} = fmul double %s{k}, %g", f"  {name} = fadd double %p{k}, {term}"]
    return "\n".join(lines)
