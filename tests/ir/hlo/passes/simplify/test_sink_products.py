"""Sums of products leave loops; sums that are read on the way, or would not gain, stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.simplify.sink_products import sink_products
from nestwright.ir.hlo.text import show

STATE = "(s32[], f32[{m},{k}], f32[{k},{n}], f32[{n},{m}], f32[5,{m},{k}])"
TEXT = """HloModule sums
test {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(i, limit), direction=LT }}
body {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[{m},{k}] get-tuple-element(s), index=1
  g = f32[{k},{n}] get-tuple-element(s), index=2
  total = f32[{n},{m}] get-tuple-element(s), index=3
  xs = f32[5,{m},{k}] get-tuple-element(s), index=4
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  four = s32[] constant(4)
  back = s32[] subtract(four, i)
  cut = f32[1,{m},{k}] dynamic-slice(xs, back, zero, zero), dynamic_slice_sizes={{1,{m},{k}}}
  x = f32[{m},{k}] reshape(cut)
  next = f32[{m},{k}] subtract(x, h)
  turned = f32[{k},{n}] negate(g)
  {step}
  ROOT r = {state} tuple(j, next, turned, sum, xs) }}
ENTRY main {{ h = f32[{m},{k}] parameter(0)
  g = f32[{k},{n}] parameter(1)
  total = f32[{n},{m}] parameter(2)
  xs = f32[5,{m},{k}] parameter(3)
  zero = s32[] constant(0)
  s = {state} tuple(zero, h, g, total, xs)
  ROOT w = {state} while(s), condition=test, body=body }}
"""
PLAIN = (
    "p = f32[{m},{n}] dot(x, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
    "  q = f32[{n},{m}] transpose(p), dimensions={{1,0}}\n  sum = f32[{n},{m}] add({order})"
)
TURNED = (
    "sum_ = f32[{n},{m}] dot(g, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}\n"
    "  sum = f32[{n},{m}] add(sum_, total)"
)


def module(step: str, m: int = 40, k: int = 3, n: int = 24) -> HloModule:
    sizes = {"m": m, "k": k, "n": n}
    state = STATE.format(**sizes)
    return parse(TEXT.format(state=state, step=step.format(order="total, q", **sizes), **sizes))


def arguments(m: HloModule) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.integers(-4, 5, p.array.dims).astype(np.float32) for p in m.entry.parameters]


def inside(m: HloModule) -> int:
    """Products in loops."""
    return sum(i.opcode == "dot" for c in m.computations for i in c.instructions) - sum(
        i.opcode == "dot" for i in m.entry.instructions
    )


@pytest.mark.parametrize("step", [PLAIN, PLAIN.replace("{order}", "q, total"), TURNED])
def test_the_product_is_after_the_loop(step: str) -> None:
    m = module(step)
    made = sink_products(m)
    verify(made)
    assert inside(m) == 1 and inside(made) == 0
    args = arguments(m)
    for found in (evaluate(made, args), nw.build(m)(*args)):
        for got, want in zip(found, evaluate(m, args), strict=True):
            np.testing.assert_array_equal(got, want)


TWICE = PLAIN.replace("{order}", "q, q")
LESS = PLAIN.replace("add({order})", "subtract(total, q)")
READ = PLAIN.replace("sum =", "both =") + (
    "\n  last = f32[{n},{m}] tanh(total)\n  sum = f32[{n},{m}] add(last, both)"
)
FIXED = "two = f32[] constant(2)\n  all = f32[{m},{k}] broadcast(two), dimensions={{}}\n  " + (
    TURNED.replace("dot(g, x)", "dot(g, all)")
)


@pytest.mark.parametrize("step", [TWICE, LESS, READ, FIXED], ids=["twice", "less", "read", "fixed"])
def test_others_stay(step: str) -> None:
    m = module(step)
    assert inside(sink_products(m)) == inside(m) == 1


def test_a_sum_that_is_read_on_the_way_stays() -> None:
    text = show(module(PLAIN))
    peek = """part = f32[24,3] slice(total), slice={[0:24],[0:3]}
  across = f32[3,24] transpose(part), dimensions={1,0}
  turned = f32[3,24] subtract(across, g)"""
    found = [line for line in text.splitlines() if line.strip().startswith("turned =")]
    m = parse(text.replace(found[0], peek))
    assert inside(sink_products(m)) == inside(m) == 1


@pytest.mark.parametrize(("m", "k", "n"), [(3, 3, 3), (64, 100, 2)])
def test_products_no_larger_than_their_factors_stay(m: int, k: int, n: int) -> None:
    made = module(PLAIN, m, k, n)
    assert inside(sink_products(made)) == 1


def test_a_sum_that_is_returned_twice_stays() -> None:
    sizes = {"m": 40, "k": 3, "n": 24}
    text = TEXT.replace("turned, sum, xs)", "turned, sum, xs, sum)")
    text = text.replace("h, g, total, xs)", "h, g, total, xs, total)")
    state = f"{STATE[:-1]}, f32[{{n}},{{m}}])".format(**sizes)
    m = parse(text.format(state=state, step=PLAIN.format(order="total, q", **sizes), **sizes))
    made, args = sink_products(m), arguments(m)
    assert inside(made) == 1
    for got, want in zip(evaluate(made, args), evaluate(m, args), strict=True):
        np.testing.assert_array_equal(got, want)
