"""Bounds of index expressions hold for every value of their variables."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, index, s32
from nestwright.ir.elementwise import TABLE
from nestwright.ir.loop import build
from nestwright.ir.loop.affine import bounds, linear, to_expr
from nestwright.ir.loop.nodes import Cast, Const, Expr, Op, Var
from nestwright.ir.loop.printer import show

IV, JV, FV = Var("i"), Var("j"), Var("f")
RANGES = {IV: (0, 4), JV: (1, 5), FV: (-3, 7)}
GRID = np.array([*product(*(range(a, b + 1) for a, b in RANGES.values()))], np.int64).T
VALUES = dict(zip(RANGES, GRID, strict=True))


def value(e: Expr) -> np.ndarray:
    """The values of an expression at all points."""
    match e:
        case Var():
            return VALUES[e]
        case Const(value=v):
            return np.asarray(v)
        case Op(name=name, args=args):
            return TABLE[name].numpy(*map(value, args))
        case Cast(value=inner):
            return value(inner)
    raise AssertionError(e)


def drawn(rng: random.Random, depth: int = 4) -> Expr:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice((IV, JV, FV, Const(rng.randrange(-4, 9))))
    x, y = drawn(rng, depth - 1), drawn(rng, depth - 1)
    match rng.choice(("add", "sub", "mul", "min", "max", "div", "mod", "select", "abs", "clamp")):
        case "add":
            return build.add(x, y)
        case "sub":
            return build.sub(x, y)
        case "mul":
            return build.mul(x, rng.choice((-3, 2, 5)))
        case "min":
            return build.minimum(x, y)
        case "max":
            return build.maximum(x, y)
        case "div":
            return Op("floordiv", (x, rng.choice((JV, Const(3)))), index)
        case "mod":
            return Op("floormod", (x, rng.choice((JV, Const(3)))), index)
        case "select":
            return build.select(build.lt(x, rng.randrange(-2, 4)), x, y)
        case "abs":
            return Op("abs", (x,), index)
        case _:
            return Op("clamp", (Const(-1), x, build.cast(build.cast(JV, s32), index)), index)


@pytest.mark.parametrize("seed", range(6))
def test_values_lie_in_their_bounds(seed: int) -> None:
    rng = random.Random(seed)
    exact = 0
    for _ in range(150):
        e = drawn(rng)
        low, high = bounds(e, RANGES)
        found = value(e)
        assert low <= found.min() and found.max() <= high, show(e)
        assert (value(to_expr(linear(e))) == found).all(), show(e)
        exact += (low, high) == (found.min(), found.max())
    assert exact > 50


@pytest.mark.parametrize(
    ("e", "wanted"),
    [
        (Op("floormod", (Const(5), JV), index), (0, 4)),
        (Op("floormod", (build.add(IV, 10), Const(5)), index), (0, 4)),
        (Op("floormod", (build.add(IV, 11), Const(5)), index), (0, 4)),
        (Op("floormod", (build.add(IV, 10), Const(8)), index), (2, 6)),
        (Op("floormod", (IV, Const(8)), index), (0, 4)),
        (Op("floormod", (IV, build.add(JV, 10)), index), (0, 4)),
        (Op("floormod", (FV, Const(3)), index), (0, 2)),
        (Op("floordiv", (FV, JV), index), (-3, 7)),
        (Op("floordiv", (IV, Const(3)), index), (0, 1)),
        (Op("abs", (FV,), index), (0, 7)),
    ],
    ids=lambda x: show(x) if isinstance(x, Op) else "",
)
def test_bounds_of_quotients_and_remainders(e: Expr, wanted: tuple[int, int]) -> None:
    assert bounds(e, RANGES) == wanted


@pytest.mark.parametrize(
    ("kind", "wanted"), [("s8", (-128, 127)), ("u8", (0, 255)), ("s16", (0, 1000))]
)
def test_a_conversion_to_fewer_bits_wraps(kind: str, wanted: tuple[int, int]) -> None:
    wide = Var("w", s32)
    assert bounds(Cast(wide, BY_NAME[kind]), {wide: (0, 1000)}) == wanted
