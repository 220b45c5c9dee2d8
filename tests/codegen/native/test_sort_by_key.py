"""Sorts by integer keys against the interpreter: every type, direction and number of columns."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import ALL, DType, f32, s16, s32, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

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
    made = parse(module)
    got, want = nw.build(made, target=target)(*args), evaluate(made, list(args))
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for a, b in pairs:
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("t", WIDE, ids=str)
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_every_type(t: DType, direction: str) -> None:
    same(text(t, (3, 301), 1, direction), draw(t, (3, 301)))


@pytest.mark.parametrize(
    ("dims", "dim"),
    [((64,), 0), ((63,), 0), ((40001,), 0), ((100, 7), 0), ((2, 65, 3), 1), ((0, 99), 1)],
)
@pytest.mark.parametrize("target", ["cpu", "cpu -threads=1"])
def test_every_place(dims: tuple[int, ...], dim: int, target: str) -> None:
    same(text(f32, dims, dim, "LT"), draw(f32, dims), target=target)
    same(text(s32, dims, dim, "GT"), np.sort(draw(s32, dims), dim), target=target)


@pytest.mark.parametrize("target", ["cpu", "cpu -threads=1", "cuda-sim -arch=sm_80"])
def test_equals_keep_their_order(target: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 500)).astype(np.float32)
    same(PAIRS, x, rng.integers(-3, 3, (3, 500)).astype(np.int16), target=target)
    same(PAIRS, x, draw(s16, (3, 500)), target=target)


def test_without_total_order_rows_are_merged() -> None:
    """NaN is beside all: what such a comparator sorts by is no key."""
    made = text(f32, (200,), 0, "LT").replace(", type=TOTALORDER", "")
    x = np.random.default_rng(7).choice(np.float32([-0.0, 0.0, 1.0, -2.0]), 200)
    same(made, x)
    y = nw.build(parse(made))(np.where(x > 0, np.float32(np.nan), x))
    assert np.isnan(y).sum() == (x > 0).sum()
