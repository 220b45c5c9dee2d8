"""Gamma functions, inverse error function, Bessel functions, as formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....dtypes import f64
from ...lax.incomplete import gamma_p, gamma_q
from ...lax.shaping import full
from ...lax.special import bessel_i0e, bessel_i1e, digamma, erf_inv, lgamma, zeta
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, wide
from .promotion import Operand


def _function(formula: Callable[[Term], Term]) -> Operator:
    return lambda c, x: formula(wide(x.to(c.dtype)))


def _digamma(x: Term) -> Term:
    """Infinite at zeros, as torch has it; in f64, since near a negative pole f32 cancels."""
    y = x.to(f64)
    return y.equals(0).select(-1 / y, digamma(y))


def _hurwitz(x: Term, q: Term) -> Term:
    """Zeta in f64; infinite wherever q is an integer not above 0, as torch has it."""
    a, b = x.to(f64), q.to(f64)
    pole = (b <= 0) & b.equals(b.do("floor")) & (a > 1)
    return (a < 1).select(math.nan, pole.select(math.inf, zeta(a, b)))


def _polygamma(c: AtenCall, n: int, x: Term) -> Term:
    """By zeta where x > 1/2, else of 1 - x, by the n-th derivative of pi cot(pi x).

    (-1)^n psi_n(1 - x) - psi_n(x) is that derivative (Abramowitz and Stegun, 6.4.7).
    """
    y = x.to(f64)
    if n == 0:
        return _digamma(y)
    low, odd = y < 0.5, -1 if n % 2 else 1
    z = low.select(1 - y, y)
    value = zeta(full(c.graph, n + 1, f64, z.dims), z) * float(-odd * math.factorial(n))
    part = y - y.do("floor")
    angle = part * math.pi
    slope = (angle.do("cosine") / angle.do("sine")).polynomial(_cotangent_slope(n))
    pole = low & part.equals(0)
    return pole.select(-odd * math.inf, low.select(value * odd - slope, value))


def _cotangent_slope(n: int) -> list[float]:
    """The n-th derivative of pi cot(pi x) as a polynomial in cot(pi x), highest power first."""
    powers = np.polynomial.Polynomial([0, math.pi])
    for _ in range(n):
        powers = powers.deriv() * np.polynomial.Polynomial([-math.pi, 0, -math.pi])
    return [float(k) for k in powers.coef[::-1]]


def _zeta(c: AtenCall, x: Operand, q: Operand) -> Term:
    a, b = c.operands(x, q)
    return _hurwitz(a.like(c.shape), b.like(c.shape))


def _of_two(formula: Callable[[Term, Term], Term]) -> Operator:
    """A function of two operands of one shape, computed in f64."""

    def write(c: AtenCall, a: Term, x: Term) -> Term:
        first, second = (t.to(f64).like(c.shape) for t in c.operands(a, x))
        return formula(first, second)

    return write


def _i1(x: Term) -> Term:
    return bessel_i1e(x) * x.do("abs").do("exponential")


def _i0(x: Term) -> Term:
    return bessel_i0e(x) * x.do("abs").do("exponential")


ROWS: Rows = {
    "aten.lgamma.default": _function(lgamma),
    "prims.lgamma.default": _function(lgamma),
    "aten.digamma.default": _function(_digamma),
    "prims.digamma.default": _function(_digamma),
    "aten.erfinv.default": _function(erf_inv),
    "prims.erf_inv.default": _function(erf_inv),
    "aten.i0.default": _function(_i0),
    "prims.bessel_i0.default": _function(_i0),
    "aten.special_i0e.default": _function(bessel_i0e),
    "prims.bessel_i0e.default": _function(bessel_i0e),
    "prims.bessel_i1e.default": _function(bessel_i1e),
    "aten.special_i1e.default": _function(bessel_i1e),
    "prims.bessel_i1.default": _function(_i1),
    "aten.special_i1.default": _function(_i1),
    "aten.igamma.default": _of_two(gamma_p),
    "aten.igammac.default": _of_two(gamma_q),
    "aten.polygamma.default": _polygamma,
    "prims.zeta.default": _zeta,
    "aten.special_zeta.default": _zeta,
}
