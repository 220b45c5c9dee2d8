"""Access of single threads to a warp's tiles: each may take the elements that it holds.

The threads of a fragment are a warp as ``threadIdx.y`` by ``threadIdx.x``: rows by pairs of
columns (``intrinsics.Matrix``). A block in loops over both, which takes only the elements of its
own thread, needs no intrinsic.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir.loop.build import as_int, floordiv, floormod
from ..ir.loop.intrinsics import HELD_COLUMNS, HELD_ROWS
from ..ir.loop.nodes import Buffer
from ..ir.loop.simplify import simplify
from ..ir.loop.visit import substitute_expr
from .cursor import Path, block_of, extent_of, loops_of
from .footprint import axis_values
from .owners import thread_loops

WITHIN = ("threadIdx.y", "threadIdx.x")  # the indices that count the threads of a warp


def is_alone(path: Path) -> bool:
    """True if the threads of a warp do a block each for itself."""
    return any(t in thread_loops(path) for t in WITHIN)


def holds(path: Path, buffer: Buffer) -> bool:
    """True if each thread that does a block accesses only what it holds of a warp's tiles."""
    block, inner = block_of(path), thread_loops(path)
    y, x = (inner.get(t) for t in WITHIN)
    if y is None or x is None or (extent_of(y), extent_of(x)) != (HELD_ROWS, HELD_COLUMNS):
        return False
    values = axis_values(block)
    ranges = {s.var: (0, (extent_of(s) or 1) - 1) for s in loops_of(path)}
    for r in (*block.reads, *block.writes):
        if r.buffer is not buffer:
            continue
        if len(r.ranges) < 2 or any(as_int(d.extent) != 1 for d in r.ranges):
            return False
        row, column = (simplify(substitute_expr(d.start, values), ranges) for d in r.ranges[-2:])
        pair = floordiv(floormod(column, 2 * HELD_COLUMNS), 2)
        if simplify(floormod(row, HELD_ROWS), ranges) != y.var:
            return False
        if simplify(pair, ranges) != x.var:
            return False
    return True


def shared_out(paths: Collection[Path], buffer: Buffer) -> bool:
    """True if single threads access no more of a warp's tiles than each holds."""
    return all(holds(p, buffer) for p in paths if is_alone(p))
