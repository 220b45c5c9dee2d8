"""An argmax is two reductions, of values that are computed once."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.simplify.split_argmax import split_argmax

TEXT = """HloModule m
first {{ a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  nan = pred[] compare(a, a), direction=NE
  keep = pred[] or(more, nan)
  same = pred[] compare(a, b), direction=EQ
  less = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, less)
  here = pred[] or(keep, tie)
  v = f32[] select(keep, a, b)
  k = s32[] select(here, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k) }}
ENTRY main {{ x = f32[{n},{m}] parameter(0)
  y = f32[{n},{m}] {value}
  i = s32[{n},{m}] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[{n}], s32[{n}]) reduce(y, i, low, zero), dimensions={{1}}, to_apply=first }}
"""


def opcodes(text: str) -> list[str]:
    module = split_argmax(parse(text))
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    ("value", "stored"),
    [("negate(x)", 0), ("tanh(x)", 1), ("multiply(x, x)", 1), ("add(x, x)", None)],
)
def test_what_may_differ_is_stored_before(value: str, stored: int | None, dtype: str) -> None:
    """A sum of 16 bits may stay in f32 where it is fused, and the largest one is rounded."""
    found = opcodes(TEXT.replace("f32", dtype).format(n=3, m=40, value=value))
    if stored is None:
        stored = int(dtype != "f32")
    assert (found.count("reduce"), found.count("opt-barrier")) == (2, stored)


@pytest.mark.parametrize("target", ["cpu", "cuda-sim -arch=sm_80"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("value", ["negate(x)", "multiply(x, x)", "add(x, third)"])
def test_places_of_16_bits(value: str, dtype: str, target: str) -> None:
    """Of values that differ by less than the type can tell it is the first, as it is stored."""
    text = TEXT.replace(
        "  y =",
        "  t = f32[] constant(0.333)\n  third = f32[{n},{m}] broadcast(t), dimensions={{}}\n  y =",
    )
    module = parse(text.replace("f32", dtype).format(n=6, m=200, value=value))
    x = np.random.default_rng(0).standard_normal((6, 200)).astype(to_numpy(BY_NAME[dtype]))
    x[1, 50:150] = x[1].max()
    x[2, 7] = np.nan
    _, at = nw.build(module, target=target)(x)
    np.testing.assert_array_equal(at, evaluate(module, [x])[1])


@pytest.mark.parametrize("target", ["cpu", "cpu -threads=1", "cuda-sim -arch=sm_80"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 40), (5, 1000), (70, 33)])
def test_the_place_is_that_of_the_value(target: str, n: int, m: int) -> None:
    x = np.random.default_rng(m).standard_normal((n, m), np.float32)
    x[0, m // 2] = np.nan
    x[-1, :] = 0.25
    module = parse(TEXT.format(n=n, m=m, value="multiply(x, x)"))
    for got, want in zip(nw.build(module, target=target)(x), evaluate(module, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_values_are_computed_in_vectors() -> None:
    text = nw.lower(parse(TEXT.format(n=64, m=1000, value="logistic(x)"))).as_text("scheduled")
    assert text.count("@func") == 2
    assert "range(1000)" not in text


def test_places_that_wrap_are_not_counted() -> None:
    m = parse(TEXT.replace("s32", "u8").format(n=2, m=300, value="negate(x)"))
    assert split_argmax(m) is m
