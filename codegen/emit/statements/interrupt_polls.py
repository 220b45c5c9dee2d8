"""Place interrupt polls in long-running loops of a kernel.

A statement's time is estimated from its operations. A kernel that is estimated below ``LONG`` does
not poll: its caller does, between kernels. In a longer one, the outermost loops whose iterations
are shorter than ``STEP`` poll once per as many iterations as take that long. Such a loop is
strip-mined, so that the inner loop has nothing to do for it. The estimate may be off by a factor of
ten either way: a poll costs about 10 ns, and the guarantee is an answer within 100 ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.loop.nodes import For, Func, Kind, Stmt
from ....ir.loop.visit import children, walk
from ....ir.target import Target
from ..expr import Emitter
from .clock import Clock

LONG = 400_000.0  # nanoseconds from which a kernel polls
STEP = 200_000.0  # nanoseconds between two polls
MOST = 1 << 24  # iterations between two polls


def poll_points(func: Func, target: Target, slow: float = 1.0) -> Mapping[int, int]:
    """Return the loops of a flat function that poll, by identity, and the iterations between polls.

    ``target`` is the processor that runs it; every access takes ``slow`` times as long as in a
    function compiled for that processor itself.
    """
    clock = Clock(target, slow)
    found: dict[int, int] = {}
    if clock.time(func.body) >= LONG:
        _place(func.body, clock, found)
    return found


def close_loop(em: Emitter, s: For, name: str, begin: str, end: str, step: int, bits: int) -> None:
    """End a loop's body in the open function, with a poll if the loop is one that polls."""
    every = em.polls.get(id(s), 0)
    if every:
        em.declare(em.function.poll, "i1", [])
    em.function.close_loop(name, begin, end, step, bits, every)


def return_if_interrupted(em: Emitter, s: Stmt) -> None:
    """Emit an early return after a statement that may have been interrupted."""
    if any(id(x) in em.polls for x in walk(s)):
        em.declare(em.function.poll, "i1", [])
        em.function.poll_here()


def _place(s: Stmt, clock: Clock, found: dict[int, int]) -> bool:
    """Choose the loops of a statement that poll; return True if there are any."""
    if clock.time(s) < STEP:
        return False
    if not isinstance(s, For):
        return any([_place(c, clock, found) for c in children(s)])
    each = clock.time(s.body)
    inside = each >= STEP and _place(s.body, clock, found)
    if inside or s.kind in (Kind.THREAD, Kind.UNROLLED):
        return inside or _place(s.body, clock, found)
    found[id(s)] = min(MOST, max(1, int(STEP / each)))
    return True
