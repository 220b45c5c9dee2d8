"""f32 functions by a GPU's approximate instructions: within 2 ulp of the exact result.

``ex2.approx`` is off by 1.41 ulp at most (see ``emit.llvm.estimates``), which no refinement mends
for less than the series of ``math.exp`` costs. So only functions whose own sum damps that error,
or that have none, stand here; logarithms do not: near 1 ``lg2.approx`` is right to 2**-22 of 1, not
of the result.
"""

from __future__ import annotations

import math

from ...emit.llvm.core import round_f32
from ..arithmetic.arith_value import ArithValue, clamp, horner
from .special import ERF_LARGE, ERF_LARGEST, ERF_SMALL

_LOG2E = round_f32(math.log2(math.e))
_LOG2E_REST = math.log2(math.e) - _LOG2E
_LEAST, _MOST = -126, 127  # exponents of normal powers of two
_MAGIC = 12582912.0  # 1.5 * 2**23: the low bits of a sum with it are an integer
_TANH = (
    -0.3333333134651184,
    0.1333312839269638,
    -0.053934790194034576,
    0.02166011556982994,
    -0.008218921720981598,
    0.0025104593951255083,
    -0.00042069549090228975,
)
"""Of ``(tanh(x) / x - 1) / x**2`` in ``x**2``, at the Chebyshev nodes of 0 to 1."""


def exp(x: ArithValue) -> ArithValue:
    """Return e**x: ``2**n * 2**r`` with ``n`` next to ``x / ln 2``, and within -126 .. 127.

    Beyond these ``r`` is large, and its power has what remains: it overflows, underflows, or scaled
    by ``2**n`` becomes subnormal. The clamp is part of the multiply-add before it, so there are no
    comparisons; NaN comes through ``r``.
    """
    count = _MOST - _LEAST
    place = x.fma(_LOG2E / count, -_LEAST / count).saturated()
    shifted = place.fma(float(count), _MAGIC + 127 + _LEAST)
    n = shifted - (_MAGIC + 127)
    r = x.fma(_LOG2E_REST, x.fma(_LOG2E, -n))
    return r.estimate("exp2") * (shifted.bits() << 23).floats()


def exp2(x: ArithValue) -> ArithValue:
    """Return 2**x; 0 where that is subnormal."""
    return x.estimate("exp2")


def tanh(x: ArithValue) -> ArithValue:
    """Return the hyperbolic tangent: ``1 - 2 / (1 + e**(2 |x|))``; a polynomial below 1."""
    a, z = x.abs(), x * x
    grown = (a * (2 * _LOG2E)).estimate("exp2")
    far = (grown + 1.0).estimate("reciprocal").fma(-2.0, 1.0)
    return (a < 1.0).where((a * z).fma(horner(z, *_TANH), a), far).copysign(x)


def erf(x: ArithValue) -> ArithValue:
    """Return the error function: ``1 - exp(-Q(|x|))``; a polynomial below 0.85."""
    a = clamp(x.abs(), 0.0, ERF_LARGEST)
    small = x.fma(horner(x * x, *ERF_SMALL), x)
    power = a * horner(a, *(c * math.log2(math.e) for c in ERF_LARGE))
    large = (1.0 - power.estimate("exp2")).copysign(x)
    return (a < 0.85).where(small, large)
