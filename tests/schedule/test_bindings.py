"""Bindings: sums of digits mean what they were parsed from, and determine no more than they do."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product

import pytest

from nestwright.ir.loop.build import add, both, floordiv, floormod, lt, mul, sub, var
from nestwright.ir.loop.nodes import Const, Expr, Op, Var
from nestwright.ir.loop.printer import show
from nestwright.schedule.bindings import determined, limits_of, parse, to_expr

A, B, C, D = (var(name) for name in "abcd")
EXTENTS = {A: 6, B: 4, C: 3, D: 1}
POINTS = [dict(zip(EXTENTS, at, strict=True)) for at in product(*map(range, EXTENTS.values()))]


def value(e: Expr, at: Mapping[Var, int]) -> int:
    match e:
        case Var():
            return at[e]
        case Const(value=int(n)):
            return n
        case Op(name=name, args=(x, y)):
            a, b = value(x, at), value(y, at)
            match name:
                case "add":
                    return a + b
                case "subtract":
                    return a - b
                case "multiply":
                    return a * b
                case "floordiv":
                    return a // b
                case "floormod":
                    return a % b
                case "minimum":
                    return min(a, b)
                case "maximum":
                    return max(a, b)
    raise AssertionError(e)


def drawn(rng: random.Random, depth: int = 3) -> Expr:
    """An index as splits and fusions make them, and sometimes another."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice((A, B, C, D))
    x = drawn(rng, depth - 1)
    match rng.randrange(6):
        case 0 | 1:
            return add(mul(x, rng.choice((2, 3, 4, 6))), drawn(rng, depth - 1))
        case 2:
            return floordiv(x, rng.choice((2, 3, 4)))
        case 3:
            return floormod(x, rng.choice((2, 3, 4)))
        case 4:
            return sub(x, drawn(rng, depth - 1))
        case _:
            return add(x, rng.randrange(-3, 4))


@pytest.mark.parametrize("seed", range(8))
def test_a_sum_of_digits_is_what_was_parsed(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        e = drawn(rng)
        form = parse(e, EXTENTS)
        if form is not None:
            again = to_expr(form)
            seen = [value(e, p) for p in POINTS]
            assert [value(again, p) for p in POINTS] == seen, show(e)
            assert form.low() <= min(seen) and max(seen) <= form.high(), show(e)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_a_predicate_change_nothing_where_it_holds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        e, guard = drawn(rng), drawn(rng, 2)
        bounds = (guard, rng.randrange(1, 9)), (A, rng.choice((5, 9)))
        limits = limits_of(both(*(lt(x, n) for x, n in bounds)), EXTENTS)
        form = parse(e, EXTENTS, limits)
        held = [p for p in POINTS if all(value(x, p) < n for x, n in bounds)]
        if form is not None:
            again = to_expr(form)
            assert all(value(again, p) == value(e, p) for p in held), show(e)
            assert all(value(e, p) <= form.high() for p in held), show(e)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_determined_follows_from_the_values(seed: int) -> None:
    rng = random.Random(seed)
    several = 0
    for _ in range(60):
        es = [drawn(rng) for _ in range(rng.randrange(1, 4))]
        known = rng.sample((A, B, C), rng.randrange(2))
        sure = determined([parse(e, EXTENTS) for e in es], EXTENTS, known)
        several += len(sure - {D, *known}) > 0
        seen: dict[tuple[int, ...], dict[Var, int]] = {}
        for p in POINTS:
            key = (*(value(e, p) for e in es), *(p[v] for v in known))
            first = seen.setdefault(key, p)
            assert all(first[v] == p[v] for v in sure), ", ".join(map(show, es))
    assert several > 10


@pytest.mark.parametrize(
    "e, variables",
    [
        (add(mul(A, 4), B), {A, B}),
        (add(mul(A, 3), B), set()),  # 0 * 3 + 3 is 1 * 3 + 0
        (add(mul(A, 5), B), {A, B}),
        (add(mul(floordiv(A, 2), 2), floormod(A, 2)), {A}),
        (add(mul(floordiv(A, 2), 3), floormod(A, 2)), {A}),
        (add(floordiv(A, 2), floormod(A, 2)), set()),
        (floordiv(A, 6), set()),
        (floormod(A, 6), {A}),
        (floormod(A, 4), set()),
        (sub(mul(A, 4), B), {A, B}),
        (add(mul(add(mul(A, 4), B), 3), C), {A, B, C}),
        (floordiv(add(mul(A, 4), B), 4), {A}),
        (floormod(add(mul(A, 4), B), 4), {B}),
    ],
    ids=lambda x: show(x) if isinstance(x, Op) else "",
)
def test_digits_that_a_value_determines(e: Expr, variables: set[Var]) -> None:
    assert determined([parse(e, EXTENTS)], EXTENTS) - {D} == variables
