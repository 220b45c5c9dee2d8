"""The sketch of products by large weights in place: who is offered it, and what it computes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.products import row_streams
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

ZEN = Target.parse("cpu -mcpu=znver4 -threads=2")
TAILS = {
    "none": "ROOT r = f32[M,N] copy(c)",
    "bias": """b = f32[N] parameter(2)
  s = f32[M,N] broadcast(b), dimensions={1}
  a = f32[M,N] add(c, s)
  ROOT r = f32[M,N] tanh(a)""",
    "turned": "ROOT r = f32[N,M] transpose(c), dimensions={1,0}",
}


def text_of(m: int, k: int, n: int, tail: str = "none", *, across: bool = False) -> str:
    body = TAILS[tail].replace("M", str(m)).replace("N", str(n))
    weights, contracted = (f"{n},{k}", 1) if across else (f"{k},{n}", 0)
    return f"""HloModule m
ENTRY main {{
  x = f32[{m},{k}] parameter(0)
  w = f32[{weights}] parameter(1)
  c = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{contracted}}}
  {body}
}}"""


def func_of(m: int, k: int, n: int, tail: str = "none", *, across: bool = False) -> Func:
    return lower_group(parse(text_of(m, k, n, tail, across=across)).entry, "kernel")


def offered(func: Func, target: Target = ZEN) -> Sketch | None:
    return next((s for s in generate(func, target) if s.name == "row_streams@1"), None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product of a few rows counts as one of large weights."""
    monkeypatch.setattr(row_streams, "STRETCH", 64)
    monkeypatch.setattr(row_streams, "LARGE", 0)


def test_it_is_the_default_of_few_rows_by_weights_in_place() -> None:
    for m in (1, 2, 4):
        assert generate(func_of(m, 4096, 4096, "bias"), ZEN)[0].name == "row_streams@1"


@pytest.mark.parametrize("machine", ["znver4", "haswell"])
@pytest.mark.parametrize("m", [1, 2, 4])
def test_steps_read_long_stretches_and_touch_no_stack(m: int, machine: str) -> None:
    target = Target.parse(f"cpu -mcpu={machine} -threads=2")
    sketch = offered(func_of(m, 4096, 4096), target)
    assert sketch is not None
    assert 4 * 4096 / int(sketch.default["pieces"]) >= 2048
    loop = hottest_loop(stage_text(parse(text_of(m, 4096, 4096)), target, "asm"))
    assert loop is not None and loop.fmas == m * int(sketch.default["terms"])
    assert loop.stack == 0, loop


def test_who_is_not_offered_it() -> None:
    assert offered(func_of(8, 4096, 4096)) is None  # a register tile is faster
    assert offered(func_of(1, 64, 4096)) is None  # in the second cache
    assert offered(func_of(1, 4096, 768)) is None  # short rows
    assert offered(func_of(1, 4096, 4096, across=True)) is None  # rows along the terms
    assert offered(func_of(2, 4096, 4096, "turned")) is None
    assert offered(FROZEN.put(func_of(1, 4096, 4096), (1,))) is None  # packed ahead of time


@pytest.mark.parametrize("tail", ["none", "bias"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 16, 64), (1, 13, 83), (3, 9, 70), (4, 5, 33)])
def test_choices_compute_the_same(
    m: int, k: int, n: int, tail: str, small: None, cheap_forks: None
) -> None:
    func = func_of(m, k, n, tail)
    sketch = offered(func)
    assert sketch is not None
    rng = np.random.default_rng(3)
    arguments: list[Any] = [
        rng.standard_normal(b.shape).astype(np.float32) for b in func.params[: -func.outputs]
    ]
    (wanted,) = run(func, arguments)
    points = [
        dict(zip(sketch.decisions, values, strict=True))
        for values in itertools.product(*sketch.decisions.values())
    ]
    valid = [c for c in points if sketch.valid(c)]
    assert len(valid) >= 4
    for choices in valid:
        sch = Schedule(func)
        sketch.apply(sch, choices)
        (got,) = run(sch.func, arguments)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
