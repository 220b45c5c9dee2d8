"""Split loops where their guards become certain: a main part without them, and the edges.

``for i in range(5): for j in range(8): if i * 8 + j < 37: body``  ->
``for i in range(4): for j in range(8): body`` and then ``for j in range(5): body`` for i = 4.

A parallel loop is not split: its body asks which part an iteration belongs to; so is that of a
name (see ``name_quotients``). A vector loop is only shortened; one that is to be pipelined stays
whole. Copies are made as long as the function stays within a limit of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from ....ir.dtypes import index
from ....ir.loop.affine import Interval, Linear, bounds, bounds_of, linear, loop_range, mentions
from ....ir.loop.build import add, as_int, both, compare, conjuncts
from ....ir.loop.copies import renamed
from ....ir.loop.nodes import Alloc, Const, Expr, For, Func, If, Kind, Let, Op, Seq, Stmt, Var
from ....ir.loop.notes import PIPELINE
from ....ir.loop.simplify import EMPTY, simplify_stmt
from ....ir.loop.visit import exprs, map_stmt, seq, substitute, walk, walk_expr
from ....ir.target import Target
from .rebuild import with_body
from .weight import LIMIT, weight

FEW = 3  # iterations of a loop that are parted one by one if no two decide the same guards
Ranges = dict[Var, Interval]


def partition(func: Func, target: Target, limit: int = LIMIT) -> Func:
    """Return the function with its loops split where guards can be decided by it.

    Copies are made as long as it has at most ``limit`` lines.
    """
    spare = max(0, limit - weight(func.body, target))
    return with_body(func, _Partition(target, spare).stmt(func.body, {}))


@dataclass
class _Partition:
    target: Target
    spare: int  # lines that copies may still cost

    def stmt(self, s: Stmt, ranges: Ranges) -> Stmt:
        match s:
            case For():
                return self.loop(s, ranges)
            case Let(var=var, value=value) if var.dtype == index:
                low, high = bounds(value, ranges)
                return self.name(s, {**ranges, var: (low, high)}, low, high + 1)
            case _:
                return map_stmt(s, lambda c: self.stmt(c, ranges))

    def loop(self, s: For, ranges: Ranges) -> Stmt:
        shorter = _without_idle_ends(s, ranges)
        if shorter is not s:
            return self.stmt(simplify_stmt(shorter, ranges), ranges)
        count = as_int(s.extent)
        high = bounds(s.extent, ranges)[1]
        inside = {**ranges, s.var: (0, max(high - 1, 0))}
        if count is None or count < 2 or s.kind is Kind.THREAD or PIPELINE.of(s):
            return self.inner(s, inside)
        start, stop = certain(s.body, s.var, (0, count), inside)
        if count <= FEW and start >= stop:
            start, stop = 0, 1  # each iteration decides other guards
        if (start, stop) == (0, count) or start >= stop:
            return self.inner(s, inside)
        if s.kind is Kind.VECTOR:
            return self.shortened(s, ranges, start, stop)
        copies = (start > 0) + (stop < count)
        if s.kind is not Kind.UNROLLED and not self.affords(s.body, copies):
            return self.inner(s, inside)
        if s.kind is Kind.PARALLEL:
            return replace(s, body=self.parts(s.body, s.var, inside, (0, start, stop, count)))
        pieces = [
            self.piece(s, a, b, ranges)
            for a, b in ((0, start), (start, stop), (stop, count))
            if a < b
        ]
        return seq(*pieces)

    def inner(self, s: For, inside: Ranges) -> Stmt:
        body = self.stmt(s.body, inside)
        return s if body is s.body else replace(s, body=body)

    def affords(self, body: Stmt, copies: int) -> bool:
        cost = copies * weight(body, self.target)
        if cost > self.spare:
            return False
        self.spare -= cost
        return True

    def piece(self, s: For, start: int, stop: int, ranges: Ranges) -> Stmt:
        """Iterations ``start`` to ``stop - 1`` as a loop of their own."""
        part = renamed(s)
        assert isinstance(part, For)
        if start:
            part = replace(part, body=substitute(part.body, {part.var: add(part.var, start)}))
        made = simplify_stmt(replace(part, extent=Const(stop - start)), ranges)
        return self.stmt(made, ranges)

    def shortened(self, s: For, ranges: Ranges, start: int, stop: int) -> Stmt:
        """Return a vector loop without last iterations that do nothing, or as it was."""
        count = as_int(s.extent)
        inside = {**ranges, s.var: (stop, count - 1 if count else stop)}
        if start > 0 or simplify_stmt(s.body, inside) != EMPTY:
            return self.inner(s, {**ranges, s.var: (0, (count or 1) - 1)})
        return self.piece(s, 0, stop, ranges)

    def name(self, s: Let, inside: Ranges, low: int, end: int) -> Stmt:
        start, stop = certain(s.body, s.var, (low, end), inside)
        split = start < stop and (start, stop) != (low, end) and end - low < 2**31
        if split and self.affords(s.body, (start > low) + (stop < end)):
            return replace(s, body=self.parts(s.body, s.var, inside, (low, start, stop, end)))
        body = self.stmt(s.body, inside)
        return s if body is s.body else replace(s, body=body)

    def parts(self, body: Stmt, var: Var, ranges: Ranges, cuts: tuple[int, int, int, int]) -> Stmt:
        """Return ``if start <= var < stop: body else: edges``, each for its values of ``var``."""
        low, start, stop, end = cuts

        def part(a: int, b: int) -> Stmt:
            copy = renamed(body)
            if b - a == 1:
                copy = substitute(copy, {var: Const(a)})
            inside = {**ranges, var: (a, b - 1)}
            return self.stmt(simplify_stmt(copy, inside), inside)

        main = part(start, stop)
        before = part(low, start) if low < start else None
        after = part(stop, end) if stop < end else None
        edges = before if after is None else after
        if before is not None and after is not None:
            edges = If(compare("lt", var, start), before, after)
        inside = both(
            compare("le", start, var) if before is not None else None,
            compare("lt", var, stop) if after is not None else None,
        )
        return main if inside is None else If(inside, main, None if edges == EMPTY else edges)


def _without_idle_ends(s: For, ranges: Ranges) -> For:
    """Return ``s`` without first and last iterations in which every statement's guards fail."""
    count = as_int(s.extent)
    if count is None or not any(isinstance(x, If) for x in walk(s.body)):
        return s
    inner = _inner_ranges(s.body, {**ranges, s.var: (0, max(count - 1, 0))})
    start, stop = _busy(s.body, s.var, (0, count), inner)
    if (start, stop) == (0, count):
        return s
    if start:
        s = replace(s, body=substitute(s.body, {s.var: add(s.var, start)}))
    return replace(s, extent=Const(stop - start))


