"""Padding of convolutions as bounds of loops: equal results, and the share of the work left."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.nests.contraction import CHUNK, SKIP
from nestwright.schedule.sketches.cpu.nests.matching import FuncInfo
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo.group import lower_group

SMALL = "f32[1,6,9,5] f32[3,3,5,18] f32[1,6,9,18] size=3x3 pad=1_1x1_1"
CASES = {
    "padded": (SMALL, 16 / 18 * 25 / 27),
    "strided": ("f32[2,6,31,3] f32[3,3,3,20] f32[2,3,16,20] size=3x3 stride=2x2 pad=0_1x1_1", None),
    "dilated": (
        "f32[1,5,9,4] f32[3,3,4,16] f32[1,5,9,16] size=3x3 pad=2_2x2_2 rhs_dilate=2x2",
        None,
    ),
    "wide": ("f32[1,7,7,3] f32[7,7,3,16] f32[1,4,4,16] size=7x7 stride=2x2 pad=3_3x3_3", None),
    "far out": ("f32[1,2,3,4] f32[3,3,4,16] f32[1,9,6,16] size=3x3 pad=4_5x1_4", None),
}


def convolution_text(case: str) -> str:
    """Return ``images weights result window`` as HLO."""
    x, w, out, *window = case.split()
    attrs = f"window={{{' '.join(window)}}}, dim_labels=b01f_01io->b01f"
    return (
        f"HloModule m\nENTRY main {{\n  p0 = {x} parameter(0)\n  p1 = {w} parameter(1)\n"
        f"  c = {out} convolution(p0, p1), {attrs}\n  ROOT r = {out} negate(c)\n}}\n"
    )


def lowered(case: str) -> Func:
    (group,) = fuse(optimize(parse(convolution_text(case))).entry).groups
    return lower_group(group.computation, group.name)


def test_a_row_that_fills_a_tile_keeps_all_steps() -> None:
    """Of a row's zeros no step is all zeros: they are fewer products, which may wait as long."""
    k = FuncInfo(lowered(SMALL)).contraction
    assert k is not None and k.kept_in_rows == pytest.approx(25 / 27)
    few = "f32[1,7,7,1024] f32[3,3,1024,1280] f32[1,4,4,1280] size=3x3 stride=2x2 pad=1_1x1_1"
    target = Target.parse("cpu -mcpu=znver5 -threads=2")
    c = generate(FROZEN.put(lowered(few), (1,)), target)[0].default
    assert c["rows"] * c["vectors"] >= 8, c  # as many sums as FMAs are under way


SHARED_OUT = """HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
ENTRY main {
  p0 = f32[1024] parameter(0)
  p1 = f32[2,512,7,7] parameter(1)
  z = f32[] constant(0)
  d = f32[1024] exponential(p0)
  r = f32[2,512] reshape(d)
  b = f32[2,512,7,7] broadcast(r), dimensions={0,1}
  m = f32[2,512,7,7] multiply(p1, b)
  ROOT s = f32[512,7,7] reduce(m, z), dimensions={0}, to_apply=add
}
"""


def test_feeders_of_far_elements_are_not_computed_again_for_each_tile() -> None:
    """A tile reads two elements, 512 apart: computed within it, they are all those between."""
    (group,) = fuse(optimize(parse(SHARED_OUT)).entry).groups
    target = Target.parse("cpu -threads=2")
    sketch = generate(lower_group(group.computation, group.name), target)[0]
    assert sketch.name == "tiling@2" and sketch.default["inside"] != CHUNK
    whole, inside = (sketch.cost({**sketch.default, "inside": n}) for n in (0, CHUNK))
    assert inside > 4 * whole


@pytest.mark.parametrize("name", CASES)
def test_the_share_of_products_that_are_kept(name: str) -> None:
    """Counted by a convolution of ones with ones."""
    func = lowered(CASES[name][0])
    x, w, _ = func.params
    (found,) = run(func, [np.ones(x.shape, np.float32), np.ones(w.shape, np.float32)])
    share = float(-found.sum() / (found.size * np.prod(w.shape[:-1])))
    k = FuncInfo(func).contraction
    assert k is not None and k.kept == pytest.approx(share)
    if CASES[name][1] is not None:
        assert share == pytest.approx(CASES[name][1])


@pytest.mark.parametrize("name", CASES)
def test_skipping_computes_the_same(name: str, cheap_forks: None) -> None:
    """Random choices with padding as bounds, as loops and as code, on small whole numbers."""
    func, rng, target = lowered(CASES[name][0]), random.Random(name), Target.parse("cpu -threads=2")
    draw = np.random.default_rng(1)
    args = [draw.integers(-2, 3, b.shape).astype(np.float32) for b in func.params[:-1]]
    (expected,) = run(func, args)
    sketch = next(s for s in generate(func, target) if SKIP in s.decisions.get("inside", ()))
    drawn = [{k: rng.choice(v) for k, v in sketch.decisions.items()} for _ in range(200)]
    choices = [{**c, "inside": SKIP} for c in drawn if sketch.valid({**c, "inside": SKIP})]
    for c in choices[:2]:
        sch = Schedule(func)
        sketch.apply(sch, c)
        for result in (*run(sch.func, args), compile_func(sch.func, target)(*args)):
            np.testing.assert_array_equal(result, expected, err_msg=str(c))


def test_padding_is_bounds() -> None:
    """No padded copy, and no condition in the loops."""
    flat = stage_text(parse(convolution_text(SMALL)), "cpu -threads=2", "flat")
    assert not any(word in flat for word in ("select", "pad", "if "))


def test_holes_of_a_dilated_input_are_no_bounds() -> None:
    """A transposed convolution of too many phases is padded by a block."""
    case = "f32[1,4,4,4] f32[3,3,4,16] f32[1,16,13,16] size=3x3 pad=1_1x1_1 lhs_dilate=5x4"
    k = FuncInfo(lowered(case)).contraction
    assert k is not None and k.feeders and k.kept is None
