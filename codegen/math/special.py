"""Error functions and cube roots in f32.

``erf(x)`` is ``x + x * P(x**2)`` below 0.93 and ``1 - exp(-Q(|x|))`` above; ``erfc`` is computed in
f64 as ``exp(-x**2) * R((x - 2) / (x + 2))``. The polynomials interpolate at the Chebyshev nodes.
"""

from __future__ import annotations

import math

from .arith_value import ArithValue, clamp, horner
from .exp import exp_double, one_minus_exp

ERF_SMALL = (
    0.12837916662064427,
    -0.376126335171408079,
    0.112836915197330973,
    -0.0268591514724389839,
    0.0052003685868649604,
    -0.000813470933211905653,
    8.33471861520990583e-5,
)
_ERF_LARGE = (
    -1.12853348255157471,
    -0.635653018951416016,
    -0.105348594486713409,
    0.0229459851980209351,
    -0.00323253194574941828,
    0.000216127557042032665,
)
_ERFC = (
    0.255395676329650005,
    -0.427185847832069863,
    0.24165819224495088,
    -0.0789785622944789456,
    0.00373293016262181813,
    0.00699722397585863516,
    -0.000847454115595218874,
    -0.000980677260334926703,
    4.4987319797287078e-5,
    0.000170899463771534456,
    2.36638193366751366e-5,
    -2.33033980846564923e-5,
    -8.26315526871966293e-6,
)
_CUBE_ROOT_BITS = 715094163  # two thirds of the exponent's bias, tuned (W. Kahan)


def erf(x: ArithValue) -> ArithValue:
    """Return the error function, f32."""
    a = clamp(x.abs(), 0.0, 3.95)
    small = x.fma(horner(x * x, *ERF_SMALL), x)
    large = one_minus_exp(a, horner(a, *_ERF_LARGE)).copysign(x)
    return (a < 0.72).where(small, large)


def erfc(x: ArithValue) -> ArithValue:
    """Return the complementary error function, f32."""
    right = erfc_double(clamp(x.double().abs(), 0.0, 10.2))
    return (x < 0.0).where((2.0 - right).single(), right.single())


def erfc_double(d: ArithValue) -> ArithValue:
    """Return the complementary error function of ``0 <= d <= 10.2`` in f64, for f32 results."""
    ratio = (d - 2.0).over(d + 2.0)
    return exp_double(-(d * d)) * horner(ratio, *_ERFC)


def improved_rsqrt(x: ArithValue, near: ArithValue) -> ArithValue:
    """Refine ``near``, about ``1 / sqrt(x)``, by a Newton step with an exact residual; any float
    type.
    """
    product = x * near
    lost = x.fma(near, -product)
    residual = lost.fma(-near, (-product).fma(near, 1.0))
    better = (near * 0.5).fma(residual, near)
    return residual.is_nan().where(near, better)  # at 0 and infinity


def cbrt(x: ArithValue) -> ArithValue:
    """Return the cube root, f32: an estimate from the exponent, two Halley steps in f64."""
    d = x.double().abs()
    bits = d.bits()
    third = bits >> 2
    for shift in range(4, 18, 2):  # 1/4 + 1/16 + ... = 1/3
        third = third + (bits >> shift)
    guess = (third + (_CUBE_ROOT_BITS << 32)).floats()
    for _ in range(2):
        cube = guess * guess * guess
        guess = guess * (cube + d * 2.0).over(cube * 2.0 + d)
    plain = (x.abs() < math.inf) & (x.equals(0.0) ^ True)
    return plain.where(guess.single().copysign(x), x)
