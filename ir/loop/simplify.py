"""Canonical index arithmetic: linear forms, quotients and remainders resolved by known ranges.

The normal form of an index expression is the linear form of ``affine``; that of a comparison is
``lt``, ``eq`` or ``ne`` with what is common to both sides cancelled. Arithmetic on other element
types is left unchanged: it wraps, or rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd
from types import MappingProxyType

from ..dtypes import index, pred
from . import build
from .affine import (
    ANYTHING,
    Interval,
    Linear,
    Ranges,
    bounds,
    bounds_of,
    gather,
    linear,
    refine,
    to_expr,
)
from .build import FALSE, NEGATED, TRUE
from .nodes import (
    Alloc,
    Block,
    Cast,
    Const,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    Op,
    Seq,
    Stmt,
    Var,
)
from .visit import map_expr, map_stmt, map_tuple, substitute

EMPTY = Seq(())


def simplify(e: Expr, ranges: Ranges) -> Expr:
    """Return an expression equal to ``e`` wherever the variables lie in ``ranges`` (both ends
    included).

    Idempotent; the same object when there is nothing to do. Works inside expressions of any
    type: indices of loads, conditions of selections.
    """
    return Simplifier(ranges).expr(e)


def prove(cond: Expr, ranges: Ranges) -> bool | None:
    """Return True if a condition always holds, False if it never does, None if unknown."""
    result = Simplifier(ranges).expr(cond)
    return bool(result.value) if isinstance(result, Const) else None


class Simplifier:
    """Simplifies many expressions under the same ranges; each node is worked on once."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._done: dict[int, tuple[Expr, Expr]] = {}  # the node itself is kept: ids are reused
        self._extremes: set[Expr] = set()  # so that min(a, b) and min(b, a) come out alike
        self._forms: dict[int, tuple[Expr, Linear]] = {}

    def expr(self, e: Expr) -> Expr:
        """Return the normal form of ``e``."""
        known = self._done.get(id(e))
        if known is not None:
            return known[1]
        result = self._expr(e)
        if result is not e:
            if result == e:
                result = e
            else:
                self._done[id(result)] = result, result
        self._done[id(e)] = e, result
        return result

    def _expr(self, e: Expr) -> Expr:
        match e:
            case Const():
                return e
            case Var():
                low, high = self.ranges.get(e, ANYTHING)
                return Const(low) if low == high and e.dtype == index else e
            case Op(dtype=d) if d == index:
                return to_expr(self.recombined(self.form(e)))
            case Op(name=name, args=args, dtype=d) if d == pred:
                return self.condition(name, map_tuple(self.expr, args), e)
            case Op(name="select", args=(cond, a, b)):
                c = self.expr(cond)
                if isinstance(c, Const):
                    return self.expr(a if c.value else b)
                new = c, self.expr(a), self.expr(b)
                return new[1] if new[1] is new[2] else _with_args(e, new)
            case _:
                return map_expr(e, self.expr)

    def form(self, e: Expr) -> Linear:
        """Return the linear form of an index expression, its atoms simplified."""
        terms: dict[Expr, int] = {}
        constant = gather(e, 1, terms, self.add_atom)
        return Linear(terms, constant)

    def add_atom(self, terms: dict[Expr, int], e: Expr, k: int) -> int:
        """Add ``k`` times the simplified ``e`` to ``terms``; returns the constant part."""
        known = self._forms.get(id(e))
        if known is None:
            known = self._forms[id(e)] = e, self._atom(e)
        for atom, c in known[1].terms.items():
            total = terms.get(atom, 0) + k * c
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return k * known[1].constant

    def _atom(self, e: Expr) -> Linear:
        match e:
            case Op(name="floordiv" | "floormod" as name, args=(a, b)):
                x, y = self.recombined(self.form(a)), self.form(b)
                if y.terms or y.constant <= 0:
                    return Linear({build.op(name, to_expr(x), to_expr(y)): 1})
                return (self.quotient if name == "floordiv" else self.remainder)(x, y.constant)
            case Op(name="multiply", args=(a, b)):
                x, y = self.form(a), self.form(b)
                if x.terms and y.terms:
                    return Linear({build.mul(to_expr(x), to_expr(y)): 1})
                return y * x.constant if y.terms else x * y.constant
            case Op(name="minimum" | "maximum" as name, args=(a, b)):
                return self.extreme(name, self.form(a), self.form(b))
            case Op(name="select", args=(cond, a, b)):
                c = self.expr(cond)
                if isinstance(c, Const):
                    return self.form(a if c.value else b)
                new = c, self.expr(a), self.expr(b)
                return linear(new[1]) if new[1] == new[2] else Linear({_with_args(e, new): 1})
            case Op():
                return Linear({map_expr(e, self.expr): 1})
            case _:
                return linear(self.expr(e))

    def quotient(self, form: Linear, c: int) -> Linear:
        """Return ``form // c`` for ``c > 0``.

        ``(c*q + r) // c  ->  q`` where ``0 <= r < c``; ``(c*q + r) // c  ->  q + r // c``;
        ``(g*x + k) // (g*d)  ->  (x + k // g) // d``; ``(x // d + k) // c -> (x + k*d) // (c*d)``;
        ``(g*x + r) // (g*d)  ->  x // d`` where ``0 <= r < g``.
        """
        if c == 1:
            return form
        whole = Linear({a: k // c for a, k in form.terms.items() if k % c == 0})
        rest = Linear({a: k for a, k in form.terms.items() if k % c}, form.constant)
        low, high = bounds_of(rest, self.ranges)
        if low // c == high // c:
            return whole + Linear({}, low // c)
        whole += Linear({}, rest.constant // c)
        rest = Linear(rest.terms, rest.constant % c)
        g = gcd(c, *rest.terms.values())
        if g > 1:
            small = Linear({a: k // g for a, k in rest.terms.items()}, rest.constant // g)
            return whole + self.quotient(small, c // g)
        for g, many, _ in self.steps_and_offset(rest, c):
            return whole + self.quotient(many, c // g)
        match [*rest.terms.items()]:
            case [(Op(name="floordiv", args=(x, Const(value=int(d)))), 1)] if d > 0:
                inner = linear(x) + Linear({}, rest.constant * d)
                return whole + self.quotient(inner, c * d)
        return whole + Linear({build.floordiv(to_expr(rest), c): 1})

    def remainder(self, form: Linear, c: int) -> Linear:
        """Return ``form % c`` for ``c > 0``.

        Multiples of ``c`` vanish; ``r % c  ->  r - q*c`` where ``q*c <= r < q*c + c``;
        ``(g*x + k) % (g*d)  ->  g * ((x + k // g) % d) + k % g``; ``x % (c*d) % c  ->  x % c``;
        ``(g*x + r) % (g*d)  ->  g * (x % d) + r`` where ``0 <= r < g``.
        """
        if c == 1:
            return Linear({})
        for atom, k in form.terms.items():
            match atom:
                case Op(name="floormod", args=(x, Const(value=int(m)))) if k * m % c == 0:
                    return self.remainder(form.plus(Linear({atom: 1}), -k).plus(linear(x), k), c)
        rest = form
        terms = {a: k if abs(k) < c else k % c for a, k in rest.terms.items() if k % c}
        rest = Linear(terms, rest.constant % c)
        low, high = bounds_of(rest, self.ranges)
        if low // c == high // c:
            return rest + Linear({}, -(low // c) * c)
        g = gcd(c, *terms.values())
        if g > 1:
            small = Linear({a: k // g for a, k in terms.items()}, rest.constant // g)
            return self.remainder(small, c // g) * g + Linear({}, rest.constant % g)
        for g, many, offset in self.steps_and_offset(rest, c):
            return self.remainder(many, c // g) * g + offset
        return Linear({build.floormod(to_expr(rest), c): 1})

    def steps_and_offset(self, form: Linear, c: int) -> Iterator[tuple[int, Linear, Linear]]:
        """Yield ``form`` as ``g*x + r`` with ``0 <= r < g`` for divisors g of ``c``: g, x and r."""
        for g in sorted({gcd(k, c) for k in form.terms.values()} - {1, c}, reverse=True):
            many = {a: k // g for a, k in form.terms.items() if k % g == 0}
            offset = Linear({a: k for a, k in form.terms.items() if k % g}, form.constant % g)
            low, high = bounds_of(offset, self.ranges)
            if low >= 0 and high < g:
                yield g, Linear(many, form.constant // g), offset

    def recombined(self, form: Linear) -> Linear:
        """``x // c * c + x % c  ->  x`` and ``x - x // c * c  ->  x % c``, times any factor.

        Also ``y % (c*d) // c * c + y % c  ->  y % (c*d)``.
        """
        terms = form.terms
        for atom, k in terms.items() if len(terms) > 1 else ():
            match atom:
                case Op(name="floormod", args=(x, Const(value=int(c)))):
                    inner = linear(x)
                    whole = self.quotient(inner, c)
                    if whole.terms and _contains(terms, whole * (k * c)):
                        rest = form.plus(Linear({atom: 1}), -k).plus(whole, -k * c)
                        return self.recombined(rest.plus(inner, k))
                    for other, y in _quotients(terms, c, k * c):
                        if self.remainder(y - inner, c) == Linear({}):  # multiples of c are gone
                            rest = form.plus(Linear({atom: 1}), -k).plus(Linear({other: 1}), -k * c)
                            return self.recombined(rest.plus(y, k))
                case Op(name="floordiv", args=(x, Const(value=int(c)))) if k % c == 0:
                    part = self.low_digit(x, c)
                    if part.terms and _contains(terms, part * (k // c)):
                        rest = form.plus(Linear({atom: 1}), -k).plus(part, -k // c)
                        return self.recombined(rest.plus(linear(x), k // c))
                    inner, m = linear(x), -k // c
                    if _contains(terms, inner * m):
                        rest = form.plus(Linear({atom: 1}), -k).plus(inner, -m)
                        return self.recombined(rest.plus(self.remainder(inner, c), m))
        return form

    def low_digit(self, x: Expr, c: int) -> Linear:
        """Return ``y % c`` for ``x = y % (c*d)``: what ``x // c * c`` lacks of it.

        Nothing for others.
        """
        match x:
            case Op(name="floormod", args=(y, Const(value=int(n)))) if n % c == 0:
                part = self.remainder(linear(y), c)
                return Linear({}) if part.constant else part
            case _:
                return Linear({})

    def extreme(self, name: str, a: Linear, b: Linear) -> Linear:
        """Return ``min`` or ``max`` of two forms, decided where their difference has one sign."""
        low, high = ANYTHING if self.may_wrap(a, b) else bounds_of(a - b, self.ranges)
        if low >= 0:
            return b if name == "minimum" else a
        if high <= 0:
            return a if name == "minimum" else b
        x, y = (to_expr(self.recombined(f)) for f in (a, b))
        if isinstance(x, Const) or Op(name, (y, x), index) in self._extremes:
            x, y = y, x
        e = Op(name, (x, y), index)
        self._extremes.add(e)
        return Linear({e: 1})

    def condition(self, name: str, args: tuple[Expr, ...], e: Op) -> Expr:
        """Return a truth value whose operands are simplified already."""
        match args:
            case (a,) if name == "not":
                return self.negation(a, e)
            case (a, b) if name in NEGATED and a.dtype == index:
                return self.comparison(name, a, b, e)
            case (a, b) if name in ("and", "or"):
                unit, zero = (TRUE, FALSE) if name == "and" else (FALSE, TRUE)
                if zero in (a, b):
                    return zero
                if a in (unit, b):
                    return b
                return a if b == unit else _with_args(e, args)
            case (c, a, b) if name == "select":
                if isinstance(c, Const):
                    return a if c.value else b
                return a if a == b else _with_args(e, args)
            case _:
                return _with_args(e, args)

    def negation(self, a: Expr, e: Op) -> Expr:
        """Return ``not a``; ``e`` is that node before its operand was simplified."""
        match a:
            case Const(value=value):
                return FALSE if value else TRUE
            case Op(name="not", args=(inner,)):
                return inner
            case Op(name=name, args=(x, y)) if name in NEGATED and x.dtype == index:
                return self.comparison(NEGATED[name], x, y, a)
            case _:
                return _with_args(e, (a,))

    def comparison(self, name: str, a: Expr, b: Expr, e: Op) -> Expr:
        """Return ``lt``, ``eq`` or ``ne`` between a linear form's positive and negative parts."""
        x, y = linear(a), linear(b)
        if self.may_wrap(x, y):
            return build.compare(name, a, b) if (a, b) != e.args or name != e.name else e
        if name in ("eq", "ne"):
            return self.equality(name, self.recombined(x - y))
        form = x - y if name in ("lt", "le") else y - x
        return self.below_zero(
            self.recombined(form if name in ("lt", "gt") else form + Linear({}, -1))
        )

    def below_zero(self, form: Linear) -> Expr:
        """``form < 0``; ``g*x + r < k  ->  x < q`` where every value of ``r`` gives the same q."""
        form = _sorted(form)
        low, high = bounds_of(form, self.ranges)
        if low >= 0 or high < 0:
            return FALSE if low >= 0 else TRUE
        for g in sorted({abs(k) for k in form.terms.values()} - {1}, reverse=True):
            many = {a: k // g for a, k in form.terms.items() if k % g == 0}
            rest = Linear({a: k for a, k in form.terms.items() if k % g}, form.constant)
            low, high = bounds_of(rest, self.ranges)  # g*x <= -1 - rest
            if (-1 - low) // g == (-1 - high) // g:
                return self.below_zero(Linear(many, -((-1 - low) // g) - 1))
        return _ordered("lt", form)

    def equality(self, name: str, form: Linear) -> Expr:
        """Return ``form == 0`` or ``form != 0``, divided by what its coefficients share."""
        form = _sorted(form)
        low, high = bounds_of(form, self.ranges)
        g = gcd(*form.terms.values())
        if low > 0 or high < 0 or (g and form.constant % g):
            return FALSE if name == "eq" else TRUE
        if low == high == 0:
            return TRUE if name == "eq" else FALSE
        if g > 1:
            form = Linear({a: k // g for a, k in form.terms.items()}, form.constant // g)
        return _ordered(name, form)

    def may_wrap(self, *forms: Linear) -> bool:
        """True if s64 data of unknown size takes part: then differences may overflow."""
        return any(self.is_data(a) for form in forms for a in form.terms)

    def is_data(self, e: Expr) -> bool:
        """True if an atom is s64 data of unknown size rather than index arithmetic."""
        match e:
            case Var():
                return self.ranges.get(e) == ANYTHING
            case Load() | Cast():
                return bounds(e, self.ranges) == ANYTHING
            case Op(args=args):
                return any(map(self.is_data, args))
            case _:
                return False


def _quotients(terms: Mapping[Expr, int], c: int, k: int) -> Iterator[tuple[Expr, Linear]]:
    """Yield the quotients by ``c`` that are taken ``k`` times, and their dividends."""
    for atom, n in terms.items():
        match atom:
            case Op(name="floordiv", args=(x, Const(value=int(d)))) if (n, d) == (k, c):
                yield atom, linear(x)


def _contains(terms: Mapping[Expr, int], part: Linear) -> bool:
    return all(terms.get(a) == k for a, k in part.terms.items())


def _with_args(e: Op, args: tuple[Expr, ...]) -> Expr:
    same = all(a is b for a, b in zip(args, e.args, strict=True))
    return e if same else replace(e, args=args)


def _sorted(form: Linear) -> Linear:
    """Return the form as it will be written: what ``bounds_of`` makes of it hangs on the order."""
    return Linear(
        dict(sorted(form.terms.items(), key=lambda t: (t[1] < 0, -abs(t[1])))), form.constant
    )


def _ordered(name: str, form: Linear) -> Expr:
    """Return ``form name 0`` with nothing negative on either side; a literal is on the right."""
    plus = Linear({a: k for a, k in form.terms.items() if k > 0})
    minus = Linear({a: -k for a, k in form.terms.items() if k < 0})
    if not plus.terms and name != "lt":
        plus, minus, form = minus, plus, form * -1
    if plus.terms:
        return build.compare(name, to_expr(plus), to_expr(minus + Linear({}, -form.constant)))
    return build.compare(name, Const(form.constant), to_expr(minus))


def simplify_stmt(s: Stmt, ranges: Ranges = MappingProxyType({})) -> Stmt:
    """Return ``s`` with simple expressions, without unit loops, dead branches and idle guards.

    ``ranges`` are those of the variables and symbols from outside. What has nothing to do becomes
    the empty ``Seq``. A thread-bound loop stays, whatever its extent. Same object if unchanged.
    """
    return _NestSimplifier(dict(ranges)).stmt(s)


class _NestSimplifier:
    """Walks a nest with the ranges of all variables that are in scope."""

    def __init__(self, ranges: dict[Var, Interval]) -> None:
        self.ranges = ranges
        self.simple = Simplifier(ranges)

    def under(self, cond: Expr | None) -> _NestSimplifier:
        """Return the same, knowing that ``cond`` holds."""
        refined = self.ranges if cond is None else refine(self.ranges, cond)
        return self if refined is self.ranges else _NestSimplifier(dict(refined))

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For():
                return self.loop(s)
            case Block():
                return self.block(s)
            case If():
                return self.branch(s)
            case Let(var=var, value=value):
                v = self.simple.expr(value)
                if var.dtype == index:
                    self.ranges[var] = bounds(v, self.ranges)
                if var.dtype == index and isinstance(v, Const):
                    return self.stmt(s.body)
                if isinstance(v, Var):
                    return self.stmt(substitute(s.body, {var: v}))
                body = self.stmt(s.body)
                same = v is value and body is s.body
                return _unless_empty(body, s if same else replace(s, value=v, body=body))
            case Alloc():
                body = self.stmt(s.body)
                return _unless_empty(body, s if body is s.body else replace(s, body=body))
            case _:
                return map_stmt(s, self.stmt, self.simple.expr)

    def loop(self, s: For) -> Stmt:
        extent = self.simple.expr(s.extent)
        high = bounds(extent, self.ranges)[1]
        if high <= 0:
            return EMPTY
        self.ranges[s.var] = 0, high - 1
        if build.as_int(extent) == 1 and s.kind is not Kind.THREAD:
            return self.stmt(s.body)
        body = self.stmt(s.body)
        same = extent is s.extent and body is s.body
        return _unless_empty(body, s if same else replace(s, extent=extent, body=body))

    def branch(self, s: If) -> Stmt:
        cond = self.simple.expr(s.cond)
        if isinstance(cond, Const):
            chosen = s.then if cond.value else s.orelse
            return EMPTY if chosen is None else self.stmt(chosen)
        then = self.under(cond).stmt(s.then)
        orelse = None
        if s.orelse is not None:
            orelse = self.under(self.simple.expr(build.op("not", cond))).stmt(s.orelse)
        orelse = None if orelse == EMPTY else orelse
        if then == EMPTY and orelse is None:
            return EMPTY
        if cond is s.cond and then is s.then and orelse is s.orelse:
            return s
        return replace(s, cond=cond, then=then, orelse=orelse)

    def block(self, s: Block) -> Stmt:
        """The guard is decided by the values of the axes; under it they are within extents."""
        simple = self.simple.expr
        axes = map_tuple(
            lambda a: a if (v := simple(a.value)) is a.value else replace(a, value=v), s.axes
        )
        for a in axes:
            self.ranges[a.var] = bounds(a.value, self.ranges)
        guard = None if s.predicate is None else simple(s.predicate)
        if guard == FALSE:
            return EMPTY
        guard = None if guard == TRUE else guard
        inside = self.under(guard)
        inside = _NestSimplifier(dict(inside.ranges)) if inside is self else inside
        for a in axes:
            low, high = inside.ranges[a.var]
            low, high = max(low, 0), min(high, a.extent - 1)
            inside.ranges[a.var] = (low, high) if low <= high else (0, a.extent - 1)
        core = replace(s, axes=(), predicate=None)
        new = map_stmt(core, inside.stmt, inside.simple.expr)
        if new is core and axes is s.axes and guard is s.predicate:
            return s
        assert isinstance(new, Block)
        return replace(new, axes=axes, predicate=guard)


def _unless_empty(body: Stmt, s: Stmt) -> Stmt:
    return EMPTY if body == EMPTY else s
