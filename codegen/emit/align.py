"""What an index is a multiple of, whatever its variables are: for the vector accesses of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from ...ir.loop.nodes import Const, Expr, Op, Var


def multiple(e: Expr, of: Callable[[Var], int]) -> int:
    """A number that divides an index expression, 0 if it is 0; ``of`` tells it of a variable."""
    match e:
        case Const(value=int(c)):
            return abs(c)
        case Var():
            return of(e)
        case Op(name="add" | "subtract" | "minimum" | "maximum", args=(a, b)):
            return gcd(multiple(a, of), multiple(b, of))
        case Op(name="multiply", args=(a, b)):
            return multiple(a, of) * multiple(b, of)
        case Op(name="negate", args=(a,)):
            return multiple(a, of)
        case Op(name="floormod", args=(a, Const(value=int(c)))):
            return gcd(multiple(a, of), c)
        case Op(name="floordiv", args=(a, Const(value=int(c)))):
            whole = multiple(a, of)
            return whole // c if c > 0 and whole % c == 0 else 1
        case Op(name="select", args=(_, a, b)):
            return gcd(multiple(a, of), multiple(b, of))
        case Op(name="clamp", args=(a, b, c)):
            return gcd(gcd(multiple(a, of), multiple(b, of)), multiple(c, of))
        case _:
            return 1
