"""The Winograd sketch: who is offered it, and the results of its schedules at odd extents."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.prepack import split_packs
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.loop.visit import equal
from nestwright.ir.target import Target
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.sketches.cpu.convolutions import winograd
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.schedule.transforms import relative_error
from nestwright.te.from_hlo import lower_group

LOOSE = Target.parse("cpu -threads=2 -accuracy=0.001")
PLAIN = Target.parse("cpu -threads=2")
XEON = Target.parse("cpu -mcpu=emeraldrapids -mattr=-amx-tile -threads=2 -accuracy=1e-3")


def module(
    image: tuple[int, int, int, int], columns: int, consumer: str = "bias", window: str = ""
) -> str:
    """A padded convolution of ``image`` (batch, rows, columns, channels) with 3 x 3 taps."""
    n, h, w, c = image
    window = window or "size=3x3 pad=1_1x1_1"
    rows = (h + 1) // 2 if "stride" in window else h
    width = (w + 1) // 2 if "stride" in window else w
    out = f"f32[{n},{rows},{width},{columns}]"
    tail = {
        "none": "",
        "bias": """b = f32[COLS] parameter(2)
  s = OUT broadcast(b), dimensions={3}
  a = OUT add(c, s)
  z = f32[] constant(0)
  zero = OUT broadcast(z), dimensions={}
  ROOT r = OUT maximum(a, zero)""",
        "residual": """y = OUT parameter(2)
  ROOT r = OUT add(c, y)""",
        "two results": """a = OUT negate(c)
  b = OUT abs(c)
  ROOT r = (OUT, OUT) tuple(a, b)""",
    }[consumer]
    root = "ROOT c" if consumer == "none" else "c"
    tail = tail.replace("OUT", out).replace("COLS", str(columns))
    return f"""HloModule m
ENTRY main {{
  x = f32[{n},{h},{w},{c}] parameter(0)
  w = f32[3,3,{c},{columns}] parameter(1)
  {root} = {out} convolution(x, w), window={{{window}}}, dim_labels=b01f_01io->b01f
  {tail}
}}"""


def func_of(text: str, frozen: bool = True) -> Func:
    func = lower_group(parse(text).entry, "kernel")
    return FROZEN.put(func, (1,)) if frozen else func


def offered(func: Func, target: Target) -> Sketch | None:
    return next((s for s in generate(func, target) if s.name == "winograd@1"), None)


def drawn(func: Func) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(b.shape).astype(np.float32) for b in func.params[: -func.outputs]]


def check(func: Func, sch: Schedule) -> None:
    arguments = drawn(func)
    wanted = run(func, arguments)
    made = compile_func(sch.func, PLAIN)(*arguments)
    for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        off = np.sqrt(np.mean((got.astype(np.float64) - want) ** 2))
        assert (
            off / np.sqrt(np.mean(want.astype(np.float64) ** 2)) < 2 * excess_error(sch.func) + 1e-6
        )


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "BEHIND", float("inf"))


CASES = {
    "odd": ((1, 7, 9, 20), 22, "bias"),
    "images": ((3, 6, 5, 16), 16, "bias"),
    "residual": ((1, 11, 6, 17), 33, "residual"),
    "alone": ((2, 5, 8, 8), 40, "none"),
    "two consumers": ((1, 8, 7, 8), 16, "two results"),
    "thin": ((1, 2, 19, 4), 5, "bias"),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", CASES)
def test_schedules_at_odd_extents_differ_by_rounding_only(name: str) -> None:
    image, columns, consumer = CASES[name]
    func = func_of(module(image, columns, consumer))
    sketch = offered(func, LOOSE)
    assert sketch is not None
    points = list(sketch.points())
    rng = random.Random(f"{name} 1")
    for size in (2, 4):
        mine = [p for p in points if p["size"] == size]
        sch = Schedule(func)
        sketch.apply(sch, rng.choice(mine))
        check(func, sch)


def test_the_default_is_preferred_where_it_does_a_quarter_of_the_work() -> None:
    func = func_of(module((1, 28, 28, 64), 64))
    first = generate(func, XEON)[0]
    assert first.name == "winograd@1" and first.default["size"] == 4
    sch = Schedule(func)
    first.apply(sch, first.default)
    main, packs = split_packs(sch.func)
    assert [p.index for p in packs] == [1]
    assert all(b.name != "p1" for b in main.params)
    again = Trace.from_json(sch.trace.to_json()).replay(func)
    assert equal(again.func, sch.func)


def test_no_error_no_sketch() -> None:
    func = func_of(module((1, 28, 28, 64), 64))
    assert offered(func, PLAIN) is None
    between = (relative_error(2, 3, 64) + relative_error(4, 3, 64)) / 2
    sketch = offered(func, Target.parse(f"cpu -threads=2 -accuracy={between}"))
    assert sketch is not None and sketch.decisions["size"] == (2,)
    below = relative_error(2, 3, 64) / 2
    assert offered(func, Target.parse(f"cpu -threads=2 -accuracy={below}")) is None


@pytest.mark.usefixtures("always")
def test_other_convolutions_are_computed_directly() -> None:
    assert offered(func_of(module((1, 28, 28, 64), 64), frozen=False), LOOSE) is None
    strided = module((1, 28, 28, 64), 64, window="size=3x3 pad=0_1x0_1 stride=2x2")
    assert offered(func_of(strided), LOOSE) is None


def test_weights_that_outgrow_their_gain_are_not_worth_it() -> None:
    wide = func_of(module((1, 7, 7, 512), 512))
    assert offered(wide, XEON) is None
