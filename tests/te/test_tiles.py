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
