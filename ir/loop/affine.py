"""Index expressions as linear forms, and the interval of values that one can take.

A linear form is ``sum of coefficient * atom + constant``. An atom is a variable or whatever is not
linear (a quotient, a remainder, a minimum, a load), kept unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..dtypes import DType, index
from .nodes import Cast, Const, Expr, Load, Op, Var, quick

Interval: TypeAlias = tuple[int, int]
Ranges: TypeAlias = Mapping[Var, Interval]
AtomFn: TypeAlias = Callable[[dict[Expr, int], Expr, int], int]

LOW, HIGH = -(2**63), 2**63 - 1
ANYTHING: Interval = (LOW, HIGH)
"""The interval of an index of which nothing is known."""


@quick
@dataclass(frozen=True, slots=True)
class Linear:
    """``sum(k * atom for atom, k in terms.items()) + constant``; no coefficient is 0."""

    terms: Mapping[Expr, int]
    constant: int = 0

    def __add__(self, other: Linear) -> Linear:
        return self.plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def __mul__(self, k: int) -> Linear:
        if k == 1:
            return self
        terms = {a: k * c for a, c in self.terms.items()} if k else {}
        return Linear(terms, k * self.constant)

    def plus(self, other: Linear, k: int) -> Linear:
        """Return ``self + k * other``."""
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            bump(terms, atom, k * c)
        return Linear(terms, self.constant + k * other.constant)

    def atom(self) -> Expr | None:
        """The atom, when the form is nothing but one."""
        if self.constant == 0 and len(self.terms) == 1:
            for atom, k in self.terms.items():
                return atom if k == 1 else None
        return None


def bump(terms: dict[Expr, int], atom: Expr, k: int) -> int:
    """Add ``k * atom`` to ``terms``; an ``AtomFn`` for atoms that stay as they are."""
    total = terms.get(atom, 0) + k
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)
    return 0


def linear(e: Expr) -> Linear:
    """Return the linear form of an index expression; one of another type is an atom."""
    if isinstance(e, Var) or e.dtype != index:
        return Linear({e: 1})
    terms: dict[Expr, int] = {}
    constant = gather(e, 1, terms, bump)
    return Linear(terms, constant)


def gather(e: Expr, k: int, terms: dict[Expr, int], atom: AtomFn) -> int:
    """Add ``k * e`` to ``terms`` and return the constant part; ``e`` is an index.

    ``atom(terms, e, k)`` does the same for what is not a sum and no multiple.
    """
    if isinstance(e, Op):
        match e.name:
            case "add":
                a, b = e.args
                return gather(a, k, terms, atom) + gather(b, k, terms, atom)
            case "multiply":
                a, b = e.args
                if not isinstance(b, Const):
                    a, b = b, a
                if isinstance(b, Const) and isinstance(b.value, int):
                    return gather(a, k * b.value, terms, atom) if b.value else 0
            case "subtract":
                a, b = e.args
                return gather(a, k, terms, atom) + gather(b, -k, terms, atom)
            case "negate":
                return gather(e.args[0], -k, terms, atom)
    elif isinstance(e, Const):
        return k * e.value  # type: ignore[return-value]  # an index is an int
    return atom(terms, e, k)


def to_expr(form: Linear) -> Expr:
    """Return the expression of a linear form: large coefficients first, then what is subtracted."""
    order = sorted(form.terms.items(), key=_size) if len(form.terms) > 1 else form.terms.items()
    constant = _wrap(form.constant)
    result: Expr | None = None
    for atom, k in order:
        if k > 0:
            term = atom if k == 1 else Op("multiply", (atom, Const(_wrap(k))), index)
            result = term if result is None else Op("add", (result, term), index)
    if result is None:
        result, constant = Const(constant), 0
    for atom, k in order:
        if k < 0:
            term = atom if k == -1 else Op("multiply", (atom, Const(_wrap(-k))), index)
            result = Op("subtract", (result, term), index)
    return Op("add", (result, Const(constant)), index) if constant else result


def _size(term: tuple[Expr, int]) -> int:
    return -abs(term[1])


def _wrap(k: int) -> int:
    return (k - LOW) % 2**64 + LOW  # s64 data wraps; an index never gets here out of range


def mentions(e: Expr, var: Var) -> bool:
    """True if ``var`` occurs in ``e``."""
    match e:
        case Var():
            return e is var
        case Op(args=args) | Load(index=args):
            return any(mentions(a, var) for a in args)
        case Cast(value=value):
            return mentions(value, var)
        case _:
            return False


def steps(e: Expr, *variables: Var) -> tuple[int, ...] | None:
    """Return by how much an index changes when each of some variables is increased by 1.

    None if one of them occurs in an atom, so that the index may not be linear in it.
    """
    terms = linear(e).terms
    inside = (atom for atom in terms if not isinstance(atom, Var))
    if any(mentions(atom, v) for atom in inside for v in variables):
        return None
    return tuple(terms.get(v, 0) for v in variables)


def loop_range(extent: Expr, ranges: Ranges) -> Interval:
    """Return the interval of a variable that counts below ``extent``: (0, 0) if it never does."""
    return 0, max(bounds(extent, ranges)[1] - 1, 0)


def bounds(e: Expr, ranges: Ranges) -> Interval:
    """Return the least and the greatest value of an integer expression, both included.

    ``ranges`` gives those of variables; of one that it lacks nothing is known. Index arithmetic
    does not overflow (see ``nodes``). The interval covers every value and may be too wide.
    """
    if isinstance(e, Var):
        low, high = ranges.get(e) or of_dtype(e.dtype)
        return max(low, LOW), min(high, HIGH)
    if isinstance(e, Const) and type(e.value) is int:
        return max(e.value, LOW), min(e.value, HIGH)
    return bounds_of(linear(e), ranges)


def bounds_of(form: Linear, ranges: Ranges, splits: int = 3) -> Interval:
    """Return the interval of a linear form.

    A minimum, maximum or selection is opened into its cases at most ``splits`` deep, because what
    is beside it may cancel: ``i * 8 + min(8, 61 - i * 8)`` is at most 61.
    """
    if splits and len(form.terms) > 1:
        for atom, k in form.terms.items():
            if isinstance(atom, Op) and atom.name in ("minimum", "maximum", "select"):
                rest = form.plus(Linear({atom: 1}), -k)
                a, b = (
                    bounds_of(rest.plus(linear(x), k), ranges, splits - 1) for x in atom.args[-2:]
                )
                return _either(atom.name, a, b, k < 0)
    low = high = form.constant
    for atom, k in form.terms.items():
        if isinstance(atom, Var):
            least, most = ranges.get(atom) or of_dtype(atom.dtype)
        else:
            least, most = _atom_bounds(atom, ranges, splits)
        least, most = (least, most) if k > 0 else (most, least)
        low, high = low + k * least, high + k * most
    return max(low, LOW), min(high, HIGH)


def _either(name: str, a: Interval, b: Interval, negated: bool) -> Interval:
    if name == "select":
        return min(a[0], b[0]), max(a[1], b[1])
    pick = min if (name == "minimum") != negated else max
    return pick(a[0], b[0]), pick(a[1], b[1])


def _atom_bounds(e: Expr, ranges: Ranges, splits: int) -> Interval:
    def inside(x: Expr) -> Interval:
        return bounds_of(linear(x), ranges, splits)

    match e:
        case Var():
            return ranges.get(e) or of_dtype(e.dtype)
        case Const(value=int(c)):
            return int(c), int(c)
        case Op(name="floordiv" | "floormod" | "multiply", args=(a, b), dtype=d) if d == index:
            return _product(e.name, inside(a), inside(b))
        case Op(name="minimum" | "maximum" | "select", args=(*_, a, b), dtype=d) if d == index:
            return _either(e.name, inside(a), inside(b), False)
        case Op(name="clamp", args=(low, x, high), dtype=d) if d == index:
            least, inner, most = (inside(y) for y in (low, x, high))
            return _either("minimum", _either("maximum", least, inner, False), most, False)
        case Op(name="abs", args=(a,), dtype=d) if d == index:
            p, q = inside(a)
            return (0 if p <= 0 <= q else min(abs(p), abs(q))), min(max(abs(p), abs(q)), HIGH)
        case Cast(value=value, bits=False) if value.dtype.kind in ("signed", "unsigned", "pred"):
            own, inner = of_dtype(e.dtype), inside(value)
            return inner if own[0] <= inner[0] and inner[1] <= own[1] else own
        case _:
            return of_dtype(e.dtype)


def of_dtype(dtype: DType) -> Interval:
    """Return every value of an integer element type, as far as an index can hold it."""
    match dtype.kind:
        case "pred":
            return 0, 1
        case "signed":
            return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
        case "unsigned" if dtype.bits < 64:
            return 0, (1 << dtype.bits) - 1
        case _:
            return ANYTHING


def _product(name: str, a: Interval, b: Interval) -> Interval:
    if name == "multiply":
        corners = [x * y for x in a for y in b]
        return max(min(corners), LOW), min(max(corners), HIGH)
    if b[0] <= 0:  # the divisor is positive by definition; nothing else is known of it
        b = (1, max(b[1], 1))
    if name == "floordiv":
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1


def refine(ranges: Ranges, cond: Expr) -> Ranges:
    """Return ``ranges`` narrowed by a condition that holds; the same object if it tells nothing."""
    match cond:
        case Op(name="and", args=(a, b)):
            return refine(refine(ranges, a), b)
        case Op(name="lt" | "le" | "gt" | "ge" | "eq", args=(a, b)) if a.dtype == index:
            form = linear(a) - linear(b)
            strict = Linear({}, 1 if cond.name in ("lt", "gt") else 0)
            if cond.name in ("lt", "le", "eq"):
                ranges = _at_most_zero(ranges, form + strict)
            if cond.name in ("gt", "ge", "eq"):
                ranges = _at_most_zero(ranges, form * -1 + strict)
    return ranges


def _at_most_zero(ranges: Ranges, form: Linear) -> Ranges:
    for var, k in form.terms.items():
        if not isinstance(var, Var) or ranges.get(var, ANYTHING) == ANYTHING:
            continue
        room = -bounds_of(form.plus(Linear({var: 1}), -k), ranges)[0]  # k * var <= room
        low, high = ranges[var]
        new = (low, min(high, room // k)) if k > 0 else (max(low, -(room // -k)), high)
        if new != (low, high) and new[0] <= new[1]:
            ranges = {**ranges, var: new}
    return ranges