def _busy(s: Stmt, var: Var, span: Interval, ranges: Mapping[Var, Interval]) -> Interval:
    """Return the half-open part of ``span`` for which ``s`` may do something, or (0, 0)."""
    match s:
        case For(body=body) | Let(body=body) | Alloc(body=body):
            return _busy(body, var, span, ranges)
        case If(cond=cond, then=then, orelse=None):
            start, stop = _busy(then, var, span, ranges)
            for c in filter(is_bound, conjuncts(cond)):
                start, stop = _where_possible(c, var, (start, stop), ranges)
            return (start, stop) if start < stop else (0, 0)
        case Seq(stmts=parts):
            start, stop = 0, 0
            for part in parts:
                first, last = _busy(part, var, span, ranges)
                if first < last:
                    start, stop = (min(start, first), max(stop, last)) if stop else (first, last)
                if (start, stop) == span:
                    break
            return start, stop
        case _:
            return span


def _where_possible(cond: Op, var: Var, span: Interval, ranges: Mapping[Var, Interval]) -> Interval:
    """Return ``span`` without the values at its ends for which ``cond`` cannot hold."""
    form = positive_form(cond)
    k = form.terms.get(var, 0)
    if k == 0:
        return span
    high = bounds_of(form.plus(Linear({var: 1}), -k), ranges)[1]
    if k < 0:
        return span[0], min(span[1], max(-(-high // -k), 0))
    return max(span[0], -high // k + 1), span[1]


def certain(body: Stmt, var: Var, span: Interval, ranges: Ranges) -> Interval:
    """Return the iterations in which every guard that depends on ``var`` is decided, as a
    half-open span.

    The span is the given one if there is no such guard, and empty (start >= stop) if no iteration
    decides them all. A bound may hold in it or not, whichever is so for longer.
    """
    start, stop = span
    inner: Mapping[Var, Interval] | None = None  # not needed where nothing depends on the loop
    for cond in _guards(body):
        form = positive_form(cond)
        if var not in form.terms or any(a is not var and mentions(a, var) for a in form.terms):
            continue
        inner = _inner_ranges(body, ranges) if inner is None else inner
        k = form.terms[var]
        rest = form.plus(Linear({var: 1}), -k)
        low, high = bounds_of(rest, inner)
        if cond.name in ("eq", "ne"):
            start, stop = _without_zero(k, low, high, (start, stop))
        else:
            start, stop = _decided(k, low, high, (start, stop))
    return start, stop


def _decided(k: int, low: int, high: int, span: Interval) -> Interval:
    """Return the longer part of the span in which ``k * v + rest`` is above 0, or is not."""
    start, stop = span
    if k < 0:
        above = start, min(stop, max(-(-low // -k), start))
        below = max(start, -(-high // -k)), stop
    else:
        above = max(start, -low // k + 1), stop
        below = start, min(stop, max(-high // k + 1, start))
    return max(above, below, key=lambda part: part[1] - part[0])


def _without_zero(k: int, low: int, high: int, span: Interval) -> Interval:
    """Return the span less its first or last values, where ``k * v + rest`` may be zero."""
    first, last = sorted((-low // k, -high // k))  # of zeros, rounded down
    last += 1
    start, stop = span
    if first <= start <= last < stop:
        return last, stop
    if start < first < stop <= last + 1:
        return start, first
    return span


def _inner_ranges(body: Stmt, ranges: Ranges) -> Mapping[Var, Interval]:
    """Return the ranges of the variables inside ``body`` and outside."""
    known = dict(ranges)
    for x in walk(body):
        if isinstance(x, For):
            known[x.var] = loop_range(x.extent, known)
        elif isinstance(x, Let) and x.var.dtype == index:
            known[x.var] = bounds(x.value, known)
    return known


def _guards(body: Stmt) -> Iterator[Op]:
    """Comparisons of indices on which branches and selections depend."""
    for x in walk(body):
        if isinstance(x, If):
            yield from _comparisons(x.cond)
        for e in exprs(x):
            for y in walk_expr(e):
                if isinstance(y, Op) and y.name == "select":
                    yield from _comparisons(y.args[0])


def _comparisons(e: Expr) -> Iterator[Op]:
    match e:
        case Op(name="and" | "or" | "not", args=args):
            for a in args:
                yield from _comparisons(a)
        case Op(name="lt" | "le" | "gt" | "ge" | "eq" | "ne", args=(a, _)) if a.dtype == index:
            yield e


def is_bound(cond: Expr) -> TypeGuard[Op]:
    """True for a comparison by which an index is bounded: lt, le, gt or ge."""
    match cond:
        case Op(name="lt" | "le" | "gt" | "ge", args=(a, _)):
            return a.dtype == index
        case _:
            return False


def positive_form(cond: Op) -> Linear:
    """Return the form that is above 0 where ``cond`` holds (for eq and ne: the difference)."""
    a, b = map(linear, cond.args)
    match cond.name:
        case "lt":
            return b - a
        case "le":
            return b - a + Linear({}, 1)
        case "gt":
            return a - b
        case "ge":
            return a - b + Linear({}, 1)
        case _:
            return a - b
