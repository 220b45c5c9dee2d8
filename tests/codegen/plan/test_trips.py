"""Counted loops: how often they run is known before they do, or it is left to the loop."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.nodes import WhileThunk, walk
from nestwright.codegen.plan.saved.encoding import from_json, to_json
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

LOOP = """HloModule m
more {{ s = ({t}[], f32[2,2]) parameter(0)
  i = {t}[] get-tuple-element(s), index=0
  n = {t}[] constant({limit})
  ROOT r = pred[] compare({test}), direction={direction} }}
step {{ s = ({t}[], f32[2,2]) parameter(0)
  i = {t}[] get-tuple-element(s), index=0
  v = f32[2,2] get-tuple-element(s), index=1
  d = {t}[] constant({step})
  j = {t}[] {op}
  w = f32[2,2] dot(v, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = ({t}[], f32[2,2]) tuple(j, w) }}
ENTRY main {{ v = f32[2,2] parameter(0)
  i = {t}[] constant({start})
  s = ({t}[], f32[2,2]) tuple(i, v)
  ROOT w = ({t}[], f32[2,2]) while(s), condition=more, body=step
}}
"""


def text(
    start: int,
    step: int,
    direction: str,
    limit: int,
    t: str = "s32",
    test: str = "i, n",
    op: str = "add(i, d)",
) -> str:
    facts = {"start": start, "step": step, "direction": direction, "limit": limit}
    return LOOP.format(t=t, test=test, op=op, **facts)


def found(hlo: str) -> int | None:
    exe = build(parse(hlo))
    (loop,) = [t for t in walk(exe.plan.thunks) if isinstance(t, WhileThunk)]
    return loop.trips


@pytest.mark.parametrize(
    ("start", "step", "direction", "limit", "trips"),
    [
        (0, 1, "LT", 10, 10),
        (3, 1, "LT", 10, 7),
        (0, 3, "LT", 10, 4),
        (0, 1, "LE", 10, 11),
        (0, 3, "LE", 9, 4),
        (0, 4, "LE", 9, 3),
        (10, -1, "GT", 0, 10),
        (10, -3, "GE", 1, 4),
        (0, 2, "NE", 10, 5),
        (10, -5, "NE", 0, 2),
        (5, 1, "LT", 5, 0),
        (5, 1, "LE", 5, 1),
        (7, 1, "LT", 5, 0),
        (5, 1, "NE", 5, 0),
        (5, -1, "GE", 5, 1),
    ],
)
def test_counters_are_followed(
    start: int, step: int, direction: str, limit: int, trips: int
) -> None:
    hlo = text(start, step, direction, limit)
    assert found(hlo) == trips
    v = np.full((2, 2), 0.5, np.float32)  # its own square
    counter, value = evaluate(parse(hlo), [v])
    assert counter == start + trips * step and (value == v).all()


@pytest.mark.parametrize(
    ("start", "step", "direction", "limit"),
    [
        (0, -1, "LT", 10),
        (5, -1, "LE", 5),
        (5, 1, "GE", 5),
        (0, 3, "NE", 10),
        (0, 0, "LT", 10),
        (0, 1, "EQ", 0),
    ],
)
def test_loops_that_never_end_or_wrap_are_left_to_themselves(
    start: int, step: int, direction: str, limit: int
) -> None:
    assert found(text(start, step, direction, limit)) is None


def test_a_counter_that_wraps_around_is_not_counted() -> None:
    assert found(text(0, 1, "LE", 127, t="s8")) is None
    assert found(text(0, 1, "LT", 127, t="s8")) == 127
    assert found(text(250, 3, "LT", 255, t="u8")) is None


def test_other_spellings() -> None:
    assert found(text(0, 2, "GT", 9, test="n, i")) == 5
    assert found(text(0, 2, "LT", 9, op="add(d, i)")) == 5
    assert found(text(9, 2, "GT", 0, op="subtract(i, d)")) == 5
    assert found(text(9, 2, "GT", 0, op="subtract(d, i)")) is None
    assert found(text(0, 2, "LT", 9, op="multiply(i, d)")) is None


def test_what_is_computed_is_not_counted() -> None:
    hlo = text(0, 1, "LT", 9).replace("constant(0)", "parameter(1)")
    assert found(hlo) is None


def test_the_count_is_shown_and_saved() -> None:
    exe = build(parse(text(0, 1, "LT", 6)))
    assert ", 6 times" in exe.as_text("plan")
    assert from_json(json.loads(json.dumps(to_json(exe.plan)))) == exe.plan


@pytest.mark.parametrize("trips", [0, 1, 6, 200])
def test_a_gpu_is_asked_nothing(fake: Any, trips: int) -> None:
    exe = fake.executable(text(0, 1, "LT", trips))
    x = np.zeros((2, 2), np.float32)
    for _ in range(3):
        before = fake.waits
        counter, value = exe(x)
        assert counter == trips and (value == x).all()
        assert fake.waits - before == 1, "the results alone are waited for"
