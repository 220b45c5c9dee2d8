"""Codes that are dequantized and quantized alike stay as they are; others do not."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import optimize, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule

TEXT = """HloModule again
ENTRY main {
  q = CODE[16,16] parameter(0)
  f = f32[16,16] convert(q)
  z = f32[] constant(ZERO)
  zs = f32[16,16] broadcast(z), dimensions={}
  d = f32[16,16] subtract(f, zs)
  s = f32[] constant(0.013651056)
  ss = f32[16,16] broadcast(s), dimensions={}
  x = f32[16,16] multiply(d, ss)
  m = f32[256] reshape(x)
  t = f32[] constant(SCALE)
  ts = f32[256] broadcast(t), dimensions={}
  e = f32[256] HOW(m, ts)
  r = f32[256] round-nearest-even(e)
  b = f32[] constant(AGAIN)
  bs = f32[256] broadcast(b), dimensions={}
  a = f32[256] add(r, bs)
  ROOT p = INTO[256] convert(a)
}
"""
SAME = {"CODE": "u8", "ZERO": "127", "SCALE": "0.013651056", "AGAIN": "127", "INTO": "u8"}
SAME |= {"HOW": "divide"}


def module(**facts: str) -> HloModule:
    text = TEXT
    for name, value in {**SAME, **facts}.items():
        text = text.replace(name, value)
    return parse(text)


def rounds(m: HloModule) -> bool:
    return any(i.opcode == "round-nearest-even" for i in optimize(m).entry.instructions)


@pytest.mark.parametrize("code", ["u8", "s8"])
@pytest.mark.parametrize("zero", ["127", "-3", "0"])
@pytest.mark.parametrize(
    "how",
    [{}, {"SCALE": "0.0136515"}, {"HOW": "multiply", "SCALE": "73.254405"}],
    ids=["divided", "by nearly the scale", "multiplied"],
)
def test_the_same_codes(code: str, zero: str, how: dict[str, str]) -> None:
    m = module(CODE=code, INTO=code, ZERO=zero, AGAIN=zero, **how)
    assert not rounds(m)
    q = np.arange(256).astype(np.uint8).view(np.dtype("u1" if code == "u8" else "i1"))
    np.testing.assert_array_equal(evaluate(m, [q.reshape(16, 16)]), q)


@pytest.mark.parametrize(
    "facts",
    [
        {"SCALE": "0.01366"},
        {"SCALE": "-0.013651056"},
        {"AGAIN": "126"},
        {"INTO": "s8"},
        {"INTO": "s16"},
    ],
    ids=str,
)
def test_other_codes(facts: dict[str, str]) -> None:
    m = module(**facts)
    assert rounds(m)
    q = np.arange(256).astype(np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(evaluate(optimize(m), [q]), evaluate(m, [q]))


MOVED = """HloModule moved
largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}
ENTRY main {
  q = u8[8,8] parameter(0)
  p = u8[8,8] parameter(1)
  z = f32[] constant(3)
  zs = f32[8,8] broadcast(z), dimensions={}
  s = f32[] constant(0.25)
  ss = f32[8,8] broadcast(s), dimensions={}
  t = f32[] constant(SCALE)
  ts = f32[8,8] broadcast(t), dimensions={}
  f = f32[8,8] convert(q)
  d = f32[8,8] subtract(f, zs)
  x = f32[8,8] multiply(d, ss)
  g = f32[8,8] convert(p)
  e = f32[8,8] subtract(g, zs)
  y = f32[8,8] multiply(e, ts)
  low = f32[] constant(LOW)
  m = f32[OF,OF] MADE
  so = f32[OF,OF] broadcast(s), dimensions={}
  zo = f32[OF,OF] broadcast(z), dimensions={}
  c = f32[OF,OF] divide(m, so)
  r = f32[OF,OF] round-nearest-even(c)
  o = f32[OF,OF] add(r, zo)
  ROOT k = u8[OF,OF] convert(o)
}
"""
POOLED = "reduce-window(x, low), window={size=3x3 stride=2x2 pad=1_1x1_1}, to_apply=largest"
JOINED = "concatenate(x, y), dimensions={0}"


@pytest.mark.parametrize(
    ("made", "of", "facts", "kept"),
    [
        (POOLED, "4,4", {}, False),
        (POOLED.replace("1_1x1_1", "3_1x3_1"), "5,5", {}, True),
        (POOLED, "4,4", {"LOW": "0.5"}, True),
        (JOINED, "16,8", {}, False),
        (JOINED, "16,8", {"SCALE": "0.5"}, True),
    ],
    ids=["pooled", "a window of padding", "not the largest", "joined", "other scales"],
)
def test_codes_are_pooled_and_joined(made: str, of: str, facts: dict[str, str], kept: bool) -> None:
    text = MOVED.replace("MADE", made).replace("OF,OF", of)
    for name, value in {"SCALE": "0.25", "LOW": "-inf", **facts}.items():
        text = text.replace(name, value)
    m, rng = parse(text), np.random.default_rng(0)
    assert rounds(m) == kept
    given = [rng.integers(0, 256, (8, 8)).astype(np.uint8) for _ in range(2)]
    np.testing.assert_array_equal(evaluate(optimize(m), given), evaluate(m, given))


def test_codes_of_no_scale_are_not_kept() -> None:
    text = TEXT.replace("s = f32[] constant(0.013651056)", "s = f32[] constant(nan)")
    for name, value in SAME.items():
        text = text.replace(name, value)
    m = parse(text)
    q = np.arange(256).astype(np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(evaluate(optimize(m), [q]), evaluate(m, [q]))
