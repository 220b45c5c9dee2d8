"""Bindings of block axes to loops: index expressions as sums of mixed-radix digits.

Split and fuse turn a loop variable into its digits and back. ``parse`` writes an index expression
as ``sum of scale * digit + constant``, where a digit is ``(source // low) % size`` of a variable,
of a fused sum (``Mark``), or of any other expression with known bounds (``Atom``). This form tells
which variables a set of index values determines, and therefore whether a loop can run in parallel,
a reduction can be factored, and a block's writes are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from ..ir.loop import build
from ..ir.loop.affine import HIGH, LOW, bounds
from ..ir.loop.build import as_int
from ..ir.loop.nodes import Const, Expr, Op, Var, quick
from ..ir.loop.visit import free_vars


@dataclass(frozen=True, slots=True)
class Mark:
    """A sum of digits treated as a single number in 0 .. ``extent`` - 1."""

    terms: tuple[Term, ...]
    constant: int
    extent: int


@dataclass(frozen=True, slots=True)
class Atom:
    """``expr - low``, an opaque value in 0 .. ``extent`` - 1."""

    expr: Expr
    low: int
    extent: int


@quick
@dataclass(frozen=True, slots=True)
class Digit:
    """``(source // low) % size``; ``top`` if the modulo is redundant."""

    source: Source
    low: int
    size: int
    top: bool


Source: TypeAlias = Var | Mark | Atom
Term: TypeAlias = tuple[Digit, int]


@quick
@dataclass(frozen=True, slots=True)
class Sum:
    """``sum(scale * digit) + constant``; scales are nonzero, and no digit occurs twice."""

    terms: tuple[Term, ...]
    constant: int = 0

    def low(self) -> int:
        """A lower bound, reached if the digits are independent."""
        return self.constant + sum(min(0, k * (d.size - 1)) for d, k in self.terms)

    def high(self) -> int:
        """An upper bound, reached if the digits are independent."""
        return self.constant + sum(max(0, k * (d.size - 1)) for d, k in self.terms)


Limits: TypeAlias = Mapping[tuple[Term, ...], int]
"""Exclusive upper bounds that a predicate sets on sums."""


def parse(e: Expr, extents: Mapping[Var, int], limits: Limits | None = None) -> Sum | None:
    """Return ``e`` as a sum of digits; None if a part of it has unknown bounds."""
    return _DigitParser(extents, limits or {}).sum(e)


def limits_of(predicate: Expr | None, extents: Mapping[Var, int]) -> Limits:
    """Return the bounds in the conjuncts ``sum < number`` of a predicate, simplest sums first."""
    limits: dict[tuple[Term, ...], int] = {}
    for left, bound in sorted(upper_bounds(predicate), key=lambda c: len(free_vars(c[0]))):
        form = parse(left, extents, limits)
        if form is not None and form.constant == 0:
            limits[form.terms] = min(bound, limits.get(form.terms, bound))
    return limits


def upper_bounds(predicate: Expr | None) -> list[tuple[Expr, int]]:
    """Return the conjuncts of the form ``e < n`` as pairs."""
    found: list[tuple[Expr, int]] = []
    for c in build.conjuncts(predicate):
        match c:
            case Op(name="lt", args=(a, Const(value=int(n)))):
                found.append((a, n))
    return found


ZERO = Sum(())
_LINEAR = frozenset(("add", "subtract", "multiply", "floordiv", "floormod"))


class _DigitParser:
    def __init__(self, extents: Mapping[Var, int], limits: Limits) -> None:
        self.extents = extents
        self.limits = limits

    def sum(self, e: Expr) -> Sum | None:
        form = self.raw(e)
        if self.limits and form is not None and form.constant == 0 and form.terms in self.limits:
            return self.limited(form)
        return form

    def limited(self, form: Sum) -> Sum:
        n = self.limits[form.terms]
        if n > form.high():
            return form
        match form.terms:
            case ((Digit(source=Mark(extent=extent), low=1, size=size), 1),) if size == extent:
                return form
        return Sum(((Digit(Mark(form.terms, 0, n), 1, n, True), 1),)) if n > 1 else Sum(())

    def raw(self, e: Expr) -> Sum | None:  # much of a schedule's time is spent here: no match
        if isinstance(e, Var):
            n = self.extents.get(e)
            if n is None:
                return None
            return Sum(((Digit(e, 1, n, True), 1),)) if n > 1 else ZERO
        if isinstance(e, Const):
            return Sum((), e.value) if type(e.value) is int else None
        if not isinstance(e, Op) or e.name not in _LINEAR:
            return self.atom(e)
        a, b = e.args
        x = self.sum(a)
        if e.name in ("add", "subtract"):
            y = self.sum(b)
            if x is None or y is None:
                return None
            return _plus(x, y, 1 if e.name == "add" else -1, self.extents)
        c = as_int(b)
        if c is None and e.name == "multiply":
            x, c = self.sum(b), as_int(a)
        if c is None or (c < 1 and e.name != "multiply"):
            return self.atom(e)
        if x is None:
            return None
        if e.name == "multiply":
            return _scaled(x, c)
        return _quotient(x, c, e.name == "floordiv", self.extents)

    def atom(self, e: Expr) -> Sum | None:
        known = {v: (0, n - 1) for v in free_vars(e) if (n := self.extents.get(v)) is not None}
        low, high = bounds(e, known)
        if low <= LOW or high >= HIGH or e.dtype.kind not in ("signed", "unsigned"):
            return None
        if low == high:
            return Sum((), low)
        digit = Digit(Atom(e, low, high - low + 1), 1, high - low + 1, True)
        return Sum(((digit, 1),), low)


def _scaled(x: Sum, c: int) -> Sum:
    if c == 1:
        return x
    return Sum(tuple((d, k * c) for d, k in x.terms) if c else (), x.constant * c)


def _plus(x: Sum, y: Sum, sign: int, extents: Mapping[Var, int]) -> Sum:
    constant = x.constant + sign * y.constant
    if not y.terms:
        return Sum(x.terms, constant)
    if not x.terms and sign == 1:
        return Sum(y.terms, constant)
    terms = dict(x.terms)
    for d, k in y.terms:
        total = terms.get(d, 0) + sign * k
        if total:
            terms[d] = total
        else:
            terms.pop(d, None)
    return Sum(_joined(terms, extents), constant)


def _joined(terms: Mapping[Digit, int], extents: Mapping[Var, int]) -> tuple[Term, ...]:
    """Merge adjacent digits of one source: ``(v // 8) * 8 + v % 8`` is ``v``."""
    rest = sorted(terms.items(), key=_scale)
    if all(d.top for d in terms):
        return tuple(rest)
    pair = _neighbors(rest)
    while pair is not None:
        (a, k), (b, _) = pair
        size = a.size * b.size
        if b.top:
            size = min(size, -(-extent_of_source(a.source, extents) // a.low))
        rest = [t for t in rest if t[0] is not a and t[0] is not b]
        rest = sorted([*rest, *_opened(Digit(a.source, a.low, size, b.top), k)], key=_scale)
        pair = _neighbors(rest)
    return tuple(rest)


def _scale(term: Term) -> int:
    return term[1]


def _neighbors(terms: list[Term]) -> tuple[Term, Term] | None:
    for a, k in terms:
        for b, m in terms:
            if m == k * a.size and not a.top and b.low == a.low * a.size and a.source == b.source:
                return (a, k), (b, m)
    return None


def _opened(d: Digit, k: int) -> list[Term]:
    """Expand a digit that spans a whole mark into the mark's terms, if nothing limits the mark."""
    source = d.source
    if isinstance(source, Mark) and d.low == 1 and d.top and source.constant == 0:
        whole = 1 + sum(m * (x.size - 1) for x, m in source.terms)
        if whole == source.extent == d.size:
            return [(x, m * k) for x, m in source.terms]
    return [(d, k)]


def _quotient(x: Sum, c: int, divide: bool, extents: Mapping[Var, int]) -> Sum | None:
    """Return ``x // c`` or ``x % c``."""
    if c == 1:
        return x if divide else Sum(())
    whole = tuple((d, k // c) for d, k in x.terms if k % c == 0)
    part = tuple((d, k) for d, k in x.terms if k % c)
    if any(k < 0 for _, k in part):
        return None
    rest = Sum(part, x.constant % c)
    small = _small(rest, divide) if rest.high() < c else _digit_of(rest, c, divide)
    return _plus(Sum(whole, x.constant // c), small, 1, extents) if divide else small


def _small(rest: Sum, divide: bool) -> Sum:
    return Sum(()) if divide else rest


def _digit_of(rest: Sum, c: int, divide: bool) -> Sum:
    """Return ``rest // c`` or ``rest % c`` of a nonnegative sum that may reach ``c``."""
    d = Digit(Mark(rest.terms, rest.constant, rest.high() + 1), 1, rest.high() + 1, True)
    if rest.constant == 0 and len(rest.terms) == 1 and rest.terms[0][1] == 1:
        only = rest.terms[0][0]
        if only.top or only.size % c == 0:
            d = only
    if divide:
        size = -(-d.size // c)
        return Sum(((Digit(d.source, d.low * c, size, d.top), 1),) if size > 1 else ())
    return Sum(((Digit(d.source, d.low, c, False), 1),))


def extent_of_source(source: Source, extents: Mapping[Var, int]) -> int:
    """Return the number of values that the source of a digit takes."""
    return extents[source] if isinstance(source, Var) else source.extent


def determined(
    sums: Iterable[Sum | None], extents: Mapping[Var, int], known: Iterable[Var] = ()
) -> frozenset[Var]:
    """Return the variables that the values of the sums and of ``known`` variables determine."""
    facts: set[Digit] = set()
    sure: set[Source] = set(known)
    sure |= {v for v, n in extents.items() if n == 1}
    queue = [s for s in sums if s is not None]
    progress = True
    while progress:
        progress = False
        for form in tuple(queue):
            for d in _decoded(form, facts, sure):
                facts.add(d)
                progress = True
        for source in {d.source for d in facts} - sure:
            if _complete(source, facts, extents):
                sure.add(source)
                progress = True
                if isinstance(source, Mark):
                    queue.append(Sum(source.terms, source.constant))
    return frozenset(v for v in sure if isinstance(v, Var))


def _decoded(form: Sum, facts: set[Digit], sure: set[Source]) -> list[Digit]:
    """Return the digits that a sum's value determines: no combination of the others mimics them."""
    rest = [(d, abs(k)) for d, k in form.terms if d not in facts and not _is_sure(d.source, sure)]
    rest.sort(key=lambda t: t[1])
    found: list[Digit] = []
    while rest and rest[-1][1] > _reach(rest[:-1]):  # one range of values for each digit value
        found.append(rest.pop()[0])
    while len(rest) > 1 and gcd(*(k for _, k in rest[1:])) > _reach(rest[:1]):
        found.append(rest.pop(0)[0])
    return found


def _reach(terms: list[tuple[Digit, int]]) -> int:
    return sum(k * (d.size - 1) for d, k in terms)


def _is_sure(source: Source, sure: set[Source]) -> bool:
    if source in sure:
        return True
    if isinstance(source, Mark):
        return all(_is_sure(d.source, sure) for d, _ in source.terms)
    return isinstance(source, Atom) and all(v in sure for v in free_vars(source.expr))


def _complete(source: Source, facts: set[Digit], extents: Mapping[Var, int]) -> bool:
    """True if the known digits of a source determine its value."""
    reach = 1
    for d in sorted((d for d in facts if d.source == source), key=lambda d: d.low):
        if reach % d.low == 0:
            reach = max(reach, d.low * d.size)
    return reach >= extent_of_source(source, extents)


def variables(form: Sum) -> frozenset[Var]:
    """Return the variables that a sum depends on."""
    return frozenset(v for d, _ in form.terms for v in source_variables(d.source))


def source_variables(source: Source) -> frozenset[Var]:
    """Return the variables that the source of a digit depends on."""
    match source:
        case Var():
            return frozenset((source,))
        case Atom(expr=expr):
            return free_vars(expr)
        case Mark(terms=terms):
            return frozenset(v for d, _ in terms for v in source_variables(d.source))


def to_expr(form: Sum) -> Expr:
    """Return a sum as an expression, largest scale first."""
    result: Expr = Const(0)
    for d, k in sorted(form.terms, key=lambda t: -t[1]):
        result = build.add(result, build.mul(_digit_expr(d), k))
    return build.add(result, form.constant)


def _digit_expr(d: Digit) -> Expr:
    match d.source:
        case Var() as v:
            e: Expr = v
        case Atom(expr=expr, low=low):
            e = build.sub(expr, low)
        case Mark(terms=terms, constant=constant):
            e = to_expr(Sum(terms, constant))
    e = build.floordiv(e, d.low)
    return e if d.top else build.floormod(e, d.size)
