"""The pieces in which the pool's threads share a short parallel loop.

Claiming a piece costs 30 to 150 ns, most of it for lines that go from one core to another, and
pieces that change hands from call to call take their data along. So a loop of a few microseconds is
cut into one piece for each thread, a longer one into more, so that a thread which is held up leaves
some to the others; the pool itself makes at most 16 for each.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.loop.affine import Interval
from ....ir.loop.build import as_int
from ....ir.loop.nodes import For, Var
from ....ir.target import Target
from .clock import Clock

PIECE = 10_000.0  # estimated nanoseconds of a piece above which the cost of its claim is small
MOST = 8  # pieces for each thread above which the pool's own division is as good


def few_pieces(s: For, target: Target, ranges: Mapping[Var, Interval]) -> int | None:
    """Return the pieces of a parallel loop; None to leave it to the pool.

    ``ranges`` are the bounds of the variables around the loop.
    """
    count = as_int(s.extent)
    if count is None:
        return None
    each = int(Clock(target, ranges=dict(ranges)).time(s) / (target.threads * PIECE))
    pieces = target.threads * max(1, each)
    return pieces if each < MOST and pieces < count else None
