"""Who stores which sums of a warp group: two rows of pairs for each thread of a box of 64 x 8."""

from __future__ import annotations

from ....ir.loop.build import add, floordiv, floormod, mul
from ....ir.loop.intrinsics import WARP
from ....ir.loop.nodes import Const, Expr, Intrinsic, Range, Region


def is_store_of_group(s: Intrinsic) -> bool:
    """True if the threads of a group each store their own sums of a box."""
    return s.name == "store_accumulators"


def own_pairs(to: Region, thread: Expr) -> tuple[Region, Region]:
    """Return what a thread of a group stores of a box: elements 0 and 1 of its sums, then 2 and 3.

    As ``GroupMatrix.c`` has it, for eight columns.
    """
    *lead, m, n = (x.start for x in to.ranges)
    lane, warp = floormod(thread, WARP), floordiv(thread, WARP)
    row = add(m, add(mul(warp, 16), floordiv(lane, 4)))
    column = add(n, mul(floormod(lane, 4), 2))

    def pair(at: Expr) -> Region:
        one = (Range(e, Const(1)) for e in (*lead, at))
        return Region(to.buffer, (*one, Range(column, Const(2))))

    return pair(row), pair(add(row, 8))
