"""A thread's own buffers without the elements that are other threads': steps become small.

``R[k * 256 + v]`` with v < 4  ->  ``R[k * 4 + v]``, where every access to R is so. What is left of
a buffer when the thread's index is taken out of it has gaps, in which the other threads' elements
were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....ir.dtypes import index
from ....ir.loop.affine import Interval, Linear, bounds, bounds_of, linear, loop_range, to_expr
from ....ir.loop.moves import Indices, moved
from ....ir.loop.nodes import (
    Alloc,
    AllReduce,
    Buffer,
    Expr,
    For,
    Func,
    Intrinsic,
    Kind,
    Let,
    Scope,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.simplify import simplify
from ....ir.loop.visit import children, exprs, loads_in, map_stmt
from ..passes.rebuild import with_body

Ranges = Mapping[Var, Interval]


def close_gaps(func: Func) -> Func:
    """Return the function with its threads' own buffers as small as their elements allow."""
    return with_body(func, _closed(func.body, {}, False))


def _closed(s: Stmt, ranges: Ranges, inside: bool) -> Stmt:
    if isinstance(s, For):
        inside = inside or s.kind is Kind.THREAD
        ranges = {**ranges, s.var: loop_range(s.extent, ranges)}
    if isinstance(s, Let) and s.var.dtype == index:
        ranges = {**ranges, s.var: bounds(s.value, ranges)}
    s = map_stmt(s, lambda c: _closed(c, ranges, inside))
    own = (Scope.REGISTER, Scope.GLOBAL)
    if inside and isinstance(s, Alloc) and s.buffer.scope in own:
        return _without_gaps(s, ranges)
    return s


@dataclass
class _Uses:
    """The indices of a buffer, simplified, by dimension. ``plain`` says that those are all."""

    buffer: Buffer
    forms: list[tuple[Linear, ...]] = field(default_factory=list)
    ranges: dict[Var, Interval] = field(default_factory=dict)
    plain: bool = True

    def look(self, s: Stmt) -> None:
        b = self.buffer
        match s:
            case For(var=var, extent=extent):
                self.ranges[var] = loop_range(extent, self.ranges)
            case Let(var=var, value=value) if var.dtype == index:
                self.ranges[var] = bounds(value, self.ranges)
            case Store(buffer=to, index=at) if to is b:
                self.add(at)
            case Intrinsic(writes=writes, reads=reads):
                self.plain &= all(r.buffer is not b for r in (*writes, *reads))
            case AllReduce(values=values):
                self.plain &= b not in values
        for e in exprs(s):
            for x in loads_in(e):
                if x.buffer is b:
                    self.add(x.index)
        for c in children(s):
            self.look(c)

    def add(self, at: Sequence[Expr]) -> None:
        self.forms.append(tuple(linear(simplify(e, self.ranges)) for e in at))


@dataclass(frozen=True, slots=True)
class _Gap:
    """Of each step of ``step`` elements in a dimension the first ``width`` are in use."""

    step: int
    width: int


def _without_gaps(s: Alloc, ranges: Ranges) -> Stmt:
    uses = _Uses(s.buffer, ranges=dict(ranges))
    uses.look(s.body)
    if not uses.plain or not uses.forms:
        return s
    gaps = [_gap([f[d] for f in uses.forms], uses.ranges) for d in range(len(s.buffer.shape))]
    if not any(gaps):
        return s
    shape = tuple(
        n if g is None else -(-n // g.step) * g.width
        for n, g in zip(s.buffer.shape, gaps, strict=True)
    )
    new = replace(s.buffer, shape=shape)

    def closed(at: Indices) -> Indices:
        forms = (linear(simplify(e, uses.ranges)) for e in at)
        pairs = zip(at, forms, gaps, strict=True)
        return tuple(e if g is None else to_expr(_narrowed(f, g)) for e, f, g in pairs)

    return Alloc(new, moved(s.body, {s.buffer: (new, closed)}))


def _gap(forms: Sequence[Linear], ranges: Ranges) -> _Gap | None:
    """Return the largest gap that all indices of a dimension have in common."""
    for step in sorted({abs(k) for f in forms for k in f.terms.values()} - {1}, reverse=True):
        low = [_low_part(f, step) for f in forms]
        spans = [bounds_of(f, ranges) for f in low]
        width = max(high for _, high in spans) + 1
        if all(a >= 0 for a, _ in spans) and width < step:
            return _Gap(step, width)
    return None


def _low_part(f: Linear, step: int) -> Linear:
    return Linear({a: k for a, k in f.terms.items() if k % step}, f.constant % step)


def _narrowed(f: Linear, g: _Gap) -> Linear:
    low = _low_part(f, g.step)
    high = {a: k // g.step * g.width for a, k in f.terms.items() if k % g.step == 0}
    return Linear(high, f.constant // g.step * g.width) + low
