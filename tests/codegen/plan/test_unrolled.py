"""Counted loops on GPUs: several iterations in one where that saves copies of their states."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.nodes import CopyThunk, WhileThunk
from nestwright.codegen.plan.saved.encoding import from_json, to_json
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

SIM = "cuda-sim -arch=sm_80"
STATE = "(s32[], f32[9], f32[9], f32[9])"
LOOP = """HloModule m
more {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT r = pred[] compare(i, n), direction=LT }}
step {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[9] get-tuple-element(s), index=1
  b = f32[9] get-tuple-element(s), index=2
  c = f32[9] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  back = f32[9] reverse(a), dimensions={{0}}
  next = f32[9] subtract(back, b)
  other = f32[9] reverse(b), dimensions={{0}}
  ROOT r = {state} tuple(j, {after}) }}
ENTRY main {{ a = f32[9] parameter(0)
  b = f32[9] parameter(1)
  i = s32[] constant(0)
  s = {state} tuple(i, a, b, a)
  ROOT w = {state} while(s), condition=more, body=step
}}
"""


def text(trips: int, after: str) -> str:
    return LOOP.format(state=STATE, trips=trips, after=after)


@pytest.mark.parametrize(
    ("trips", "after"),
    [
        (1, "next, a, c"),
        (2, "next, a, c"),
        (7, "next, a, other"),
        (8, "b, c, a"),
        (5, "b, c, next"),
    ],
)
def test_results_are_those_of_single_iterations(trips: int, after: str) -> None:
    module = parse(text(trips, after))
    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 9, 9).astype(np.float32) for _ in "ab"]
    for found, wanted in zip(build(module, SIM)(*args), evaluate(module, args), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("trips", "unrolled"), [(10, 2), (9, 3)])
def test_state_is_not_copied_in_the_loop(trips: int, unrolled: int) -> None:
    exe = build(parse(text(trips, "next, other, c")), SIM)
    (loop,) = [t for t in exe.plan.thunks if isinstance(t, WhileThunk)]
    assert (loop.trips, loop.unrolled) == (trips // unrolled, unrolled)
    assert not [t for t in loop.body if isinstance(t, CopyThunk)]
    single = build(parse(text(trips, "next, other, c")))
    assert [t.unrolled for t in single.plan.thunks if isinstance(t, WhileThunk)] == [1]
    costs = [e.cost_analysis()["flops"] for e in (exe, single)]
    assert costs[0] == costs[1]
    assert from_json(json.loads(json.dumps(to_json(exe.plan)))) == exe.plan
