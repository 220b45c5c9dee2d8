"""Which iterations of a loop may run in another order: tests that are sufficient, never wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import gcd
from types import MappingProxyType

from . import build
from .affine import Ranges, bounds, linear, mentions
from .nodes import Buffer, Const, Expr, For, Func, Load, Op, Stmt, Store, Var
from .regions import Access, Span, Spans, accesses, loop_ranges
from .simplify import Simplifier
from .visit import exprs, walk, walk_expr


def writes_disjoint(
    loop: For, outer: Ranges = MappingProxyType({}), private: Collection[Buffer] = ()
) -> bool:
    """Whether no element that one iteration of ``loop`` writes is touched by another.

    Then its iterations may run in any order, and at the same time. ``outer`` are the ranges of
    the variables around the loop. Buffers in ``private`` are left out: each iteration has its own.
    """
    return meeting(loop, outer, private) is None


def meeting(
    loop: For, outer: Ranges = MappingProxyType({}), private: Collection[Buffer] = ()
) -> Access | None:
    """A write through which two iterations of ``loop`` might meet; None if there is none.

    For every buffer written in the body, the indices of all its accesses there, reads too, must
    determine the iteration: ``C[2 * i + j]`` with j < 2 does, and so do ``f // 8`` and ``f % 8``
    together.
    """
    high = bounds(loop.extent, outer)[1] - 1
    if high <= 0:
        return None
    ranges = {**outer, loop.var: (0, high)}
    spans = Spans(loop_ranges(loop.body, ranges), ranges)
    of: dict[Buffer, list[Access]] = {}
    for access in accesses(loop.body):
        of.setdefault(access.region.buffer, []).append(access)
    for buffer, all_ in of.items():
        writes = [a for a in all_ if a.write]
        if writes and buffer not in private and not _separate(loop.var, all_, spans):
            return writes[0]
    return None


def _separate(var: Var, all_: list[Access], spans: Spans) -> bool:
    """Whether accesses to one buffer from different values of ``var`` never meet."""
    known: set[Expr] = set()
    for d in range(len(all_[0].region.ranges)):
        found = [_values(a, d, spans) for a in all_]
        swept = [s for s in found if s is not None]
        shifts = [s.start - swept[0].start for s in swept]
        if len(swept) < len(found) or any(x.terms for x in shifts):
            continue
        ends = [x.constant + s.width for x, s in zip(shifts, swept, strict=True)]
        width = max(ends) - min(x.constant for x in shifts)
        terms = {a: k for a, k in swept[0].start.terms.items() if mentions(a, var)}
        known.update(determined(terms, width, spans.ranges))
    return _follows(var, known, spans.simple)


def _values(access: Access, d: int, spans: Spans) -> Span | None:
    r = access.region.ranges[d]
    span, more = spans.span(r.start), bounds(r.extent, spans.ranges)[1] - 1
    return None if span is None or more > 2**32 else Span(span.start, span.width + more)


def determined(terms: dict[Expr, int], width: int, ranges: Ranges) -> set[Expr]:
    """The atoms that follow from the value of ``sum(k * atom) + r`` where ``0 <= r <= width``.

    Digits of a mixed radix: what is below the greatest common divisor of the higher coefficients
    cannot reach them. ``8 * a + b + r`` with ``b + r < 8`` determines a.
    """
    order = sorted(terms.items(), key=lambda t: abs(t[1]))
    for n, (atom, k) in enumerate(order):
        low, high = bounds(atom, ranges)
        if width < gcd(*(k for _, k in order[n:])):
            if n + 1 == len(order):
                return {atom}
            above = determined(dict(order[n + 1 :]), abs(k) * (high - low), ranges)
            return above | {atom} if len(above) == len(order) - n - 1 else above
        width += abs(k) * (high - low)
    return set()


def _follows(var: Var, known: set[Expr], simple: Simplifier) -> bool:
    """Whether ``var`` is known: ``x % c`` and ``x // c`` together give x."""
    grown = True
    while grown and var not in known:
        grown = False
        for e in list(known):
            match e:
                case Op(name="floormod", args=(x, Const(value=int(c)))):
                    quotient = simple.expr(build.floordiv(x, c))
                    if x not in known and (isinstance(quotient, Const) or quotient in known):
                        known.update(_atoms_of(x))
                        grown = True
    return var in known


def _atoms_of(e: Expr) -> set[Expr]:
    """``e``, and the one atom that it is a multiple of, up to a constant."""
    form = linear(e)
    return {e, *form.terms} if len(form.terms) == 1 else {e}


def private_buffers(func: Func) -> dict[int, frozenset[Buffer]]:
    """For each loop, by ``id``, the intermediate buffers that only its body uses.

    Lowering makes such a buffer inside the loop, one for each iteration.
    """
    total = _uses(func.body)
    result = {}
    for loop in walk(func.body):
        if isinstance(loop, For):
            here = _uses(loop.body)
            result[id(loop)] = frozenset(b for b in func.allocs if here[b] and here[b] == total[b])
    return result


def _uses(s: Stmt) -> Counter[Buffer]:
    found: Counter[Buffer] = Counter()
    for x in walk(s):
        if isinstance(x, Store):
            found[x.buffer] += 1
        found.update(y.buffer for e in exprs(x) for y in walk_expr(e) if isinstance(y, Load))
    return found
