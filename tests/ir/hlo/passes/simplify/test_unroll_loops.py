"""Short loops of element-wise work are written out; longer ones, and others, stay loops."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.simplify.unroll_loops import LARGEST, TRIPS, unroll_loops

STATE = "(s32[], u32[5], u32[5])"
TEXT = """HloModule rounds
add_u32 {{ a = u32[] parameter(0)
  b = u32[] parameter(1)
  ROOT r = u32[] add(a, b) }}
test {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT }}
body {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = u32[5] get-tuple-element(s), index=1
  k = u32[5] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = u32[] constant(0)
  number = u32[] convert(j)
  numbers = u32[5] broadcast(number), dimensions={{}}
  turned = u32[5] reverse(k), dimensions={{0}}
  {step}
  ROOT r = {state} tuple(j, y, turned) }}
ENTRY main {{ x = u32[5] parameter(0)
  k = u32[5] parameter(1)
  zero = s32[] constant(0)
  s = {state} tuple(zero, x, k)
  ROOT l = {state} while(s), condition=test, body=body }}
"""
LONG = "\n  ".join(
    ["n0 = u32[5] not(x)"]
    + [f"n{k + 1} = u32[5] not(n{k})" for k in range(LARGEST // 4)]
    + [f"y = u32[5] xor(n{LARGEST // 4}, k)"]
)
MIX = "m = u32[5] multiply(x, numbers)\n  y = u32[5] xor(m, k)"
ALL = """total = u32[] reduce(x, zero), dimensions={0}, to_apply=add_u32
  t = u32[5] broadcast(total), dimensions={}
  y = u32[5] xor(t, k)"""


def module(trips: int, step: str = MIX) -> HloModule:
    return parse(TEXT.format(state=STATE, trips=trips, step=step))


def loops(m: HloModule) -> int:
    return sum(i.opcode == "while" for c in m.computations for i in c.instructions)


@pytest.mark.parametrize("trips", [0, 1, 2, TRIPS])
def test_short_loops_are_written_out(trips: int) -> None:
    m = module(trips)
    made = unroll_loops(m)
    verify(made)
    assert loops(made) == 0
    x, k = np.arange(5, dtype=np.uint32) * 77, np.arange(5, dtype=np.uint32) ** 3
    for got, want in zip(evaluate(made, [x, k]), evaluate(m, [x, k]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_no_loop_is_left_in_the_plan() -> None:
    m = module(5)
    x, k = np.arange(5, dtype=np.uint32) * 77, np.arange(5, dtype=np.uint32) ** 3
    exe = nw.build(m)
    assert "while" not in exe.as_text("plan")
    for got, want in zip(exe(x, k), evaluate(m, [x, k]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "step",
    [ALL, LONG, "y = u32[5] dynamic-update-slice(x, turned, i)"],
    ids=["a sum", "long", "an update"],
)
def test_other_loops_stay(step: str) -> None:
    m = module(4, step)
    assert loops(unroll_loops(m)) == 1


def test_longer_loops_stay() -> None:
    m = module(TRIPS + 1)
    assert loops(unroll_loops(m)) == 1
    counted = TEXT.format(state=STATE, trips=3, step=MIX)
    unknown = parse(
        counted.replace("zero = s32[] constant(0)\n  s =", "zero = s32[] parameter(2)\n  s =")
    )
    assert loops(unroll_loops(unknown)) == 1


def test_loops_in_loops_go_from_the_inside_out() -> None:
    inner = TEXT.format(state=STATE, trips=2, step=MIX).replace("ENTRY main", "inner")
    inner = inner.replace("HloModule rounds", "HloModule nested")
    outer = (
        inner
        + f"""again {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = u32[5] get-tuple-element(s), index=1
  k = u32[5] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  made = {STATE} call(x, k), to_apply=inner
  y = u32[5] get-tuple-element(made), index=1
  z = u32[5] get-tuple-element(made), index=2
  ROOT r = {STATE} tuple(j, y, z) }}
until {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY whole {{ x = u32[5] parameter(0)
  k = u32[5] parameter(1)
  zero = s32[] constant(0)
  s = {STATE} tuple(zero, x, k)
  ROOT l = {STATE} while(s), condition=until, body=again }}
"""
    )
    m = parse(outer)
    x, k = np.arange(5, dtype=np.uint32) * 77, np.arange(5, dtype=np.uint32) ** 3
    exe = nw.build(m)
    assert "while" not in exe.as_text("plan")
    for got, want in zip(exe(x, k), evaluate(m, [x, k]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_counter_that_wraps_goes_on() -> None:
    m = parse("""HloModule wraps
test { s = (s8[], u32[5]) parameter(0)
  i = s8[] get-tuple-element(s), index=0
  n = s8[] constant(120)
  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s8[], u32[5]) parameter(0)
  i = s8[] get-tuple-element(s), index=0
  x = u32[5] get-tuple-element(s), index=1
  step = s8[] constant(100)
  j = s8[] add(i, step)
  y = u32[5] not(x)
  ROOT r = (s8[], u32[5]) tuple(j, y) }
ENTRY main { x = u32[5] parameter(0)
  start = s8[] constant(100)
  s = (s8[], u32[5]) tuple(start, x)
  ROOT l = (s8[], u32[5]) while(s), condition=test, body=body }
""")
    assert unroll_loops(m) is m
