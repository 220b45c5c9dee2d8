"""Error functions and cube roots in f32.

``erf(x)`` is ``1 - exp(-c |x| - x**2 P(|x|))`` with ``c = 2 / sqrt(pi)``; ``erfc(x)`` is
``exp(-x**2) * P(q) / (1 + x)`` with ``q = (x - 1) / (x + 1)``. The polynomials give the results the
least relative error, with coefficients in f32. Where small results of ``1 - exp`` are too coarse,
``erf(x)`` is ``x + x * P(x**2)`` below 0.93 and ``1 - exp(-|x| Q(|x|))`` above; those polynomials
and that of ``erfc`` in f64 interpolate at the Chebyshev nodes.
"""

from __future__ import annotations

import math

from ..arithmetic.arith_value import ArithValue, clamp, horner, in_halves, in_pairs
from ..arithmetic.cube_root import cube_root_estimate
from .exp import exp_double, one_minus_exp, scaled_exp

ERF_SMALL = (
    0.12837916662064427,
    -0.376126335171408079,
    0.112836915197330973,
    -0.0268591514724389839,
    0.0052003685868649604,
    -0.000813470933211905653,
    8.33471861520990583e-5,
)
ERF_LARGE = (
    -1.12853348255157471,
    -0.635653018951416016,
    -0.105348594486713409,
    0.0229459851980209351,
    -0.00323253194574941828,
    0.000216127557042032665,
)
_ERF_SLOPE, _ERF_SLOPE_REST = -1.128379225730896, 5.8635382771399236e-8  # -2 / sqrt(pi)
_ERF = (
    -0.636619508266449,
    -0.10277687758207321,
    0.01914999447762966,
    0.00016541845980100334,
    -0.0016715055098757148,
    0.0006350231124088168,
    -0.00011818557686638087,
    9.309799679613207e-6,
)
ERF_LARGEST = 3.95  # from there on erf is 1 in f32
_ERFC_FIRST, _ERFC_TWICE = 0.8551671504974365, -2.338724136352539  # c, and -2 / c in f32
_ERFC = (
    -0.2779349982738495,
    -0.11174020171165466,
    0.01626286469399929,
    0.02969803288578987,
    0.011181679554283619,
    -0.0014353430597111583,
    -0.004376770928502083,
    -0.0027420194819569588,
    -0.00043794058728963137,
    0.0006699941586703062,
    0.0005027942825108767,
    0.00010919028136413544,
)
_ERFC_SLOPE = 1.1  # about -(1 + x) times the slope of log(exp(x**2) erfc(x))
_ERFC_LAST = 10.06  # beyond it erfc is 0
_ERFC_DOUBLE = (
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
_INVERSE_CUBE_ROOT_BITS = 1418608640.0  # four thirds of it in f32
_INVERSE_CUBE_ROOT = (  # c**(-1/3) for 0.667 < c < 0.791, to 2**-24
    2.083078032605072,
    -2.866455642582356,
    3.3778944291638946,
    -2.1652552869065045,
    0.571441335321286,
)


def erf(x: ArithValue) -> ArithValue:
    """Return the error function, f32."""
    a = x.abs()
    a = (a > ERF_LARGEST).where(a.lift(ERF_LARGEST), a)
    return one_minus_exp(a, _ERF_SLOPE, _ERF_SLOPE_REST, in_pairs(a, *_ERF)).copysign(x)


def erfc(x: ArithValue) -> ArithValue:
    """Return the complementary error function, f32, for machines with a fused multiply-add.

    The rounding errors of ``x**2``, of ``1 + x`` and of the quotient by it are exact; they go into
    the exponent, times the slope of what they change.
    """
    a = x.abs()
    square, sum_ = a * a, a + 1.0
    t = x.lift(_ERFC_FIRST).over(sum_)
    lost = (sum_ - 1.0 - a).fma(t, (-t).fma(sum_, _ERFC_FIRST))
    low = lost.fma(_ERFC_SLOPE / _ERFC_FIRST, (-a).fma(a, square))
    q = t.fma(_ERFC_TWICE, 1.0)
    part, series = t * q, in_halves(q, *_ERFC)
    ratio = part.fma(series, t)
    rest = part.fma(series, t - ratio)
    right = scaled_exp(ratio, rest, -square, low, (a > _ERFC_LAST) ^ True)
    return (x < 0.0).where(2.0 - right, right)


def erfc_by_double(x: ArithValue) -> ArithValue:
    """Return the complementary error function, f32, to half a unit and a little more."""
    right = erfc_double(clamp(x.double().abs(), 0.0, 10.2))
    return (x < 0.0).where((2.0 - right).single(), right.single())


def erfc_double(d: ArithValue) -> ArithValue:
    """Return the complementary error function of ``0 <= d <= 10.2`` in f64, for f32 results."""
    ratio = (d - 2.0).over(d + 2.0)
    return exp_double(-(d * d)) * horner(ratio, *_ERFC_DOUBLE)


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
    """Return the cube root, f32, for machines with a fused multiply-add.

    ``y``, the inverse of the root, is a polynomial's product with an estimate from the exponent;
    then ``x y**2`` is refined by a Newton step with an exact residual.
    """
    a = x.abs()
    small = a < 2.0**-60
    a = small.where(a * 2.0**90, a)
    guess = a.bits().as_float().fma(-1 / 3, _INVERSE_CUBE_ROOT_BITS).as_integer().floats()
    y = guess * horner(a * guess * (guess * guess), *_INVERSE_CUBE_ROOT)
    power = y * y
    near = a * power
    square = near * near
    residual = (-near).fma(near.fma(near, -square), (-near).fma(square, a))
    root = residual.fma(power * (1 / 3), near)
    root = small.where(root * 2.0**-30, root)
    return (a < math.inf).where(root.copysign(x), x)


def cbrt_by_double(x: ArithValue) -> ArithValue:
    """Return the cube root, f32: an estimate from the exponent, two Halley steps in f64."""
    d = x.double().abs()
    guess = cube_root_estimate(d)
    for _ in range(2):
        cube = guess * guess * guess
        guess = guess * (cube + d * 2.0).over(cube * 2.0 + d)
    plain = (x.abs() < math.inf) & (x.equals(0.0) ^ True)
    return plain.where(guess.single().copysign(x), x)
