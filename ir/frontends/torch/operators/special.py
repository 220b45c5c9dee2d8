"""Gamma functions, inverse error function, Bessel functions, as formulas."""

from __future__ import annotations

from collections.abc import Callable

from ...lax.shaping import full
from ...lax.special import bessel_i1e, digamma, erf_inv, lgamma, polygamma, zeta
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, wide


def _function(formula: Callable[[Term], Term]) -> Operator:
    return lambda c, x: formula(wide(x.to(c.dtype)))


def _polygamma(c: AtenCall, n: int, x: Term) -> Term:
    y = wide(x.to(c.dtype))
    return digamma(y) if n == 0 else polygamma(full(c.graph, n, y.dtype, y.dims), y)


def _zeta(c: AtenCall, x: Term, q: Term) -> Term:
    a, b = c.operands(x, q)
    return zeta(a.like(c.shape), b.like(c.shape))


def _i1(x: Term) -> Term:
    return bessel_i1e(x) * x.do("abs").do("exponential")


ROWS: Rows = {
    "aten.lgamma.default": _function(lgamma),
    "prims.lgamma.default": _function(lgamma),
    "aten.digamma.default": _function(digamma),
    "prims.digamma.default": _function(digamma),
    "aten.erfinv.default": _function(erf_inv),
    "prims.erf_inv.default": _function(erf_inv),
    "prims.bessel_i1e.default": _function(bessel_i1e),
    "aten.special_i1e.default": _function(bessel_i1e),
    "prims.bessel_i1.default": _function(_i1),
    "aten.special_i1.default": _function(_i1),
    "aten.polygamma.default": _polygamma,
    "prims.zeta.default": _zeta,
    "aten.special_zeta.default": _zeta,
}
