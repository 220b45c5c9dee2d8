"""Place interrupt polls in long-running loops of a kernel.

A statement's time is estimated from its operations. A kernel that is estimated below ``LONG`` does
not poll: its caller does, between kernels. In a longer one, the outermost loops whose iterations
are shorter than ``STEP`` poll once per as many iterations as take that long. Such a loop is
strip-mined, so that the inner loop has nothing to do for it. The estimate may be off by a factor of
ten either way: a poll costs about 10 ns, and the guarantee is an answer within 100 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.elementwise import TABLE
from ...ir.loop.affine import Interval, bounds
from ...ir.loop.nodes import (
    AllReduce,
    Cast,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.visit import children, walk, walk_expr
from ...ir.target import Target
from .expr import Emitter

LONG = 400_000.0  # nanoseconds from which a kernel polls
STEP = 200_000.0  # nanoseconds between two polls
MOST = 1 << 24  # iterations between two polls
_GATHERED = 5.0  # nanoseconds of an element whose index is loaded
_EXCHANGED = 100.0  # nanoseconds of a collective operation of a simulated GPU


def poll_points(func: Func, target: Target, slow: float = 1.0) -> Mapping[int, int]:
    """Return the loops of a flat function that poll, by identity, and the iterations between polls.

    ``target`` is the processor that runs it; every access takes ``slow`` times as long as in a
    function compiled for that processor itself.
    """
    clock = _Clock(target, slow)
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


@dataclass(frozen=True)
class _Clock:
    """Time estimates in nanoseconds. ``ranges`` has the bounds of the variables met so far."""

    target: Target
    slow: float
    ranges: dict[Var, Interval] = field(default_factory=dict)
    known: dict[int, float] = field(default_factory=dict)

    def time(self, s: Stmt) -> float:
        """Return the estimated time of a statement."""
        if id(s) not in self.known:
            self.known[id(s)] = self._time(s)
        return self.known[id(s)]

    def count(self, s: For) -> int:
        """Return an upper bound of a loop's trip count."""
        return max(0, bounds(s.extent, self.ranges)[1])

    def _time(self, s: Stmt) -> float:
        match s:
            case For():
                return self._loop(s)
            case Store(index=index, value=value):
                return self.slow * (1.0 + sum(map(_gathered, index)) + self._of(value))
            case Let(var=var, value=value, body=body):
                self.ranges[var] = bounds(value, self.ranges)
                return self._of(value) + self.time(body)
            case If(cond=cond, then=then, orelse=orelse):
                other = 0.0 if orelse is None else self.time(orelse)
                return self._of(cond) + max(self.time(then), other)
            case Intrinsic() | AllReduce():
                return _EXCHANGED
            case _:
                return sum(map(self.time, children(s)))

    def _loop(self, s: For) -> float:
        count = self.count(s)
        self.ranges[s.var] = 0, max(0, count - 1)
        each = self.time(s.body)
        match s.kind:
            case Kind.THREAD:
                return each
            case Kind.VECTOR:
                return -(-count // self._lanes(s)) * each
            case _:
                return count * each

    def _lanes(self, s: For) -> int:
        stored = [x.buffer.dtype for x in walk(s.body) if isinstance(x, Store)]
        return min(map(self.target.lanes, stored), default=1)

    def _of(self, e: Expr) -> float:
        match e:
            case Load(index=index):
                return self.slow * (1.0 + sum(map(_gathered, index)))
            case Op(name=name, args=args):
                return max(1.0, TABLE[name].flops) + sum(map(self._of, args))
            case Cast(value=value):
                return 1.0 + self._of(value)
            case _:
                return 0.0


def _gathered(index: Expr) -> float:
    return _GATHERED * sum(isinstance(x, Load) for x in walk_expr(index))


def _place(s: Stmt, clock: _Clock, found: dict[int, int]) -> bool:
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
