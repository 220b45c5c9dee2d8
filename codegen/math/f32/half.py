"""Functions of f16 in f64, to about 2**-36, where f32 is too coarse to be rounded a second time.

An f32 result close to the midpoint of two f16 values may be on the wrong side of it. Here it is on
the right side for every f16: a test tries them all.
"""

from __future__ import annotations

from ..arithmetic.arith_value import ArithValue, clamp, horner
from .exp import exp_double, expm1_double
from .log import log_double, log_special_cases
from .special import ERF_SMALL, erfc_double

_LEAST, _MOST = -20.0, 20.0  # beyond these the result is 0 or infinite in f16


def exp(x: ArithValue) -> ArithValue:
    """Return e**x."""
    return exp_double(clamp(x.double(), _LEAST, _MOST)).single()


def expm1(x: ArithValue) -> ArithValue:
    """Return e**x - 1."""
    return x.equals(0.0).where(x, expm1_double(clamp(x.double(), _LEAST, _MOST)).single())


def log(x: ArithValue) -> ArithValue:
    """Return the natural logarithm."""
    return log_special_cases(x, log_double(x.double()).single())


def logistic(x: ArithValue) -> ArithValue:
    """Return 1 / (1 + e**-x)."""
    grown = exp_double(clamp(-x.double(), _LEAST, _MOST))
    return grown.lift(1.0).over(grown + 1.0).single()


def erf(x: ArithValue) -> ArithValue:
    """Return the error function."""
    d, a = x.double(), x.double().abs()
    small = d.fma(horner(d * d, *ERF_SMALL), d)
    large = (1.0 - erfc_double(clamp(a, 0.0, 5.0))).copysign(d)
    return (a < 0.72).where(small, large).single()
