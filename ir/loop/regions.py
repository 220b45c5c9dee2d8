"""The box of a buffer that a statement touches while its own loops run over their whole range.

A box has, per dimension, a start over the variables from outside the statement and a constant
extent. It covers every access, those under a guard or in a selection too, and may be too large:
what cannot be bounded takes the whole dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..dtypes import index
from .affine import (
    HIGH,
    LOW,
    Interval,
    Linear,
    Ranges,
    bounds,
    bounds_of,
    bump,
    linear,
    loop_range,
    to_expr,
)
from .build import point
from .nodes import (
    AllReduce,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Intrinsic,
    Let,
    Op,
    Range,
    Region,
    Stmt,
    Store,
    Var,
    quick,
)
from .simplify import Simplifier
from .visit import children, exprs, free_vars, loads_in, map_region, substitute_expr


@quick
@dataclass(frozen=True, slots=True)
class Access:
    """A box that a statement reads or writes, over loop variables.

    Variables of block axes and of ``Let`` are replaced by their values.
    """

    region: Region
    write: bool


def accesses(s: Stmt, only: Buffer | None = None) -> Iterator[Access]:
    """Every access under ``s`` in program order, or those of one buffer. Of a block, what it
    declares."""
    yield from _accesses(s, {}, only)


def _accesses(s: Stmt, values: Mapping[Var, Expr], only: Buffer | None) -> Iterator[Access]:
    match s:
        case Block(axes=axes, reads=reads, writes=writes, predicate=predicate):
            own = {a.var: substitute_expr(a.value, values) for a in axes}
            for a in axes:
                yield from _loads(a.value, values, only)
            values = {**values, **own}
            if predicate is not None:
                yield from _loads(predicate, values, only)
            for regions, write in ((reads, False), (writes, True)):
                for r in regions:
                    if only in (None, r.buffer):
                        yield Access(_substituted(r, values), write)
            return
        case Let(var=var, value=value) if var.dtype == index:
            yield from _loads(value, values, only)
            yield from _accesses(s.body, {**values, var: substitute_expr(value, values)}, only)
            return
    for e in exprs(s):
        yield from _loads(e, values, only)
    match s:
        case Store(buffer=b) if only in (None, b):
            yield Access(_substituted(point(b, s.index), values), True)
        case Intrinsic(reads=reads, writes=writes):
            for regions, write in ((reads, False), (writes, True)):
                found = (r for r in regions if only in (None, r.buffer))
                yield from (Access(_substituted(r, values), write) for r in found)
        case AllReduce():
            of = (b for b in s.values if only in (None, b))
            held = [point(b, (Const(0),) * len(b.shape)) for b in of]
            yield from (Access(r, write) for write in (False, True) for r in held)
    for child in children(s):
        yield from _accesses(child, values, only)


def _loads(e: Expr, values: Mapping[Var, Expr], only: Buffer | None) -> Iterator[Access]:
    for x in loads_in(e):
        if only in (None, x.buffer):
            yield Access(_substituted(point(x.buffer, x.index), values), False)


def _substituted(r: Region, values: Mapping[Var, Expr]) -> Region:
    return map_region(r, lambda e: substitute_expr(e, values)) if values else r


def loop_ranges(s: Stmt, outer: Ranges = MappingProxyType({})) -> dict[Var, Interval]:
    """Return the ranges of the loop variables under ``s``; of a loop that never runs, 0."""
    found: dict[Var, Interval] = {}
    known = dict(outer)

    def visit(x: Stmt) -> None:
        if isinstance(x, For):
            known[x.var] = found[x.var] = loop_range(x.extent, known)
        for child in children(x):
            visit(child)

    visit(s)
    return found


def touched(s: Stmt, buffer: Buffer, outer: Ranges = MappingProxyType({})) -> Region | None:
    """Return the box of ``buffer`` that ``s`` reads or writes; None if it does neither.

    ``outer`` are the ranges of variables from outside ``s``, as far as known.
    """
    spans = Spans(loop_ranges(s, outer), outer)
    box: Region | None = None
    for access in accesses(s, buffer):
        new = spans.box(access.region)
        box = new if box is None else _union(box, new, outer)
    return box


def _union(a: Region, b: Region, ranges: Ranges) -> Region:
    """Return the smallest box known to cover two boxes of one buffer, given by ``Spans.box``."""
    ranges_ = tuple(
        _hull(x, y, n, ranges) for x, y, n in zip(a.ranges, b.ranges, a.buffer.shape, strict=True)
    )
    return Region(a.buffer, ranges_)


def _hull(a: Range, b: Range, size: int, ranges: Ranges) -> Range:
    if a == b:
        return a
    low, high = bounds_of(linear(b.start) - linear(a.start), ranges)
    m, n = bounds(a.extent, ranges)[1], bounds(b.extent, ranges)[1]
    if low < 0 <= -high:
        a, b, m, n, low, high = b, a, n, m, -high, -low
    if low < 0 or high == HIGH:
        return Range(Const(0), Const(size))
    return _clipped(linear(a.start), max(m, high + n), size)


def _clipped(start: Linear, extent: int, size: int) -> Range:
    """Return a range within a dimension of ``size`` elements; accesses beyond it never happen."""
    if extent >= size:
        return Range(Const(0), Const(size))
    if start.terms:
        return Range(to_expr(start), Const(extent))
    low, high = max(start.constant, 0), min(start.constant + extent, size)
    return Range(Const(low), Const(max(high - low, 0)))


@quick
@dataclass(frozen=True, slots=True)
class Span:
    """The values ``start .. start + width``, both included; ``start`` is over outer variables."""

    start: Linear
    width: int


class Spans:
    """Spans of expressions while the ``inner`` variables run and the others are held."""

    def __init__(self, inner: Ranges, outer: Ranges) -> None:
        self.inner = inner
        self.ranges = {**outer, **inner}
        self.simple = Simplifier(self.ranges)

    def box(self, r: Region) -> Region:
        """Return the box that ``r`` sweeps, within its buffer."""
        ranges = []
        for x, size in zip(r.ranges, r.buffer.shape, strict=True):
            span = self.span(x.start)
            more = bounds(self.simple.expr(x.extent), self.ranges)[1] - 1
            if span is None or more >= size:
                ranges.append(Range(Const(0), Const(size)))
            else:
                ranges.append(_clipped(span.start, span.width + more + 1, size))
        return Region(r.buffer, tuple(ranges))

    def span(self, e: Expr) -> Span | None:
        """Return the values that ``e`` takes; None where no constant width is known."""
        return self.of_form(linear(self.simple.expr(e)))

    def of_form(self, form: Linear) -> Span | None:
        """Return the values of a linear form whose atoms are simplified."""
        terms: dict[Expr, int] = {}
        constant, width = form.constant, 0
        for atom, k in form.terms.items():
            span = self.of_atom(atom)
            if span is None:
                return None
            for x, c in span.start.terms.items():
                bump(terms, x, k * c)
            constant += k * span.start.constant + min(k, 0) * span.width
            width += abs(k) * span.width
        return Span(Linear(terms, constant), width)

    def of_atom(self, e: Expr) -> Span | None:
        """Return the values of an atom, or None where they are unknown."""
        if isinstance(e, Var):
            if e not in self.inner:
                return Span(Linear({e: 1}), 0)
            low, high = self.inner[e]
            return Span(Linear({}, low), high - low) if high < HIGH else None
        if self.inner.keys().isdisjoint(free_vars(e)):
            return Span(Linear({e: 1}), 0)
        match e:
            case Op(name="floordiv", args=(x, Const(value=int(c)))):
                return self.quotient(self.of_form(linear(x)), c)
            case Op(name="floormod", args=(x, Const(value=int(c)))):
                span = self.of_form(linear(x))
                if span is None or span.start.terms:
                    return Span(Linear({}), c - 1)
            case Op(name="minimum" | "maximum" | "select" as name, args=(*_, a, b)):
                p, q = self.of_form(linear(a)), self.of_form(linear(b))
                if p is not None and q is not None and not (q.start - p.start).terms:
                    return _either(name, p, q)
        low, high = bounds(e, self.ranges)
        return None if low == LOW or high == HIGH else Span(Linear({}, low), high - low)

    def quotient(self, span: Span | None, c: int) -> Span | None:
        """Return ``(s + w) // c`` for ``0 <= w <= width``: how many quotients depends on where
        s lies.
        """
        if span is None:
            return None
        start, width = span.start, span.width
        if start.constant % c == 0 and all(k % c == 0 for k in start.terms.values()):
            whole = Linear({a: k // c for a, k in start.terms.items()}, start.constant // c)
            return Span(whole, width // c)
        if not start.terms:
            return Span(
                Linear({}, start.constant // c), (start.constant + width) // c - start.constant // c
            )
        return Span(self.simple.quotient(start, c), (width + c - 1) // c)


def _either(name: str, p: Span, q: Span) -> Span:
    shift = (q.start - p.start).constant
    lows, highs = (0, shift), (p.width, shift + q.width)
    low = max(lows) if name == "maximum" else min(lows)
    high = min(highs) if name == "minimum" else max(highs)
    return Span(p.start + Linear({}, low), high - low)
