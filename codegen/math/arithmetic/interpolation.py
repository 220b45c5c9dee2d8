"""Polynomials fitted in decimal arithmetic, so that they are the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

DIGITS = 40
"""Of the decimal arithmetic: half of them may be lost."""


def interpolated(
    function: Callable[[Decimal], Decimal], center: float, length: float, degree: int
) -> list[float]:
    """Return the coefficients of ``function(center + t)`` in ``t``, from the constant term up.

    The polynomial has the function's values at the Chebyshev nodes of ``-length/2 .. length/2``.
    """
    with localcontext() as context:
        context.prec = DIGITS
        turns = (math.cos((2 * k + 1) * math.pi / (2 * degree + 2)) for k in range(degree + 1))
        nodes = [Decimal(length) / 2 * Decimal(round(turn, 6)) for turn in turns]
        values = [function(Decimal(center) + t) for t in nodes]
        return [float(c) for c in _coefficients(nodes, values)]


def _coefficients(nodes: Sequence[Decimal], values: Sequence[Decimal]) -> list[Decimal]:
    """Return the coefficients of the polynomial with these values, by Newton's formula."""
    divided = list(values)
    for order in range(1, len(nodes)):
        for k in range(len(nodes) - 1, order - 1, -1):
            divided[k] = (divided[k] - divided[k - 1]) / (nodes[k] - nodes[k - order])
    result = [divided.pop()]
    for node, value in zip(reversed(nodes[:-1]), reversed(divided), strict=True):
        times_t = [value, *result]
        times_node = [node * c for c in result] + [Decimal(0)]
        result = [a - b for a, b in zip(times_t, times_node, strict=True)]
    return result
