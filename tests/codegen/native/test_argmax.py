"""Argmax and argmin along the last dimension: ties, NaN, infinities, and what stays as given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize_narrow
from nestwright.ir.target import Target

JAX = """
best {{
  a = {0}[] parameter(0)
  i = {1}[] parameter(1)
  b = {0}[] parameter(2)
  j = {1}[] parameter(3)
  beyond = pred[] compare(a, b), direction={2}
  ne = pred[] compare(a, a), direction=NE
  or = pred[] or(beyond, ne)
  eq = pred[] compare(a, b), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  both = pred[] and(eq, lt)
  first = pred[] or(or, both)
  v = {0}[] select(or, a, b)
  k = {1}[] select(first, i, j)
  ROOT t = ({0}[], {1}[]) tuple(v, k)
}}
"""
LAST = JAX.replace("compare(i, j), direction=LT", "compare(i, j), direction=GT")
IGNORING = JAX.replace("compare(a, a)", "compare(i, i)")
MAIN = """
ENTRY main {{
  x = {0}[{3},{4}] parameter(0)
  index = {1}[{3},{4}] iota(), iota_dimension=1
  start = {0}[] constant({5})
  zero = {1}[] constant(0)
  ROOT p = ({0}[{3}], {1}[{3}]) reduce(x, index, start, zero), dimensions={{1}}, to_apply=best
}}
"""


def text(
    rows: int,
    columns: int,
    least: bool = False,
    dtype: str = "f32",
    body: str = JAX,
    at: str = "s32",
) -> str:
    low, high = {"s32": ("-2147483648", "2147483647"), "u8": ("0", "255")}.get(
        dtype, ("-inf", "inf")
    )
    given = (dtype, at, "LT" if least else "GT", rows, columns, high if least else low)
    return f"HloModule m\n{body.format(*given)}{MAIN.format(*given)}"


def rows_of(columns: int, dtype: str) -> np.ndarray[Any, Any]:
    """Return rows with ties, and for floats with zeros, infinities and one NaN in every place."""
    rng = np.random.default_rng(columns)
    few = rng.integers(0, 3, (12, columns))
    if dtype in ("s32", "u8"):
        limits = np.iinfo({"s32": np.int32, "u8": np.uint8}[dtype])
        ends = np.full((1, columns), limits.min), np.full((1, columns), limits.max)
        return np.concatenate([few, *ends]).astype(limits.dtype)
    one = np.zeros((columns, columns))
    np.fill_diagonal(one, np.nan)
    two = np.where(rng.random((6, columns)) < 0.2, np.nan, few[:6])
    parts = [rng.standard_normal((9, columns)), few, one, two]
    parts += [np.full((1, columns), v) for v in (np.inf, -np.inf, np.nan)]
    parts += [rng.choice([0.0, -0.0], (6, columns)), rng.choice([np.inf, -np.inf], (6, columns))]
    return np.concatenate(parts).astype({"f32": np.float32, "f64": np.float64}[dtype])


def optimized(module: HloModule, spec: str = "cpu") -> str:
    return nw.show(optimize_narrow(module, None, Target.parse(spec))[0])


COLUMNS = (1, 2, 15, 16, 67, 300)  # fewer than lanes, all of them, more, and parts of rows
GIVEN = [("f32", least, columns, "cpu") for least in (False, True) for columns in COLUMNS]
GIVEN += [
    (dtype, least, columns, "cpu")
    for dtype in ("f64", "s32", "u8")
    for least, columns in ((False, 15), (True, 67))
]
GIVEN += [
    (dtype, columns == 16, columns, "cpu -mcpu=haswell")
    for dtype in ("f32", "f64", "s32", "u8")
    for columns in (16, 300)
]


@pytest.mark.parametrize(("dtype", "least", "columns", "spec"), GIVEN)
def test_as_the_given_combiner(dtype: str, least: bool, columns: int, spec: str) -> None:
    target = Target.parse(spec)
    if not target.is_host:
        pytest.skip(f"this machine cannot run code for {spec}")
    x = rows_of(columns, dtype)
    module = parse(text(len(x), columns, least, dtype))
    expected = evaluate(module, [x])
    assert columns == 1 or "to_apply=best" not in optimized(module)
    found = nw.build(module, target)(x)
    assert isinstance(expected, tuple)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


def test_a_single_row() -> None:
    module = parse(text(1, 3000))
    assert "to_apply=best" not in optimized(module)
    x = np.random.default_rng(0).standard_normal((1, 3000)).astype(np.float32)
    assert nw.build(module)(x)[1] == x.argmax()


@pytest.mark.parametrize(
    "source",
    [
        text(4, 9, body=LAST),
        text(4, 9, body=IGNORING),
        text(4, 9, dtype="f8e5m2"),
        text(4, 9).replace("constant(0)", "constant(1)"),
        text(4, 9).replace("constant(-inf)", "constant(0)"),
        text(4, 9).replace("iota_dimension=1", "iota_dimension=0"),
        text(4, 200, at="s8"),
    ],
    ids=["last", "nan", "f8e5m2", "index", "start", "rows", "wraps"],
)
def test_what_stays(source: str) -> None:
    module = parse(source)
    assert "to_apply=best" in optimized(module)
