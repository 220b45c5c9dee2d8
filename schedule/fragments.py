"""Access of single threads to a warp's tiles: each may take the elements that it holds.

The threads of a fragment are a warp as ``threadIdx.y`` by ``threadIdx.x``: rows by pairs of
columns (``fragments.Matrix``). Those of a warp group's tiles are four such warps of 16 rows each
(``GroupMatrix``): the 128 of ``threadIdx.x``, or 32 of ``threadIdx.y`` by 4. A block in loops over
them, which takes only the elements of its own thread, needs no intrinsic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..ir.loop.build import as_int, floordiv, floormod
from ..ir.loop.intrinsics import HELD_COLUMNS, HELD_ROWS, SPREAD, WARP
from ..ir.loop.nodes import Buffer, Expr, For, Scope
from ..ir.loop.simplify import simplify
from ..ir.loop.visit import substitute_expr
from .cursor import Path, block_of, extent_of, loops_of
from .footprint import axis_values
from .owners import thread_loops

WITHIN = ("threadIdx.y", "threadIdx.x")  # the indices that count the threads of a warp
_INSIDE = {Scope.WARP: WITHIN, Scope.WARPGROUP: WITHIN[1:]}
_GROUP_ROWS = 16  # of each warp of a group


def inside(scope: Scope, extents: Mapping[str, int]) -> tuple[str, ...]:
    """Return the indices that count the threads over which a tile is spread, given a launch's."""
    return WITHIN if is_grid_of_lanes(extents, SPREAD[scope]) else _INSIDE[scope]


def is_grid_of_lanes(extents: Mapping[str, int], lanes: int = WARP) -> bool:
    """True if a warp, or the warps of a group, are rows of pairs: as threads hold tiles."""
    return tuple(map(extents.get, WITHIN)) == (lanes // HELD_COLUMNS, HELD_COLUMNS)


def is_alone(path: Path, scope: Scope = Scope.WARP) -> bool:
    """True if the threads of a warp, or of a group, do a block each for itself."""
    return any(t in thread_loops(path) for t in _INSIDE[scope])


def _held(inner: Mapping[str, For], scope: Scope) -> tuple[Expr, Expr, Expr | None] | None:
    """Return the row of eight, the pair of four, and the warp of four that a thread holds."""
    y, x = (inner.get(t) for t in WITHIN)
    if x is None:
        return None
    extents = {t: extent_of(s) or 0 for t, s in inner.items()}
    if y is not None and is_grid_of_lanes(extents, SPREAD[scope]):
        if scope is Scope.WARP:
            return y.var, x.var, None
        return floormod(y.var, HELD_ROWS), x.var, floordiv(y.var, HELD_ROWS)
    if scope is not Scope.WARPGROUP or extent_of(x) != SPREAD[scope]:
        return None
    row = floormod(floordiv(x.var, HELD_COLUMNS), HELD_ROWS)
    return row, floormod(x.var, HELD_COLUMNS), floordiv(x.var, WARP)


def holds(path: Path, buffer: Buffer) -> bool:
    """True if each thread that does a block accesses only what it holds of a tile."""
    block, mine = block_of(path), _held(thread_loops(path), buffer.scope)
    if mine is None:
        return False
    values = axis_values(block)
    ranges = {s.var: (0, (extent_of(s) or 1) - 1) for s in loops_of(path)}
    wanted = tuple(None if e is None else simplify(e, ranges) for e in mine)
    for r in (*block.reads, *block.writes):
        if r.buffer is not buffer:
            continue
        if len(r.ranges) < 2 or any(as_int(d.extent) != 1 for d in r.ranges):
            return False
        row, column = (simplify(substitute_expr(d.start, values), ranges) for d in r.ranges[-2:])
        warp = floormod(floordiv(row, _GROUP_ROWS), SPREAD[buffer.scope] // WARP)
        pair = floordiv(floormod(column, 2 * HELD_COLUMNS), 2)
        found = floormod(row, HELD_ROWS), pair, None if mine[2] is None else warp
        if tuple(None if e is None else simplify(e, ranges) for e in found) != wanted:
            return False
    return True


def shared_out(paths: Collection[Path], buffer: Buffer) -> bool:
    """True if single threads access no more of a tile than each holds."""
    return all(holds(p, buffer) for p in paths if is_alone(p, buffer.scope))
