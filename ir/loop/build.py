"""Constructors that fold what is obvious: index arithmetic, conditions, conversions, regions."""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import DType, index, pred
from ..elementwise import TABLE
from .nodes import Buffer, Cast, Const, Expr, For, Op, Range, Region, Scalar, Var

TRUE = Const(True, pred)
FALSE = Const(False, pred)


def const(value: Scalar, dtype: DType = index) -> Const:
    """Return a literal of the given element type."""
    return Const(value, dtype)


def zero_of(dtype: DType) -> Const:
    """Return the literal 0 of a type."""
    return Const(0.0 if dtype.is_float else 0, dtype)


def as_expr(value: Expr | int) -> Expr:
    """Return an index expression: ints become s64 literals."""
    return Const(value, index) if isinstance(value, int) else value


def op(name: str, *args: Expr) -> Op:
    """Return an operation, its element type taken from the table."""
    return Op(name, args, TABLE[name].result_dtype(*(a.dtype for a in args)))


def as_int(e: Expr | int) -> int | None:
    """Return the value of a literal index; None for anything else."""
    if isinstance(e, int):
        return e
    return e.value if isinstance(e, Const) and type(e.value) is int else None


def add(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a + b`` for indices; literals go to the right and are gathered."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(x + y)
    if x is not None:
        a, b, x, y = b, a, y, x
    if y == 0:
        return a
    if y is not None and isinstance(a, Op) and a.name == "add":
        inner = as_int(a.args[1])
        if inner is not None:
            return add(a.args[0], inner + y)
    return Op("add", (a, b), index)


def sub(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a - b`` for indices."""
    a, b = as_expr(a), as_expr(b)
    y = as_int(b)
    if y is not None:
        return add(a, -y)
    return Const(0) if a is b else Op("subtract", (a, b), index)


def mul(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a * b`` for indices."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(x * y)
    if x is not None:
        a, b, x, y = b, a, y, x
    if y == 0:
        return Const(0)
    if y == 1:
        return a
    if y is not None and isinstance(a, Op) and a.name == "multiply":
        inner = as_int(a.args[1])
        if inner is not None:
            return mul(a.args[0], inner * y)
    return Op("multiply", (a, b), index)


def floordiv(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a // b`` for indices, rounding down; ``b`` is positive."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if y == 1:
        return a
    if x is not None and y is not None:
        return Const(x // y)
    return Op("floordiv", (a, b), index)


def floormod(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a % b`` for indices, never negative; ``b`` is positive."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if y == 1:
        return Const(0)
    if x is not None and y is not None:
        return Const(x % y)
    return Op("floormod", (a, b), index)


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """Return the smaller of two indices."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(min(x, y))
    return a if a is b else Op("minimum", (a, b), index)


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """Return the larger of two indices."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(max(x, y))
    return a if a is b else Op("maximum", (a, b), index)


_COMPARE = {
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
    "eq": int.__eq__,
    "ne": int.__ne__,
}


NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
"""The comparison that holds where another does not, of indices."""


def compare(name: str, a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a name b`` for indices; ``name`` is lt, le, gt, ge, eq or ne."""
    a, b = as_expr(a), as_expr(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(bool(_COMPARE[name](x, y)), pred)
    return Op(name, (a, b), pred)


def opposite(cond: Expr) -> Expr:
    """Return the condition that holds where ``cond`` does not."""
    match cond:
        case Op(name=name, args=(a, b)) if name in NEGATED and a.dtype == index:
            return compare(NEGATED[name], a, b)
        case _:
            return op("not", cond)


def lt(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a < b`` for indices."""
    return compare("lt", a, b)


def both(*conditions: Expr | None) -> Expr | None:
    """Return the conjunction of conditions; None (always true) when nothing is left."""
    rest = [c for c in conditions if c is not None and c != TRUE]
    if any(c == FALSE for c in rest):
        return FALSE
    result: Expr | None = None
    for c in rest:
        result = c if result is None else Op("and", (result, c), pred)
    return result


def conjuncts(cond: Expr | None) -> tuple[Expr, ...]:
    """Return the conditions that all hold where ``cond`` does; none for None: always true."""
    match cond:
        case None:
            return ()
        case Op(name="and", args=(a, b)):
            return conjuncts(a) + conjuncts(b)
        case _:
            return (cond,)


def select(cond: Expr, a: Expr, b: Expr) -> Expr:
    """Return ``a`` where ``cond``, else ``b``."""
    if isinstance(cond, Const):
        return a if cond.value else b
    return Op("select", (cond, a, b), a.dtype)


def cast(value: Expr, dtype: DType) -> Expr:
    """HLO ``convert``; nothing when the type is already right."""
    return value if value.dtype == dtype else Cast(value, dtype)


def number_of(digits: Sequence[Expr | int], extents: Sequence[Expr | int]) -> Expr:
    """Return the row-major number of an index in a box of these extents.

    In other words, of digits in a number system of mixed bases, the most significant one first.
    """
    number: Expr = Const(0)
    for digit, extent in zip(digits, extents, strict=True):
        number = add(mul(number, extent), digit)
    return number


def iteration(loops: Sequence[For]) -> Expr:
    """Return the number of the present iteration among all of a nest, its outermost loop first."""
    return number_of([x.var for x in loops], [x.extent for x in loops])


def points(index: Sequence[Expr]) -> tuple[Range, ...]:
    """Return the ranges of one element at ``index``."""
    return tuple(Range(e, Const(1)) for e in index)


def point(buffer: Buffer, index: Sequence[Expr]) -> Region:
    """Return the region of one element."""
    return Region(buffer, points(index))


def whole_of(buffer: Buffer) -> Region:
    """Return the region of all elements of a buffer."""
    return Region(buffer, tuple(Range(Const(0), Const(n)) for n in buffer.shape))


def var(name: str, dtype: DType = index) -> Var:
    """Return a fresh variable."""
    return Var(name, dtype)
