"""What f16 takes where f32 is not precise enough to be rounded again: f64, to about 2**-36.

A result in f32 that lies next to the middle between two f16 may be on the wrong side of it. Here
it is on the right one for every f16, as a test shows that tries them all.
"""

from __future__ import annotations

from .arith_value import ArithValue, between, horner
from .exp import exp_double, expm1_double
from .log import at_the_ends, log_double
from .special import ERF_SMALL, erfc_double

_LEAST, _MOST = -20.0, 20.0  # what is beyond is 0 or infinite in f16


def exp(x: ArithValue) -> ArithValue:
    """e**x."""
    return exp_double(between(x.double(), _LEAST, _MOST)).single()


def expm1(x: ArithValue) -> ArithValue:
    """e**x - 1."""
    return x.equals(0.0).where(x, expm1_double(between(x.double(), _LEAST, _MOST)).single())


def log(x: ArithValue) -> ArithValue:
    """Natural logarithm."""
    return at_the_ends(x, log_double(x.double()).single())


def logistic(x: ArithValue) -> ArithValue:
    """1 / (1 + e**-x)."""
    grown = exp_double(between(-x.double(), _LEAST, _MOST))
    return grown.lift(1.0).over(grown + 1.0).single()


def erf(x: ArithValue) -> ArithValue:
    """Error function."""
    d, a = x.double(), x.double().abs()
    small = d.fma(horner(d * d, *ERF_SMALL), d)
    large = (1.0 - erfc_double(between(a, 0.0, 5.0))).copysign(d)
    return (a < 0.72).where(small, large).single()
