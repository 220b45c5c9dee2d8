"""Products of bytes, four terms per lane: the same integers as before, and which instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

Array = np.ndarray[Any, Any]

DOT = """HloModule bytes
ENTRY main {
  x = u8[ROWS,DEEP] parameter(0)
  w = s8[DEEP,WIDE] parameter(1)
  d = s32[ROWS,WIDE] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT f = f32[ROWS,WIDE] convert(d)
}
"""
CONV = """HloModule windows
ENTRY main {
  x = u8[2,6,5,8] parameter(0)
  w = s8[3,3,8,37] parameter(1)
  ROOT y = s32[2,6,5,37] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f
}
"""
VNNI = "cpu -mcpu=sapphirerapids -threads=2"
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -mattr=+i8mm"


def text(rows: int, deep: int, wide: int) -> str:
    named = {"ROWS": rows, "DEEP": deep, "WIDE": wide}
    made = DOT
    for word, value in named.items():
        made = made.replace(word, str(value))
    return made


def operands(rows: int, deep: int, wide: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, deep)).astype(np.uint8)
    w = rng.integers(-128, 128, (deep, wide)).astype(np.int8)
    x[0], w[:, 0] = 255, -128  # the largest products
    return x, w


def sketches(made: PreparedModule) -> tuple[str, ...]:
    names = []
    for group in made.groups.distinct.values():
        func = lower_group(group.computation, group.name)
        names += [s.name for s in generate(func, made.target)]
    return tuple(names)


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize(("deep", "wide"), [(4, 16), (24, 33), (52, 130), (30, 48)])
def test_integers_are_exact(rows: int, deep: int, wide: int) -> None:
    x, w = operands(rows, deep, wide)
    exe = build(parse(text(rows, deep, wide)), "cpu -threads=2", constants={1: w})
    assert np.array_equal(exe(x), (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32))


def test_convolution_of_bytes() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (2, 6, 5, 8)).astype(np.uint8)
    w = rng.integers(-128, 128, (3, 3, 8, 37)).astype(np.int8)
    exe = build(parse(CONV), "cpu -threads=2", constants={1: w})
    assert np.array_equal(exe(x), evaluate(parse(CONV), [x, w]))


@pytest.mark.parametrize(("spec", "instruction"), [(VNNI, "vpdpbusd"), (ARM, "usdot")])
def test_one_instruction_for_four_terms_of_each_lane(spec: str, instruction: str) -> None:
    _, w = operands(8, 64, 96)
    exe = build(parse(text(8, 64, 96)), spec, constants={1: w})
    asm = exe.as_text("asm")
    lanes = 16 if spec == VNNI else 4
    made = PreparedModule(parse(text(8, 64, 96)), spec, {1: w})
    (group,) = made.groups.distinct.values()
    default = generate(lower_group(group.computation, group.name), made.target)[0].default
    assert default["lanes"] == lanes
    assert asm.count(instruction) == int(default["rows"]) * int(default["vectors"])
    assert "vpmulld" not in asm


def test_what_the_processor_or_the_shape_does_not_allow_is_tiled() -> None:
    fits = operands(4, 64, 48)[1]
    assert "quads@1" in sketches(PreparedModule(parse(text(4, 64, 48)), VNNI, {1: fits}))
    for spec, deep, frozen in (
        ("cpu -mcpu=haswell", 64, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 64, True),
        (VNNI, 62, True),
        (VNNI, 64, False),
    ):
        w = operands(4, deep, 48)[1]
        made = PreparedModule(parse(text(4, deep, 48)), spec, {1: w} if frozen else None)
        assert "quads@1" not in sketches(made)


def test_every_choice_computes_the_same() -> None:
    x, w = operands(7, 20, 70)
    made = PreparedModule(parse(text(7, 20, 70)), "cpu -threads=2", {1: w})
    if "quads@1" not in sketches(made):
        pytest.skip("this processor has no such instructions")
    ((key, group),) = made.groups.distinct.items()
    func = lower_group(group.computation, group.name)
    sketch = generate(func, made.target)[0]
    points = list(sketch.points())
    expected = (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    for choices in points[:: max(1, len(points) // 6)]:
        schedule = Schedule(func)
        sketch.apply(schedule, choices)
        assert np.array_equal(made.build({key: schedule.trace})(x), expected), choices
