"""Who stores what of a warp group's tiles: two rows of pairs of a box of 64 x 8 are a thread's own.

By ``stmatrix`` a thread stores a row of eight of a box of 64 x 16, which others hold.
"""

from __future__ import annotations

from .....ir.loop.build import add, floordiv, floormod, mul, points
from .....ir.loop.intrinsics import WARP
from .....ir.loop.nodes import Const, Expr, Intrinsic, Range, Region


def stored_by(s: Intrinsic, thread: Expr) -> tuple[Region, ...]:
    """Return what a thread of a group stores, if it is a tile of the group's; else nothing."""
    match s.name:
        case "store_accumulators":
            return own_pairs(s.writes[0], thread)
        case "store_results":
            return (own_row(s.writes[0], thread),)
        case _:
            return ()


def own_row(to: Region, thread: Expr) -> Region:
    """Return the row of a box that a thread points to: 8 x 8 of a warp's four by every 8 lanes."""
    *lead, m, n = (x.start for x in to.ranges)
    lane, warp = floormod(thread, WARP), floordiv(thread, WARP)
    row = add(m, add(mul(warp, 16), floormod(lane, 16)))
    column = add(n, mul(floordiv(lane, 16), 8))
    return Region(to.buffer, (*points((*lead, row)), Range(column, Const(8))))


def own_pairs(to: Region, thread: Expr) -> tuple[Region, Region]:
    """Return what a thread of a group stores of a box: elements 0 and 1 of its sums, then 2 and 3.

    As ``GroupMatrix.c`` has it, for eight columns.
    """
    *lead, m, n = (x.start for x in to.ranges)
    lane, warp = floormod(thread, WARP), floordiv(thread, WARP)
    row = add(m, add(mul(warp, 16), floordiv(lane, 4)))
    column = add(n, mul(floormod(lane, 4), 2))

    def pair(at: Expr) -> Region:
        return Region(to.buffer, (*points((*lead, at)), Range(column, Const(2))))

    return pair(row), pair(add(row, 8))
