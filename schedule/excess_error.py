"""The error that a schedule's rewrites add to plain rounding, by the notes of its blocks."""

from __future__ import annotations

import math

from ..ir.loop.nodes import Func
from ..ir.loop.notes import EXCESS_ERROR
from ..ir.target import Target
from .cursor import nest
from .errors import ScheduleError

BILLIONTH = 1e-9  # the unit of the note


def rounding_error(terms: int, growth: float) -> float:
    """Estimate the error of sums of ``terms`` products in f32, relative to their root mean square.

    It is that of normally distributed factors; ``growth`` is how many times larger than in plain
    sums an algorithm makes it. Measured errors were 0.4 to 0.7 of the estimate, for transformed
    tiles of 16 to 512 channels.
    """
    return 2.0**-24 * growth * (0.3 * math.sqrt(terms) + 2.0)


def excess_error(func: Func) -> float:
    """Return an estimate of the added error, relative to the root mean square of the results.

    0 for a schedule that computes the same products and sums in any order.
    """
    index = nest(func)
    return BILLIONTH * sum(EXCESS_ERROR.of(index.block(name)) or 0 for name in index.blocks)


def require_accuracy(func: Func, target: Target) -> None:
    """Raise ``ScheduleError`` if a schedule adds more error than the target allows."""
    error = excess_error(func)
    if error > target.accuracy:
        raise ScheduleError(
            f"use this schedule for {target.spec}",
            f"it adds an error of about {error:.1e} of the result's root mean square to rounding",
            hint=f"accuracy={10 * error:.0e} allows it",
        )
