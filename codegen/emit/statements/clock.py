"""Estimate the time of flat statements from their operations, within a factor of ten either way."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....ir.elementwise import TABLE
from ....ir.loop.affine import Interval, bounds
from ....ir.loop.nodes import (
    AllReduce,
    Cast,
    Expr,
    For,
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
from ....ir.loop.visit import children, loads_in, walk
from ....ir.target import Target

_GATHERED = 5.0  # nanoseconds of an element whose index is loaded
_EXCHANGED = 100.0  # nanoseconds of a collective operation of a simulated GPU


@dataclass(frozen=True)
class Clock:
    """Estimates the nanoseconds of one thread: one for each operation or access of a vector.

    Accesses take ``slow`` times as long. ``ranges`` has the bounds of the variables met so far;
    ``known`` caches the estimate of each statement by its identity.
    """

    target: Target
    slow: float = 1.0
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
    return _GATHERED * len([*loads_in(index)])
