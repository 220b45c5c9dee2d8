"""Keep unrolled loops rolled where they are simulated: less code to compile, the same results.

``for i in unroll(8): f``  ->  ``for i in range(8): f``. Operations of a warp are left unrolled:
consecutive ones need only one rendezvous of the lanes.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.loop.build import as_int
from ....ir.loop.nodes import For, Func, Intrinsic, Kind, Stmt
from ....ir.loop.visit import map_stmt, walk

SHORT = 2  # iterations that are written out all the same


def roll(func: Func) -> Func:
    """Return the function with its unrolled loops as serial ones."""
    return replace(func, body=_rolled(func.body))


def _rolled(s: Stmt) -> Stmt:
    if isinstance(s, For) and s.kind is Kind.UNROLLED and (as_int(s.extent) or 0) > SHORT:
        if any(isinstance(x, Intrinsic) for x in walk(s.body)):
            return s
        s = replace(s, kind=Kind.SERIAL)
    return map_stmt(s, _rolled)
