"""The primitive strassen: results of products in parts, their error, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Expr, Func, Op, Var
from nestwright.ir.loop.visit import walk_expr
from nestwright.schedule.bilinear import (
    LEFT,
    RESULT,
    RIGHT,
    Signs,
    additions,
    combined,
    growth,
    quadrants,
)
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.primitives.products.strassen import added_error
from nestwright.schedule.space.analyze import blocks_of
from nestwright.te.from_hlo import lower_group


def product(m: int, k: int, n: int, turned: bool = False, dtype: str = "f32") -> Func:
    weights = f"{n},{k}" if turned else f"{k},{n}"
    contracting = f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(turned)}}}"
    return lower_group(
        parse(f"""HloModule m
ENTRY main {{
  x = {dtype}[{m},{k}] parameter(0)
  w = {dtype}[{weights}] parameter(1)
  ROOT c = {dtype}[{m},{n}] dot(x, w), {contracting}
}}""").entry,
        "kernel",
    )


def anchor(func: Func) -> str:
    return next(b.name for b in blocks_of(func) if b.reduce)


def drawn(func: Func) -> list[Array]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(b.shape).astype(np.float32) for b in func.params[: -func.outputs]]


def test_the_signs_give_every_product_of_quadrants_once() -> None:
    terms = np.einsum("qe,ea,eb->qab", RESULT, LEFT, RIGHT)
    for q, (y, x) in enumerate(quadrants(1)):
        wanted = np.zeros((4, 4))
        for z in (0, 1):
            wanted[2 * y + z, 2 * z + x] = 1
        assert (terms[q] == wanted).all()


def test_parts_are_numbered_quadrant_by_quadrant() -> None:
    assert quadrants(1) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert quadrants(2)[:6] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
    assert sorted(quadrants(2)) == [(y, x) for y in range(4) for x in range(4)]


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize(
    ("shape", "multiples"),
    [
        ((8, 8, 8), (1, 1, 1)),
        ((7, 5, 9), (1, 1, 1)),
        ((5, 12, 3), (12, 4, 8)),
        ((2, 2, 2), (1, 1, 1)),
        ((3, 17, 6), (1, 8, 1)),
    ],
)
def test_results_differ_by_rounding_only(
    shape: tuple[int, int, int], multiples: tuple[int, int, int], levels: int
) -> None:
    func = product(*shape, turned=shape[0] % 2 == 0)
    sch = Schedule(func)
    sch.strassen(anchor(func), multiples, levels)
    arguments = drawn(func)
    (wanted,), (got,) = run(func, arguments), run(sch.func, arguments)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() < 1e-4
    assert excess_error(sch.func) == pytest.approx(added_error(levels, shape[1]), rel=1e-2)


def test_the_estimate_of_the_error_holds_and_grows_with_the_levels() -> None:
    func = product(64, 256, 64)
    x, w = drawn(func)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    for levels in (1, 2):
        sch = Schedule(func)
        sch.strassen(anchor(func), [1, 1, 1], levels)
        (got,) = run(sch.func, [x, w])
        off = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2))
        assert off < added_error(levels, 256) < 20 * off
    assert growth(1) == 2.0 and growth(2) == 4.0


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
@pytest.mark.parametrize("signs", [LEFT, RIGHT, RESULT])
def test_the_additions_of_sums_are_counted(signs: Signs, levels: int) -> None:
    made: list[Expr] = []

    def named(e: Expr) -> Var:
        made.append(e)
        return Var("sum", f32)

    values = [Var("part", f32) for _ in range(len(signs[0]) ** levels)]
    found = combined(signs, values, f32, named) if levels else []
    ops = [x for e in (*found, *made) for x in walk_expr(e) if isinstance(x, Op)]
    assert sum(x.name in ("add", "subtract") for x in ops) == additions(signs, levels)


def test_what_it_refuses() -> None:
    func = product(8, 8, 8)
    name = anchor(func)
    for arguments, why in [
        (([1, 1], 1), "three positive integers"),
        (([1, 0, 1], 1), "three positive integers"),
        (([1, 1, 1], 3), "no 3 levels"),
        (([1, 1, 1], 0), "no 0 levels"),
    ]:
        with pytest.raises(ScheduleError, match=why):
            Schedule(func).strassen(name, *arguments)
    for other in (product(8, 8, 8, dtype="f64"), product(1, 8, 8)):
        with pytest.raises(ScheduleError, match="not a product of two matrices of f32"):
            Schedule(other).strassen(anchor(other), [1, 1, 1], 1)
