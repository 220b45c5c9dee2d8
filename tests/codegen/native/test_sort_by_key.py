"""Sorts by integer keys against the interpreter: every type, direction and number of columns."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import (
    ALL,
    BY_NAME,
    DType,
    f16,
    f32,
    f64,
    s8,
    s16,
    s32,
    to_numpy,
    u16,
    u64,
)
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.te.from_hlo import network

TEXT = """HloModule m
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
before {
  a0 = f32[] parameter(0)
  b0 = f32[] parameter(1)
  a1 = s16[] parameter(2)
  b1 = s16[] parameter(3)
  a = s16[] negate(a1)
  b = s16[] negate(b1)
  ROOT c = pred[] compare(a, b), direction=GT
}
ENTRY e {
  x = f32[3,500] parameter(0)
  y = s16[3,500] parameter(1)
  n = f32[3,500] negate(x)
  ROOT s = (f32[3,500], s16[3,500]) sort(n, y), dimensions={1}, is_stable=true, to_apply=before
}
"""
WIDE = [t for t in ALL if t.kind != "complex" and t.bits >= 8 and t.kind != "pred"]


def draw(t: DType, dims: tuple[int, ...]) -> np.ndarray:
    """Any bit pattern, NaN and both zeros among them, and every one of the first few often."""
    rng, to, size = np.random.default_rng(4), np.dtype(to_numpy(t)), int(np.prod(dims))
    some = np.frombuffer(rng.bytes(size * to.itemsize), to).copy()
    often = rng.integers(0, 2, size).astype(bool)
    some[often] = rng.choice(some[:5], int(often.sum())) if size else some[:0]
    return some.reshape(dims)


def text(t: DType, dims: tuple[int, ...], dim: int, direction: str) -> str:
    order = ", type=TOTALORDER" if t.is_float else ""
    at = ",".join(map(str, dims))
    return TEXT.format(t=t, dims=at, dim=dim, direction=direction, order=order)


def same(module: str, *args: np.ndarray, target: str = "cpu") -> None:
    same_of_each(module, [args], target)


def same_of_each(module: str, calls: list[tuple[np.ndarray, ...]], target: str) -> None:
    made = parse(module)
    run = nw.build(made, target=target)
    for args in calls:
        got, want = run(*args), evaluate(made, list(args))
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for a, b in pairs:
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# What code depends on: the width of a key, and how a type's bits become one.
KINDS = [s8, u16, s32, u64, f16, f32, f64, BY_NAME["f8e5m2"]]
# Keys are turned around by their complement, whatever they are of.
TURNED = [(t, "GT") for t in KINDS]


@pytest.mark.parametrize(("t", "direction"), [*((t, "LT") for t in KINDS), *TURNED], ids=str)
def test_every_kind(t: DType, direction: str) -> None:
    same(text(t, (5, 11), 1, direction), draw(t, (5, 11)))


@pytest.mark.parametrize("t", KINDS[::2], ids=str)
def test_long_rows_of_every_second_kind(t: DType) -> None:
    same(text(t, (3, 301), 1, "LT"), draw(t, (3, 301)))


@pytest.mark.parametrize(
    ("dims", "dim"),
    [((64,), 0), ((63,), 0), ((40001,), 0), ((100, 7), 0), ((2, 65, 3), 1), ((0, 99), 1)],
)
def test_every_place(dims: tuple[int, ...], dim: int) -> None:
    same(text(f32, dims, dim, "LT"), draw(f32, dims))
    same(text(s32, dims, dim, "GT"), np.sort(draw(s32, dims), dim))


@pytest.mark.parametrize(("dims", "dim"), [((40001,), 0), ((100, 7), 0)])
def test_one_thread_sorts_the_same(dims: tuple[int, ...], dim: int) -> None:
    same(text(f32, dims, dim, "LT"), draw(f32, dims), target="cpu -threads=1")


@pytest.mark.parametrize("target", ["cpu", "cpu -threads=1", "cuda-sim -arch=sm_80"])
def test_equals_keep_their_order(target: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 500)).astype(np.float32)
    few = rng.integers(-3, 3, (3, 500)).astype(np.int16)
    same_of_each(PAIRS, [(x, few), (x, draw(s16, (3, 500)))], target)


def test_without_total_order_rows_are_merged() -> None:
    """NaN is beside all: what such a comparator sorts by is no key."""
    made = text(f32, (200,), 0, "LT").replace(", type=TOTALORDER", "")
    x = np.random.default_rng(7).choice(np.float32([-0.0, 0.0, 1.0, -2.0]), 200)
    same(made, x)
    y = nw.build(parse(made))(np.where(x > 0, np.float32(np.nan), x))
    assert np.isnan(y).sum() == (x > 0).sum()


LENGTHS = [2, 7, 16, 17, 100, 1025]


@pytest.mark.parametrize("n", LENGTHS)
def test_short_rows(n: int) -> None:
    """One network for all rows of a strip; a last strip of fewer rows; longer ones by bytes."""
    same(text(f32, (21, n), 1, "LT"), draw(f32, (21, n)))
    same(text(s32, (n, 16), 0, "GT"), draw(s32, (n, 16)))


@pytest.mark.parametrize("t", WIDE, ids=str)
def test_every_type_in_short_and_long_rows(t: DType) -> None:
    same(text(t, (70, 5), 1, "LT"), draw(t, (70, 5)))
    if t in KINDS[1::2]:
        same(text(t, (3, 1500), 1, "GT"), draw(t, (3, 1500)))


@pytest.mark.parametrize("dims", [(3, 5, 12), (2, 17, 1, 4), (2, 0, 9), (1, 1, 12)])
def test_rows_of_several_axes(dims: tuple[int, ...]) -> None:
    for dim in range(len(dims)):
        if dims[dim] > 1:
            same(text(f32, dims, dim, "LT"), draw(f32, dims))


ORDER = """HloModule m
before {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction={direction}{order}
}}
ENTRY e {{
  x = {t}[{rows},{n}] parameter(0)
  i = s32[{rows},{n}] iota(), iota_dimension=1
  ROOT s = ({t}[{rows},{n}], s32[{rows},{n}]) sort(x, i), dimensions={{1}}, is_stable=true,
    to_apply=before
}}
"""


@pytest.mark.parametrize(("t", "n"), [(f32, 7), (s16, 7), *((t, 20) for t in KINDS)], ids=str)
def test_the_order_of_short_rows_is_stable(t: DType, n: int) -> None:
    order = ", type=TOTALORDER" if t.is_float else ""
    module = ORDER.format(t=t, rows=33, n=n, direction="GT", order=order)
    same(module, draw(t, (33, n)))


def test_the_order_of_the_longest_rows_is_stable() -> None:
    module = ORDER.format(t=s16, rows=3, n=1024, direction="LT", order="")
    same(module, draw(s16, (3, 1024)) % 7)


@pytest.mark.parametrize("places", [2, 4, 8, 16])
def test_a_network_sorts_zeros_and_ones(places: int) -> None:
    """And so, by the zero-one principle, anything."""
    rows = (np.arange(1 << places)[:, None] >> np.arange(places)) & 1
    for merged in (False, True):
        some = rows
        if merged:  # what a merge leaves to do: all of one half at most the other, each bitonic
            turns = (np.diff(rows, axis=1) != 0).sum(1)
            some = rows[turns <= 2]
        got = some.copy()
        for near, far in network._exchanges(places, merged):
            got[:, near], got[:, far] = (
                np.minimum(got[:, near], got[:, far]),
                np.maximum(got[:, near], got[:, far]),
            )
        assert np.array_equal(got, np.sort(some, 1))


def test_threads_without_vectors_sort_row_by_row() -> None:
    same(text(f32, (5, 40), 1, "LT"), draw(f32, (5, 40)), target="cuda-sim -arch=sm_80")
    same(text(f32, (2, 90), 1, "LT"), draw(f32, (2, 90)), target="cuda-sim -arch=sm_80")
