"""The largest known divisor of an index expression, for the vector accesses of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from ...ir.loop.nodes import Const, Expr, Op, Var


def divisor(e: Expr, of: Callable[[Var], int]) -> int:
    """Return a divisor of an index expression, 0 if that is 0; ``of`` returns a variable's."""
    match e:
        case Const(value=int(c)):
            return abs(c)
        case Var():
            return of(e)
        case Op(name="add" | "subtract" | "minimum" | "maximum", args=(a, b)):
            return gcd(divisor(a, of), divisor(b, of))
        case Op(name="multiply", args=(a, b)):
            return divisor(a, of) * divisor(b, of)
        case Op(name="negate", args=(a,)):
            return divisor(a, of)
        case Op(name="floormod", args=(a, Const(value=int(c)))):
            return gcd(divisor(a, of), c)
        case Op(name="floordiv", args=(a, Const(value=int(c)))):
            whole = divisor(a, of)
            return whole // c if c > 0 and whole % c == 0 else 1
        case Op(name="select", args=(_, a, b)):
            return gcd(divisor(a, of), divisor(b, of))
        case Op(name="clamp", args=(a, b, c)):
            return gcd(gcd(divisor(a, of), divisor(b, of)), divisor(c, of))
        case _:
            return 1
