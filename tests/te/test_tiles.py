"""Sorts for the threads of a GPU, as loops in order, against the interpreter of HLO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.te.from_hlo import lower_group, tiles

SORT = """HloModule m
before {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = pred[] compare(a, b), direction={direction}{order}
}}
ENTRY e {{
  x = {t}[{dims}] parameter(0)
  ROOT s = {t}[{dims}] sort(x), dimensions={{{dim}}}, is_stable=true, to_apply=before
}}
"""
PAIRS = """HloModule m
before {{
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  p = f32[] parameter(2)
  q = f32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=GT
}}
ENTRY e {{
  x = s8[{dims}] parameter(0)
  y = f32[{dims}] parameter(1)
  n = f32[{dims}] negate(y)
  ROOT s = (s8[{dims}], f32[{dims}]) sort(x, n), dimensions={{1}}, is_stable=true, to_apply=before
}}
"""
TOP = """HloModule m
ENTRY e {{
  x = {t}[{dims}] parameter(0)
  ROOT t = ({t}[{kept}], s32[{kept}]) topk(x), k={k}, largest={largest}
}}
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 28 elements at most, of 14 where there are several."""
    for name, value in {"MOST": 4, "LEAST": 2, "BLOCKS": 4}.items():
        monkeypatch.setattr(tiles, name, value)


def few_values(t: str, dims: tuple[int, ...]) -> np.ndarray:
    """Few different bit patterns, NaN and both zeros among them."""
    to = np.dtype(to_numpy(BY_NAME[t]))
    rng = np.random.default_rng(3)
    some = np.frombuffer(rng.bytes(9 * to.itemsize), to).copy()
    if BY_NAME[t].is_float:
        some[:4] = [np.nan, -np.nan, 0.0, -0.0]
    return rng.choice(some, dims)


def same(text: str, *args: np.ndarray) -> None:
    module = optimize(parse(text))
    func = lower_group(module.entry, "main", vectors=False)
    found, right = run(func, args), evaluate(parse(text), list(args))
    for a, b in zip(found, right if isinstance(right, tuple) else (right,), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def sort_text(t: str, dims: tuple[int, ...], dim: int, direction: str = "LT") -> str:
    order = ", type=TOTALORDER" if BY_NAME[t].is_float else ""
    at: dict[str, Any] = {"t": t, "dims": ",".join(map(str, dims)), "dim": dim}
    return SORT.format(**at, direction=direction, order=order)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13, 28, 29, 31, 33, 57, 100])
def test_every_length(n: int) -> None:
    """A thread, a tile, and two, three and more tiles of a row, the last one shorter."""
    same(sort_text("f32", (n,), 0), few_values("f32", (n,)))


@pytest.mark.parametrize("t", ["s8", "u8", "u16", "bf16", "f16", "s32", "f64", "u64"])
def test_every_type(t: str) -> None:
    same(sort_text(t, (2, 31), 1, "GT"), few_values(t, (2, 31)))


@pytest.mark.parametrize(("dims", "dim"), [((31, 3), 0), ((2, 17, 2), 1), ((1, 30, 1), 1)])
def test_every_dimension(dims: tuple[int, ...], dim: int) -> None:
    same(sort_text("f32", dims, dim), few_values("f32", dims))


@pytest.mark.parametrize("n", [5, 33, 75])
def test_what_is_sorted_along_and_equals_stay_in_order(n: int) -> None:
    y = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    same(PAIRS.format(dims=f"3,{n}"), few_values("s8", (3, n)), y)


@pytest.mark.parametrize(
    ("dims", "k"), [((2, 12), 3), ((1, 200), 3), ((1, 45), 14), ((2, 40), 7), ((40,), 39)]
)
def test_the_first_few_of_each_tile_are_enough(dims: tuple[int, ...], k: int) -> None:
    kept = ",".join(map(str, (*dims[:-1], k)))
    for largest in ("true", "false"):
        text = TOP.format(t="f32", dims=",".join(map(str, dims)), kept=kept, k=k, largest=largest)
        same(text, few_values("f32", dims))


LEXICAL = """HloModule m
before {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = s16[] parameter(2)
  q = s16[] parameter(3)
  u = f32[] parameter(4)
  v = f32[] parameter(5)
  first = pred[] compare(a, b), direction={direction}
  same = pred[] compare(a, b), direction=EQ
  then = pred[] compare(p, q), direction=GT
  tie = pred[] and(same, then)
  ROOT c = pred[] or(first, tie)
}}
ENTRY e {{
  x = f32[{dims}] parameter(0)
  y = s16[{dims}] parameter(1)
  i = f32[{dims}] iota(), iota_dimension=1
  ROOT s = (f32[{dims}], s16[{dims}], f32[{dims}]) sort(x, y, i), dimensions={{1}}, to_apply=before
}}
"""


@pytest.mark.parametrize("n", [1, 6, 29, 75])
def test_any_comparator(n: int) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(-2, 2, (2, n)), rng.integers(-3, 3, (2, n))
    same(LEXICAL.format(dims=f"2,{n}", direction="LT"), x.astype(np.float32), y.astype(np.int16))


@pytest.mark.parametrize("direction", ["LT", "NE", "GE"])
@pytest.mark.parametrize("n", [5, 28, 97])
def test_an_inconsistent_comparator_makes_a_permutation(direction: str, n: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.choice(np.float32([np.nan, 1, 2, 3]), (2, n))
    module = optimize(parse(LEXICAL.format(dims=f"2,{n}", direction=direction)))
    func = lower_group(module.entry, "main", vectors=False)
    found, _, places = run(func, [x, np.zeros((2, n), np.int16)])
    np.testing.assert_array_equal(np.sort(places, 1), np.arange(n)[None].repeat(2, 0))
    np.testing.assert_array_equal(found, np.take_along_axis(x, places.astype(int), 1))


@pytest.mark.parametrize(("t", "direction"), [("f32", "LT"), ("bf16", "GT")])
def test_without_total_order_zeros_are_equal_and_nan_is_the_largest(t: str, direction: str) -> None:
    text = sort_text(t, (2, 40), 1, direction).replace(", type=TOTALORDER", "")
    x = few_values(t, (2, 40))
    same(text, np.where(np.isnan(x), x.dtype.type(1), x))
    func = lower_group(optimize(parse(text)).entry, "main", vectors=False)
    (found,) = run(func, [x])
    count = np.isnan(x).sum(1)
    for row, n in zip(found, count, strict=True):
        assert np.isnan(row[len(row) - n :] if direction == "LT" else row[:n]).all()
