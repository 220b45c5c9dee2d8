"""Depthwise convolutions: choices of their sketch compute the same, defaults touch no stack."""

from __future__ import annotations

import random

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo.group import lower_group

RELU6 = """
  zero = f32[] constant(0)
  six = f32[] constant(6)
  zeros = {out} broadcast(zero), dimensions={{}}
  sixes = {out} broadcast(six), dimensions={{}}
  positive = {out} maximum(c, zeros)
  ROOT r = {out} minimum(positive, sixes)
"""
CASES = {
    "padded": ("f32[1,4,30,18]", "f32[3,3,1,18]", "pad=1_1x1_1", "f32[1,4,30,18]"),
    "strided": ("f32[2,5,31,20]", "f32[3,3,1,20]", "stride=2x2 pad=1_1x0_1", "f32[2,3,15,20]"),
    "wide": ("f32[1,5,20,16]", "f32[5,5,1,16]", "pad=2_2x2_2", "f32[1,5,20,16]"),
    "dilated": (
        *("f32[1,5,9,33]", "f32[3,3,1,33]", "pad=2_2x2_2 rhs_dilate=2x2", "f32[1,5,9,33]"),
    ),
    "far out": ("f32[1,2,3,16]", "f32[3,3,1,16]", "pad=4_5x1_4", "f32[1,9,6,16]"),
    "unpadded": ("f32[1,4,14,24]", "f32[3,3,1,24]", "pad=0_0x0_0", "f32[1,2,12,24]"),
    "transposed": (
        "f32[1,5,6,16]",
        "f32[3,3,1,16]",
        "pad=1_1x1_1 lhs_dilate=2x2",
        "f32[1,9,11,16]",
    ),
    "one row": ("f32[1,1,19,16]", "f32[1,4,1,16]", "pad=0_0x2_1", "f32[1,1,19,16]"),
}


def depthwise_text(x: str, w: str, window: str, out: str) -> str:
    """Return a depthwise convolution over ``[batch, y, x, channel]`` with ReLU6 as HLO."""
    rows, columns, _, channels = map(int, w[4:-1].split(","))
    attrs = f"window={{size={rows}x{columns} {window}}}, dim_labels=b01f_01io->b01f"
    conv = f"convolution(p0, p1), {attrs}, feature_group_count={channels}"
    head = f"  p0 = {x} parameter(0)\n  p1 = {w} parameter(1)\n  c = {out} {conv}"
    return f"HloModule m\nENTRY main {{\n{head}{RELU6.format(out=out)}}}\n"


def lowered(name: str) -> Func:
    return lowered_text(depthwise_text(*CASES[name]))


def lowered_text(text: str) -> Func:
    (group,) = fuse(optimize(parse(text)).entry).groups
    return lower_group(group.computation, group.name)


@pytest.mark.parametrize("name", CASES)
def test_choices_compute_the_same(name: str, cheap_forks: None) -> None:
    """The default and random choices, as code, one of them as loops too, on whole numbers."""
    func, rng, target = lowered(name), random.Random(name), Target.parse("cpu -threads=2")
    draw = np.random.default_rng(1)
    args = [draw.integers(-2, 3, b.shape).astype(np.float32) for b in func.params[:-1]]
    (expected,) = run(func, args)
    sketch = generate(func, target)[0]
    assert sketch.name == "depthwise@1"
    choices = [{k: rng.choice(v) for k, v in sketch.decisions.items()} for _ in range(30)]
    taken = [c for c in choices if sketch.valid(c)][:2]
    for c in (sketch.default, *taken):
        sch = Schedule(func)
        sketch.apply(sch, c)
        results = [
            compile_func(sch.func, target)(*args),
            *(run(sch.func, args) if c in taken[:1] else ()),
        ]
        for result in results:
            np.testing.assert_array_equal(result, expected, err_msg=str(c))


def test_padding_is_bounds() -> None:
    """Nothing is selected or padded in the flat code: the loops end where the image does."""
    flat = stage_text(parse(depthwise_text(*CASES["padded"])), "cpu -threads=2", "flat")
    assert "select" not in flat and "pad" not in flat and "if " not in flat
    assert "range(min(" in flat


def test_far_holes_are_left_to_a_copy() -> None:
    """The zeros between the elements of a dilated input are no bounds."""
    flat = stage_text(parse(depthwise_text(*CASES["transposed"])), "cpu -threads=2", "flat")
    assert "pad" in flat


@pytest.mark.parametrize(("size", "channels", "taps"), [(14, 576, 3), (7, 960, 3), (14, 672, 5)])
@pytest.mark.parametrize("machine", ["znver4", "emeraldrapids"])
def test_threads_share_rows_rather_than_columns(
    machine: str, size: int, channels: int, taps: int
) -> None:
    """Two threads that write parts of the same pixels take lines from each other."""
    x, pad = f"f32[1,{size},{size},{channels}]", f"{taps // 2}_{taps // 2}"
    func = lowered_text(
        depthwise_text(x, f"f32[{taps},{taps},1,{channels}]", f"pad={pad}x{pad}", x)
    )
    (sketch, *_) = generate(func, Target.parse(f"cpu -mcpu={machine} -threads=2"))
    assert sketch.name == "depthwise@1"
    assert sketch.default["parallel"] and sketch.default["shares"] == 1
    assert sketch.default["chunks"] > 1


def test_threads_share_planes_where_the_result_has_them() -> None:
    text = depthwise_text("f32[1,14,14,672]", "f32[5,5,1,672]", "pad=2_2x2_2", "f32[1,672,14,14]")
    func = lowered_text(text.replace("->b01f", "->bf01"))
    (sketch, *_) = generate(func, Target.parse("cpu -mcpu=znver4 -threads=2"))
    assert sketch.name == "depthwise@1"
    assert sketch.default["chunks"] == 1 and sketch.default["shares"] > 1


@pytest.mark.parametrize("machine", ["emeraldrapids", "haswell"])
@pytest.mark.parametrize("name", ["padded", "strided", "dilated"])
def test_defaults_do_not_spill(name: str, machine: str) -> None:
    """The taps of a tile stay in registers, whatever is clamped after."""
    target = Target.parse(f"cpu -mcpu={machine} -threads=2")
    loop = hottest_loop(stage_text(parse(depthwise_text(*CASES[name])), target, "asm"))
    assert loop is not None and loop.stack == 0, loop
