"""Element-wise operations on values with errors: one rule per operation of the table.

Sums, products and quotients use the usual first-order rules (Higham, Accuracy and Stability of
Numerical Algorithms, chapter 3), with their second-order terms. A monotone function is evaluated at
both ends of its argument. What jumps, as rounding to whole numbers and comparing do, may give
whatever it gives inside the argument's range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...dtypes import DType, f64, to_numpy
from ...elementwise import DIRECTIONS, TABLE
from ..nodes import Instruction
from .bounded import (
    LIBRARY,
    Bounded,
    both,
    ends,
    fits,
    hull,
    narrow,
    represents,
    rounded,
    unknown,
    wide,
)

Rule: TypeAlias = Callable[[Sequence[Bounded], DType], Bounded]

_F = {name: op.numpy for name, op in TABLE.items()}


def apply(name: str, args: Sequence[Bounded], dtypes: Sequence[DType], to: DType) -> Bounded:
    """One operation of the table on operands of ``dtypes`` that gives elements of ``to``."""
    if name == "select":
        return select(*args)
    kind = dtypes[-1].kind
    if kind == "float":
        rule = _FLOAT.get(name)
    elif kind == "complex":
        rule = _COMPLEX.get(name)
    else:
        if all(x.certain for x in args):
            return Bounded(np.asarray(_F[name](*(x.value for x in args))))
        rule = _LOGICAL.get(name) if kind == "pred" else _INTEGER.get(name)
    return exactly(name, args, dtypes, to) if rule is None else rule(args, to)


def exactly(name: str, args: Sequence[Bounded], dtypes: Sequence[DType], to: DType) -> Bounded:
    """Return an operation without a rule: only what comes of certain integers is certain."""
    value = wide(_F[name](*(narrow(x, d) for x, d in zip(args, dtypes, strict=True))), to)
    whole = all(d.kind not in ("float", "complex") for d in dtypes)
    return Bounded(value) if whole and all(x.certain for x in args) else unknown(value)


def select(condition: Bounded, yes: Bounded, no: Bounded) -> Bounded:
    """Return the operand that a predicate names; either of them where it is uncertain."""
    value = np.where(condition.value, yes.value, no.value)
    if both(condition.error, yes.error, no.error):
        return Bounded(value)
    error = np.where(condition.value, yes.errors, no.errors)
    if not condition.certain:
        other = np.where(condition.value, no.value, yes.value)
        theirs = np.where(condition.value, no.errors, yes.errors)
        loose = np.maximum(error, hull(value, other) + theirs)
        error = np.where(condition.errors > 0, loose, error)
    return Bounded(value, error)


def compare(i: Instruction, a: Bounded, b: Bounded) -> Bounded:
    """HLO ``compare``: uncertain where the operands are as near as their errors."""
    dtype, name = i.operands[0].array.dtype, DIRECTIONS[i.attrs["direction"]]
    if i.attrs.get("type") == "TOTALORDER" and dtype.is_float and not _plain(a, b):
        from ..meaning.pointwise import total_order

        x, y = (total_order(narrow(v, dtype)) for v in (a, b))
        value = np.asarray(_F[name](x, y))
    else:
        value = np.asarray(_F[name](a.value, b.value))
    if both(a.error, b.error):
        return Bounded(value)
    if i.operands[0] is i.operands[1]:  # asks whether it is NaN, which its error does not change
        return Bounded(value, np.isinf(a.errors).astype(np.float64))
    with np.errstate(all="ignore"):
        apart = np.abs(a.value.astype(np.float64) - b.value.astype(np.float64))
        reach = a.errors + b.errors
        odd = ~np.isfinite(apart) & ~np.isinf(reach)  # infinities and NaNs that are certain
        close = (reach > 0) & ~odd & ~(apart > reach)
    return Bounded(value, close.astype(np.float64))


def _plain(a: Bounded, b: Bounded) -> bool:
    """True if the total order is the usual one on these values: no NaN, no zero."""
    return all(bool((np.isfinite(x.value) & (x.value != 0)).all()) for x in (a, b))


def conversion(x: Bounded, source: DType, to: DType) -> Bounded:
    """HLO ``convert``."""
    if source == to:
        return x
    if to.kind == "complex":
        real = x if source.kind in ("float", "complex") else Bounded(x.value, x.error)
        return rounded(real.value.astype(np.complex128), real.error, to)
    if source.kind == "complex":
        x = Bounded(x.value.real, x.error)
        source = f64
    if to.is_float:
        return rounded(wide(x.value, to), x.error, to)
    value = convert(x.value, to_numpy(to))
    if x.certain:
        return Bounded(value)
    low, high = ends(x)
    if source.kind == "pred":
        return Bounded(value, x.error)
    if to.kind == "pred":
        spans = (x.errors > 0) & ~((low > 0) | (high < 0))
        return Bounded(value, spans.astype(np.float64))
    if source.is_float:
        return _jumped(x, value, lambda v: convert(v, to_numpy(to)))
    wraps = np.asarray(value).astype(np.float64) != np.asarray(x.value).astype(np.float64)
    bits = to.bits - (to.kind == "signed")
    floor = -(2.0**bits) if to.kind == "signed" else 0.0
    safe = ~wraps & (low >= floor) & (high < 2.0**bits)
    return Bounded(value, np.where(safe | (x.errors == 0), x.errors, np.inf))


def _jumped(x: Bounded, value: Array, function: Callable[[Array], Array]) -> Bounded:
    """A step function: what it gives at either end of the argument."""
    if x.certain:
        return Bounded(value)
    low, high = ends(x)
    found = hull(value, function(low), function(high))
    return Bounded(value, np.where(np.isinf(x.errors), np.inf, found))


def precision(x: Bounded, dtype: DType, value: Array, mantissa: int) -> Bounded:
    """HLO ``reduce-precision``, of which ``value`` is the result on the nearest number."""
    if represents(x, dtype):
        return Bounded(wide(value, dtype))
    step = 2.0**-mantissa * np.abs(x.value)
    return rounded(x.value, np.where(np.isfinite(x.value), x.errors + step, 0.0), dtype)


def _sum(sign: float) -> Rule:
    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        a, b = args
        with np.errstate(all="ignore"):
            value = np.asarray(a.value + sign * b.value)
            error = None if both(a.error, b.error) else a.errors + b.errors
        return _arithmetic(value, error, args, to)

    return rule


def _product(args: Sequence[Bounded], to: DType) -> Bounded:
    a, b = args
    with np.errstate(all="ignore"):
        value = np.asarray(a.value * b.value)
        error = None
        if not both(a.error, b.error):
            ea, eb = a.errors, b.errors
            error = np.abs(a.value) * eb + np.abs(b.value) * ea + ea * eb
            error = np.where(_settled(a, b), 0.0, error)
    return _arithmetic(value, error, args, to)


def _settled(a: Bounded, b: Bounded) -> Array:
    """True where no operand is off, or one is NaN."""
    ea, eb = a.errors, b.errors
    odd = (np.isnan(a.value) & np.isfinite(ea)) | (np.isnan(b.value) & np.isfinite(eb))
    settled: Array = ((ea == 0) & (eb == 0)) | odd
    return settled


def _quotient(args: Sequence[Bounded], to: DType) -> Bounded:
    a, b = args
    with np.errstate(all="ignore"):
        value = np.asarray(a.value / b.value)
        if both(a.error, b.error):
            return rounded(value, None, to, always=to == f64)
        ea, eb = a.errors, b.errors
        room = np.abs(b.value) - eb
        error = np.where(room > 0, (ea + np.abs(value) * eb) / room, np.inf)
        error = np.where(_settled(a, b), 0.0, error)
    return rounded(value, error, to, always=to == f64)


def _arithmetic(value: Array, error: Array | None, args: Sequence[Bounded], to: DType) -> Bounded:
    """Round a sum or product. In f64, only what comes of whole numbers is known to be exact."""
    whole = to != f64 or all(bool(fits(x.value, f64).all()) for x in args)
    return rounded(value, error, to, always=not whole)


def _monotone(name: str, exact_at: tuple[float, ...] = ()) -> Rule:
    """A function that rises or falls all along, given by a library to within some ulps."""
    f = _F[name]

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        (x,) = args
        with np.errstate(all="ignore"):
            value = np.asarray(f(x.value))
            error = None
            if not x.certain:
                low, high = ends(x)
                error = hull(value, np.asarray(f(low)), np.asarray(f(high)))
        known = np.isin(x.value, exact_at) if exact_at else np.zeros(value.shape, bool)
        found = rounded(value, error, to, _units(to, 2 * LIBRARY), always=True)
        kept = known & (x.errors == 0) | np.isnan(value) & (x.errors == 0)
        return Bounded(found.value, np.where(kept, 0.0, found.errors))

    return rule


def _exponential(args: Sequence[Bounded], to: DType) -> Bounded:
    """The error in closed form: exp(x + e) - exp(x) = exp(x) (exp(e) - 1)."""
    (x,) = args
    with np.errstate(all="ignore"):
        value = np.exp(x.value)
        error = None if x.certain else value * np.expm1(x.errors)
        found = rounded(value, error, to, _units(to, 2 * LIBRARY), always=True)
    known = (x.errors == 0) & ((x.value == 0) | np.isnan(value))
    return Bounded(found.value, np.where(known, 0.0, found.errors))


def _error_function(args: Sequence[Bounded], to: DType) -> Bounded:
    """``erf``, whose slope is at most 2 / sqrt(pi) exp(-y^2), y the least size of the argument."""
    (x,) = args
    value = _F["erf"](x.value)
    with np.errstate(all="ignore"):
        nearest = np.maximum(0.0, np.abs(x.value) - x.errors)
        error = None if x.certain else 1.1284 * np.exp(-(nearest**2)) * x.errors
        error = None if error is None else np.minimum(error, 2.0)
    return rounded(value, error, to, _units(to, 2 * LIBRARY), always=True)


def _units(to: DType, units: float) -> float:
    """Narrow types are computed in f32, so that rounding is nearly all there is."""
    return units if to.bits >= 32 else 1.01


def _root(args: Sequence[Bounded], to: DType) -> Bounded:
    """Square roots are rounded correctly, so whole ones of whole numbers are exact."""
    (x,) = args
    with np.errstate(all="ignore"):
        value = np.asarray(np.sqrt(x.value))
        low, high = ends(x)
        error = None if x.certain else hull(value, np.sqrt(low), np.sqrt(high))
        found = rounded(value, error, to, 2.0, always=True)
        whole = (value * value == x.value) & fits(value, to) & (x.errors == 0)
    return Bounded(
        found.value, np.where(whole | ((x.errors == 0) & np.isnan(value)), 0.0, found.errors)
    )


def _wave(name: str, slope: float = 1.0) -> Rule:
    """Sine and cosine: what the argument is off, and never by more than 2."""
    f = _F[name]

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        (x,) = args
        with np.errstate(all="ignore"):
            value = np.asarray(f(x.value))
        error = None if x.certain else np.minimum(slope * x.errors, 2.0)
        found = rounded(value, error, to, _units(to, 2 * LIBRARY), always=True)
        sure = (x.errors == 0) & ((x.value == 0) | np.isnan(value))
        return Bounded(found.value, np.where(sure, 0.0, found.errors))

    return rule


def _tangent(args: Sequence[Bounded], to: DType) -> Bounded:
    (x,) = args
    with np.errstate(all="ignore"):
        value = np.tan(x.value)
        low, high = ends(x)
        error = hull(value, np.tan(low), np.tan(high))
        branch = np.floor(low / np.pi + 0.5) != np.floor(high / np.pi + 0.5)
        error = np.where(branch, np.inf, error)
    return rounded(np.asarray(value), error, to, _units(to, 2 * LIBRARY), always=True)


def _power(args: Sequence[Bounded], to: DType) -> Bounded:
    a, b = args
    with np.errstate(all="ignore"):
        value = np.asarray(np.power(a.value, b.value))
        error = None
        if not (a.certain and b.certain):
            corners = [np.power(x, y) for x in ends(a) for y in ends(b)]
            error = hull(value, *corners, np.where(np.abs(a.value) <= a.errors, 0.0, value))
            bent = (b.errors > 0) & (a.value - a.errors <= 0)
            error = np.where(bent, np.inf, error)
        found = rounded(value, error, to, _units(to, 2 * LIBRARY), always=True)
    sure = (a.errors == 0) & (b.errors == 0) & (np.isnan(value) | (b.value == 0))
    return Bounded(found.value, np.where(sure, 0.0, found.errors))


def _angle(args: Sequence[Bounded], to: DType) -> Bounded:
    y, x = args
    with np.errstate(all="ignore"):
        value = np.asarray(np.arctan2(y.value, x.value))
        radius = np.hypot(y.value, x.value)
        reach = y.errors + x.errors
        error = np.where(2 * reach < radius, 2 * reach / radius, np.where(reach > 0, np.inf, 0.0))
        cut = (y.errors > 0) & (np.abs(y.value) <= y.errors) & (x.value <= x.errors)
        error = np.where(cut, np.inf, error)
        error = np.where(np.isnan(value) & np.isfinite(reach), 0.0, error)
    return rounded(value, error, to, _units(to, 2 * LIBRARY), always=True)


def _remainder(args: Sequence[Bounded], to: DType) -> Bounded:
    a, b = args
    with np.errstate(all="ignore"):
        value = np.asarray(np.fmod(a.value, b.value))
        if a.certain and b.certain:
            return Bounded(value)
        turns = np.trunc(a.value / b.value)
        same = np.all([np.trunc(p / q) == turns for p in ends(a) for q in ends(b)], axis=0)
        error = np.where(same, a.errors + np.abs(turns) * b.errors, np.inf)
    return rounded(value, error, to)


def _larger(name: str) -> Rule:
    """Maximum and minimum: off as one operand is if that is chosen for certain, else as either."""
    f = _F[name]

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        a, b = args
        value = np.asarray(f(a.value, b.value))
        if both(a.error, b.error):
            return Bounded(value)
        ea, eb = a.errors, b.errors
        with np.errstate(all="ignore"):
            apart = np.abs(a.value - b.value) > ea + eb
        mine = np.where(value == a.value, ea, eb)  # of what is larger for certain
        return Bounded(value, np.where(apart, mine, np.maximum(ea, eb)))

    return rule


def _clamp(args: Sequence[Bounded], to: DType) -> Bounded:
    low, x, high = args
    return _larger("minimum")([_larger("maximum")([x, low], to), high], to)


def _step(name: str) -> Rule:
    """Floor and its like: whole numbers, which are exact."""
    f = _F[name]

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        (x,) = args
        return _jumped(x, np.asarray(f(x.value)), lambda v: np.asarray(f(v)))

    return rule


def _same(name: str) -> Rule:
    """Absolute value and negation, which move no element further off."""
    f = _F[name]

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        return Bounded(np.asarray(f(args[0].value)), args[0].error)

    return rule


def _finite(args: Sequence[Bounded], to: DType) -> Bounded:
    (x,) = args
    value = np.isfinite(x.value)
    return Bounded(value, None if x.error is None else np.isinf(x.error).astype(np.float64))


def _fma(args: Sequence[Bounded], to: DType) -> Bounded:
    return _sum(1.0)([_product(args[:2], to), args[2]], to)


def _in_range(f: Callable[[Array, Array], Array], error: Callable[..., Array]) -> Rule:
    """An integer operation whose error is known as long as nothing wraps."""

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        value = f(*(x.value for x in args))
        with np.errstate(all="ignore"):
            found = error(*(x.value.astype(np.float64) for x in args), *(x.errors for x in args))
            top = 2.0 ** (to.bits - 1)
            true = f(*(x.value.astype(np.float64) for x in args))
            far = (np.abs(true) + found >= top) | (value != true)
        return Bounded(value, np.where((found > 0) & far, np.inf, found))

    return rule


def _logic(args: Sequence[Bounded], to: DType, stop: bool) -> Bounded:
    """``and`` (``stop`` false), ``or``: certain where one operand decides."""
    a, b = args
    value = np.logical_or(a.value, b.value) if stop else np.logical_and(a.value, b.value)
    decided = ((a.errors == 0) & (a.value == stop)) | ((b.errors == 0) & (b.value == stop))
    loose = ((a.errors > 0) | (b.errors > 0)) & ~decided
    return Bounded(value, loose.astype(np.float64))


def _either(name: str) -> Rule:
    """Any other operation on truth values: uncertain where an operand is."""
    f = _F[name]

    def rule(args: Sequence[Bounded], to: DType) -> Bounded:
        value = np.asarray(f(*(x.value for x in args)))
        loose = np.any([x.errors > 0 for x in args], axis=0)
        return Bounded(value, np.broadcast_to(loose, value.shape).astype(np.float64))

    return rule


def _all(args: Sequence[Bounded], to: DType) -> Bounded:
    return _logic(args, to, stop=False)


def _any(args: Sequence[Bounded], to: DType) -> Bounded:
    return _logic(args, to, stop=True)


def _complex_product(args: Sequence[Bounded], to: DType) -> Bounded:
    a, b = args
    with np.errstate(all="ignore"):
        ea, eb = a.errors, b.errors
        error = np.abs(a.value) * eb + np.abs(b.value) * ea + ea * eb
        return rounded(np.asarray(a.value * b.value), error, to)


_LARGER: dict[str, Rule] = {"maximum": _larger("maximum"), "minimum": _larger("minimum")}

_FLOAT: dict[str, Rule] = {
    **_LARGER,
    "add": _sum(1.0),
    "subtract": _sum(-1.0),
    "multiply": _product,
    "divide": _quotient,
    "remainder": _remainder,
    "power": _power,
    "atan2": _angle,
    "fma": _fma,
    "clamp": _clamp,
    "abs": _same("abs"),
    "negate": _same("negate"),
    "is-finite": _finite,
    "sqrt": _root,
    "sine": _wave("sine"),
    "cosine": _wave("cosine"),
    "tan": _tangent,
    **{n: _step(n) for n in ("sign", "floor", "ceil", "round-nearest-even", "round-nearest-afz")},
    "exponential": _exponential,
    "erf": _error_function,
    **{n: _monotone(n, (0.0,)) for n in ("logistic", "cosh", "erfc")},
    **{n: _monotone(n) for n in ("exponential-minus-one", "log", "log-plus-one", "tanh", "sinh")},
    **{n: _monotone(n) for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{n: _monotone(n) for n in ("cbrt", "rsqrt")},
}
_COMPLEX: dict[str, Rule] = {
    "add": _sum(1.0),
    "subtract": _sum(-1.0),
    "multiply": _complex_product,
    "negate": _same("negate"),
}
_INTEGER: dict[str, Rule] = {
    **_LARGER,
    "clamp": _clamp,
    "add": _in_range(np.add, lambda a, b, ea, eb: ea + eb),
    "subtract": _in_range(np.subtract, lambda a, b, ea, eb: ea + eb),
    "multiply": _in_range(
        np.multiply, lambda a, b, ea, eb: np.abs(a) * eb + np.abs(b) * ea + ea * eb
    ),
}
_LOGICAL: dict[str, Rule] = {
    "and": _all,
    "multiply": _all,
    "minimum": _all,
    "or": _any,
    "add": _any,
    "maximum": _any,
    **{n: _either(n) for n in ("not", "xor", "eq", "ne", "lt", "le", "gt", "ge")},
}


def map_moved(x: Bounded, dtype: DType, move: Callable[[Array], Array]) -> Bounded:
    """Bits under another type: known where the value is, and is a number of its type."""
    made = move(narrow(x, dtype))
    return Bounded(made) if represents(x, dtype) else unknown(made)
