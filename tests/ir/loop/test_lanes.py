"""Nests run on arrays, and simplified ones, mean what they mean element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.ir.loop.interp import evaluate, lanes
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.nodes import Func, Kind
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.simplify import simplify_stmt

HEAD = "@func(outputs=1)\ndef f(A: f32[20, 30], B: f32[30], C: f32[20, 30], n: s64):\n"
MATMUL_TILED = """\
@func(outputs=1)
def f(A: f32[20, 30], B: f32[30], C: f32[20], n: s64):
    for i in range(3):
        for k in range(30):
            for u in parallel(8):
                with block("C"):
                    x, y = spatial(20, i * 8 + u), reduce(30, k)
                    where(i * 8 + u < 20)
                    reads(A[x, y], B[y], C[x])
                    writes(C[x])
                    with init():
                        C[x] = f32(0.0)
                    C[x] = C[x] + A[x, y] * B[y]
"""
SOFTMAX = """\
@func(outputs=2)
def f(A: f32[20, 30], B: f32[30], M: f32[20], C: f32[20, 30], n: s64):
    for i in range(20):
        M[i] = f32(-inf)
        for j in range(30):
            x = let(f32, A[i, j] + B[j])
            M[i] = max(M[i], x)
        for j in range(30):
            if j % 2 == 0 and n > 3:
                C[i, j] = exp(A[i, j] - M[i])
            else:
                C[i, j] = cast(f32, cast(s32, A[i, j] * f32(10.0))) / cast(f32, j + n)
"""
PAD = """\
    for i in range(20):
        for j in range(30):
            with block("p"):
                x, y = spatial(20, i), spatial(30, 29 - j)
                reads(A[0 : 20, 0 : 30])
                writes(C[x, y])
                C[x, y] = select(y > 0 and A[x, y - 1] > f32(0.0), A[x, y - 1], f32(0.0))
"""


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Lanes for the smallest nest; the list tells for each attempt whether it went well."""
    monkeypatch.setattr(lanes, "MIN_LANES", 1)
    monkeypatch.setattr(lanes, "MIN_STEPS", 1)
    went: list[bool] = []

    def attempt(*args: Any) -> bool:
        went.append(lanes.run_as_lanes(*args))
        return went[-1]

    monkeypatch.setattr(evaluate, "run_as_lanes", attempt)
    return went


def both(func: Func, symbols: list[int]) -> None:
    """Compare the two ways of running ``func``; a seed asks for the one by element."""
    rng = np.random.default_rng(0)
    inputs = func.params[: len(func.params) - func.outputs]
    args = [(rng.standard_normal(b.shape) * 9).astype(np.float32) for b in inputs]
    fast = run(func, args, symbols=symbols)
    slow = run(func, args, symbols=symbols, seed=0)
    for x, y in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("text", [MATMUL_TILED, SOFTMAX, HEAD + PAD])
def test_nests_run_as_lanes(always: list[bool], text: str) -> None:
    both(parse(text), [5])
    assert always == [True]


@pytest.mark.parametrize(
    "text",
    [
        "    for i in range(20):\n        for j in range(30):\n"
        "            C[i, j] = select(j > 0, C[i, j - 1], B[0]) + A[i, j]\n",
        "    for i in range(20):\n        for j in range(30):\n"
        "            C[i, j * 7 % 30] = A[i, j]\n            C[i, j] = B[j]\n",
    ],
)
def test_lanes_that_meet_are_run_by_element(always: list[bool], text: str) -> None:
    both(parse(HEAD + text), [5])
    assert always == [False]


def test_what_is_undefined_is_told_by_element(always: list[bool]) -> None:
    loops = "    for i in range(20):\n        for j in range(30):\n"
    func = parse(f"{HEAD}{loops}            C[i, j] = A[i, j + 1]\n")
    args = [np.ones((20, 30), np.float32), np.ones(30, np.float32)]
    with pytest.raises(UndefinedError, match="A has 30 elements there, the index is 30"):
        run(func, args, symbols=[1])
    assert always == [False]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_nests_mean_the_same(random_nest: Callable[[int, Kind], Func], seed: int) -> None:
    func = random_nest(seed, Kind.SERIAL)
    a = np.arange(np.prod(func.params[0].shape)).reshape(func.params[0].shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MIN_LANES", 1)
        patch.setattr(lanes, "MIN_STEPS", 1)
        fast = outcome(func, a, None)
    assert fast == outcome(func, a, 0), show(func)


def outcome(func: Func, a: np.ndarray[Any, Any], seed: int | None) -> object:
    try:
        return run(func, [a], seed=seed)[0].tolist()
    except UndefinedError as e:
        return str(e)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_simplified_nests_mean_the_same(
    random_nest: Callable[[int, Kind], Func], seed: int
) -> None:
    func = random_nest(seed, Kind.SERIAL)
    body = simplify_stmt(func.body)
    a = np.arange(np.prod(func.params[0].shape)).reshape(func.params[0].shape)
    assert outcome(replace(func, body=body), a, 0) == outcome(func, a, 0), show(func)
    assert simplify_stmt(body) is body
