"""Random loop nests for property tests of this floor."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from nestwright.ir.dtypes import s64
from nestwright.ir.loop.build import add, compare, const, floordiv, floormod, mul, op
from nestwright.ir.loop.nodes import Buffer, Expr, For, Func, If, Kind, Load, Stmt, Store, Var


class Draw:
    """Random nests of three loops around one store, their indices random expressions."""

    def __init__(self, seed: int) -> None:
        r = self.random = random.Random(seed)
        self.vars = [Var(n) for n in "ijk"]
        self.extents = [r.choice([1, 2, 3, 4, 6, 12]) for _ in self.vars]

    def index(self, depth: int = 3) -> Expr:
        r = self.random
        if depth == 0:
            return r.choice([*self.vars, self.vars[0], const(r.randrange(3))])
        a, c = self.index(depth - 1), r.choice([1, 2, 3, 4, 6, 12])
        f = r.choice([floordiv, floormod, mul, add])
        return f(a, self.index(depth - 1) if f is add else c)

    def element(self, shape: tuple[int, ...]) -> tuple[Expr, ...]:
        return tuple(floormod(self.index(self.random.randrange(4)), n) for n in shape)

    def func(self, kind: Kind) -> Func:
        r = self.random
        shape = tuple(r.choice([4, 12, 24]) for _ in range(r.randrange(1, 3)))
        c, a = Buffer("C", shape, s64), Buffer("A", shape, s64)
        i, j, k = self.vars
        x, y, z = (const(n) for n in self.extents)
        place, value = self.element(shape), Load(a, self.element(shape))
        update = op("add", Load(c, r.choice([place, self.element(shape)])), value)
        store: Stmt = Store(c, place, r.choice([value, value, update]))
        if r.random() < 0.3:
            store = If(compare(r.choice(["lt", "eq", "ge"]), self.index(), self.index()), store)
        return Func("f", (a, c), 1, For(i, x, For(j, y, For(k, z, store)), kind))


@pytest.fixture(scope="session")
def random_nest() -> Callable[[int, Kind], Func]:
    """``f(seed, kind of the outermost loop)``: a function of one input, A, and one output, C."""
    return lambda seed, kind: Draw(seed).func(kind)
