"""Hyperbolic sines and cosines and the inverse hyperbolic functions in f32, by way of f64.

Close to 0, where the formula would cancel, the first terms of the series are used.
"""

from __future__ import annotations

import math

from ..arithmetic.arith_value import ArithValue, clamp, horner
from .exp import exp_double
from .log import log_double


def _powers(x: ArithValue) -> tuple[ArithValue, ArithValue]:
    """Return e**|x| and its inverse, f64; beyond 100 both are out of f32's range in any case."""
    grown = exp_double(clamp(x.double().abs(), 0.0, 100.0))
    return grown, grown.lift(1.0).over(grown)


def sinh(x: ArithValue) -> ArithValue:
    """Return the hyperbolic sine, f32."""
    grown, shrunk = _powers(x)
    d = x.double().abs()
    series = d * horner(d * d, 1.0, 1 / 6, 1 / 120)
    return (d < 0.02).where(series, (grown - shrunk) * 0.5).single().copysign(x)


def cosh(x: ArithValue) -> ArithValue:
    """Return the hyperbolic cosine, f32."""
    grown, shrunk = _powers(x)
    return ((grown + shrunk) * 0.5).single()


def asinh(x: ArithValue) -> ArithValue:
    """Return the inverse hyperbolic sine, f32."""
    d = x.double().abs()
    series = d * horner(d * d, 1.0, -1 / 6, 3 / 40)
    result = log_double(d + d.fma(d, 1.0).sqrt())
    result = (d < 0.005).where(series, result)
    return (d < math.inf).where(result, d).single().copysign(x)


def acosh(x: ArithValue) -> ArithValue:
    """Return the inverse hyperbolic cosine, f32; NaN below 1."""
    d = x.double()
    result = log_double(d + ((d - 1.0) * (d + 1.0)).sqrt()).single()
    result = (x < math.inf).where(result, x)
    return (x < 1.0).where(x.lift(math.nan), result)


def atanh(x: ArithValue) -> ArithValue:
    """Return the inverse hyperbolic tangent, f32; NaN outside of -1 .. 1."""
    d = x.double().abs()
    series = d * horner(d * d, 1.0, 1 / 3, 1 / 5)
    result = log_double((d + 1.0).over(1.0 - d)) * 0.5
    result = (d < 0.005).where(series, result)
    result = d.equals(1.0).where(d.lift(math.inf), result)
    result = (d > 1.0).where(d.lift(math.nan), result)
    return (d.is_nan()).where(d, result).single().copysign(x)
