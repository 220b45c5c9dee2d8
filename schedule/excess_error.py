"""The error that a schedule's rewrites add to plain rounding, by the notes of its blocks."""

from __future__ import annotations

from ..ir.loop.nodes import Func
from ..ir.loop.notes import EXCESS_ERROR
from .cursor import nest

BILLIONTH = 1e-9  # the unit of the note


def excess_error(func: Func) -> float:
    """Return an estimate of the added error, relative to the root mean square of the results.

    0 for a schedule that computes the same products and sums in any order.
    """
    index = nest(func)
    return BILLIONTH * sum(EXCESS_ERROR.of(index.block(name)) or 0 for name in index.blocks)
