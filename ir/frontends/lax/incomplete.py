"""The incomplete gamma functions, which no fixed formula gives: loops until all elements settle."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

from .control import while_loop
from .reductions import any_
from .shaping import full
from .special import lgamma
from .term import Term

STEPS = 20000
"""Iterations of a loop at most: about 6 times the square root of ``a`` are needed for x near it."""
_CLOSE = 2.0**-50
_TINY = 1e-300  # stands for a denominator of 0


def gamma_p(a: Term, x: Term) -> Term:
    """The regularized lower incomplete gamma function of f64 terms of one shape.

    0 at x = 0 and for infinite ``a``, 1 for infinite x and at a = 0; NaN below 0, and where two of
    these meet.
    """
    lower, upper, near = _parts(a, x)
    value = near.select(lower, 1 - upper)
    value = (x.equals(0) | a.equals(inf)).select(0, value)
    return _edges(a, x, (x.equals(inf) | a.equals(0)).select(1, value))


def gamma_q(a: Term, x: Term) -> Term:
    """The regularized upper incomplete gamma function: 1 less ``gamma_p``, exact where it is small.

    Takes f64 terms of one shape, and is NaN where ``gamma_p`` is.
    """
    lower, upper, near = _parts(a, x)
    value = near.select(1 - lower, upper)
    value = (x.equals(0) | a.equals(inf)).select(1, value)
    return _edges(a, x, (x.equals(inf) | a.equals(0)).select(0, value))


def _edges(a: Term, x: Term, value: Term) -> Term:
    """NaN below 0, and where both are 0 or both are infinite."""
    bad = (a < 0) | (x < 0) | a.differs(a) | x.differs(x)
    both = (a.equals(0) & x.equals(0)) | (a.equals(inf) & x.equals(inf))
    return (bad | both).select(nan, value)


def _parts(a: Term, x: Term) -> tuple[Term, Term, Term]:
    """The lower function by its series, the upper one by its fraction, and where the first holds.

    Each is computed where it is used: below x = a + 1 the series, above it the fraction (Abramowitz
    and Stegun, 6.5.29 and 6.5.31). The other elements have arguments that settle at once.
    """
    plain = (a > 0) & (x > 0) & (a < inf) & (x < inf)
    near = x < a + 1
    of_series, of_fraction = plain & near, plain & ~near
    scale = (a * x.do("log") - x - lgamma(a)).do("exponential")
    series = _series(of_series.select(a, 1), of_series.select(x, 0))
    fraction = _fraction(of_fraction.select(a, 1), of_fraction.select(x, 2))
    return scale * series, scale * fraction, near


def _series(a: Term, x: Term) -> Term:
    """The sum of x^n / (a (a + 1) .. (a + n)) over n from 0."""

    def settled(number: Term, part: Term, total: Term) -> Term:
        return (number < STEPS) & any_(part > total * _CLOSE)

    def step(number: Term, part: Term, total: Term) -> Sequence[Term]:
        part = part * x / (a + number)
        return [number + 1, part, total + part]

    first = 1 / a
    return while_loop(settled, step, [_one(a), first, first])[2]


def _fraction(a: Term, x: Term) -> Term:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ..)), from the front.

    Numerator and denominator of each iteration are kept as quotients by those of the one before
    (W. J. Lentz, Applied Optics 15, 1976; I. J. Thompson and A. R. Barnett, Journal of
    Computational Physics 64, 1986), which do not overflow.
    """
    base = x + 1 - a

    def settled(number: Term, above: Term, below: Term, value: Term, change: Term) -> Term:
        return (number < STEPS) & any_((change - 1).do("abs") > _CLOSE)

    def step(number: Term, above: Term, below: Term, value: Term, change: Term) -> Sequence[Term]:
        over = number * (a - number)
        under = base + number * 2
        below = 1 / _apart(under + over * below)
        above = _apart(under + over / above)
        change = above * below
        return [number + 1, above, below, value * change, change]

    first = 1 / _apart(base)
    start = [
        _one(a),
        full(a.site, 1 / _TINY, a.dtype, a.dims),
        first,
        first,
        full(a.site, 0, a.dtype, a.dims),
    ]
    return while_loop(settled, step, start)[3]


def _one(a: Term) -> Term:
    return full(a.site, 1, a.dtype)


def _apart(x: Term) -> Term:
    return x.equals(0).select(_TINY, x)
