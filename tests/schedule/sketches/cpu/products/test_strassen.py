"""The Strassen sketch: who is offered it, and the results of its schedules."""

from __future__ import annotations

import random
from typing import TypeAlias

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.prepack import split_packs
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func, Scope
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.loop.visit import equal
from nestwright.ir.target import Target
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.primitives.products.strassen import added_error
from nestwright.schedule.sketches.cpu.products import strassen
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

LOOSE = Target.parse("cpu -threads=2 -accuracy=0.001")
PLAIN = Target.parse("cpu -threads=2")
XEON = Target.parse("cpu -mcpu=emeraldrapids -mattr=-amx-tile -threads=2 -accuracy=1e-3")

TAILS = {
    "none": "ROOT r = f32[M,N] copy(c)",
    "gelu": """b = f32[N] parameter(2)
  s = f32[M,N] broadcast(b), dimensions={1}
  a = f32[M,N] add(c, s)
  t = f32[M,N] tanh(a)
  ROOT r = f32[M,N] multiply(a, t)""",
    "heads": """h = f32[M,4,Q] reshape(c)
  ROOT r = f32[4,M,Q] transpose(h), dimensions={1,0,2}""",
    "turned": """b = f32[N] parameter(2)
  s = f32[M,N] broadcast(b), dimensions={1}
  a = f32[M,N] add(c, s)
  h = f32[M,4,Q] reshape(a)
  ROOT r = f32[4,Q,M] transpose(h), dimensions={1,2,0}""",
    "two results": """a = f32[M,N] negate(c)
  b = f32[M,N] abs(c)
  ROOT r = (f32[M,N], f32[M,N]) tuple(a, b)""",
    "reduced": """z = f32[] constant(0)
  ROOT r = f32[M] reduce(c, z), dimensions={1}, to_apply=sum""",
}
SUM = """sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}
"""


def func_of(
    m: int, k: int, n: int, tail: str = "none", *, turned: bool = False, frozen: bool = True
) -> Func:
    body = TAILS[tail].replace("M", str(m)).replace("N", str(n)).replace("Q", str(n // 4))
    weights = f"{n},{k}" if turned else f"{k},{n}"
    text = f"""HloModule m
{SUM}
ENTRY main {{
  x = f32[{m},{k}] parameter(0)
  w = f32[{weights}] parameter(1)
  c = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(turned)}}}
  {body}
}}"""
    func = lower_group(parse(text).entry, "kernel")
    return FROZEN.put(func, (1,)) if frozen else func


def offered(func: Func, target: Target) -> Sketch | None:
    return next((s for s in generate(func, target) if s.name == "strassen@1"), None)


def check(func: Func, sch: Schedule) -> None:
    rng = np.random.default_rng(3)
    arguments = [rng.standard_normal(b.shape, np.float32) for b in func.params[: -func.outputs]]
    wanted = run(func, arguments)
    made = compile_func(sch.func, PLAIN)(*arguments)
    for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        off = np.sqrt(np.mean((got.astype(np.float64) - want) ** 2))
        assert off < (2 * excess_error(sch.func) + 1e-6) * np.sqrt(np.mean(want**2))


Kind: TypeAlias = tuple[int, int]
EVEN: tuple[Kind, ...] = ((1, 0), (2, 1))
ODD: tuple[Kind, ...] = ((1, 1), (2, 0))
"""Levels, and whether each thread has its own sums."""


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strassen, "BEHIND", float("inf"))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("shape", "tail", "turned", "frozen", "kind"),
    [
        ((37, 256, 128), "gelu", False, True, EVEN[0]),
        ((50, 256, 256), "none", True, True, ODD[0]),
        ((41, 192, 192), "heads", False, True, EVEN[1]),
        ((24, 256, 128), "two results", False, False, ODD[1]),
        ((33, 448, 64), "none", False, False, EVEN[0]),
        ((29, 192, 128), "reduced", True, True, ODD[0]),
        ((48, 192, 256), "turned", True, True, ODD[1]),
        ((37, 192, 251), "none", True, True, EVEN[1]),
    ],
)
def test_schedules_differ_by_rounding_only(
    shape: tuple[int, int, int], tail: str, turned: bool, frozen: bool, kind: Kind
) -> None:
    levels, private = kind
    func = func_of(*shape, tail, turned=turned, frozen=frozen)
    sketch = offered(func, LOOSE)
    assert sketch is not None
    mine = [p for p in sketch.points() if p["levels"] == levels and p["private"] == private]
    sch = Schedule(func)
    sketch.apply(sch, random.Random(f"{shape} {levels} {private}").choice(mine))
    check(func, sch)


def test_weights_are_summed_ahead_of_any_call_and_the_trace_replays() -> None:
    func = func_of(512, 768, 768, "gelu")
    first = generate(func, XEON)[0]
    assert first.name == "strassen@1"
    sch = Schedule(func)
    first.apply(sch, first.default)
    main, packs = split_packs(sch.func)
    assert [p.index for p in packs] == [1]
    assert all(b.name != "p1" for b in main.params)
    again = Trace.from_json(sch.trace.to_json()).replay(func)
    assert equal(again.func, sch.func)


def test_no_error_no_sketch() -> None:
    func = func_of(128, 768, 768)
    assert offered(func, PLAIN) is None
    one, two = (added_error(n, 768) for n in (1, 2))
    between = offered(func, Target.parse(f"cpu -threads=2 -accuracy={(one + two) / 2}"))
    assert between is not None and between.decisions["levels"] == (1,)
    assert offered(func, Target.parse(f"cpu -threads=2 -accuracy={one / 2}")) is None


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("shape", "turned", "frozen"),
    [
        ((64, 80, 256), False, True),
        ((64, 260, 256), False, True),
        ((64, 256, 72), False, False),
        ((64, 256, 256), True, False),
    ],
)
def test_products_that_do_not_divide_into_vectors_stay_whole(
    shape: tuple[int, int, int], turned: bool, frozen: bool
) -> None:
    assert offered(func_of(*shape, turned=turned, frozen=frozen), XEON) is None


def test_few_rows_are_not_worth_it() -> None:
    assert offered(func_of(4, 1024, 1024), XEON) is None


@pytest.mark.usefixtures("always")
def test_numbered_sums_and_products_take_all_sets_of_l1() -> None:
    """With 256 terms a part they would be whole pages apart, all in one set."""
    func = func_of(128, 1024, 256, frozen=False)
    sketch = offered(func, LOOSE)
    assert sketch is not None
    sch = Schedule(func)
    sketch.apply(sch, {**sketch.default, "levels": 2})
    line = LOOSE.core.l1.line // 4
    numbered = [(b, b.shape.index(49)) for b in sch.func.allocs if 49 in b.shape]
    apart = {b.name: b.strides[d] / line % 2 for b, d in numbered if b.scope is Scope.GLOBAL}
    assert len(apart) == 3 and set(apart.values()) == {1}, apart
