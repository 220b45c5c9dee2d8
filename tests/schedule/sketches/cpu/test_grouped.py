"""Grouped convolutions: choices of their sketch compute the same, defaults touch no stack."""

from __future__ import annotations

import random
import re
from itertools import product

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.dtypes import f32
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo.group import lower_group

CASES = {
    "padded": "f32[1,3,9,16] f32[3,3,4,32] f32[1,3,9,32] 4 size=3x3 pad=1_1x1_1",
    "narrow": "f32[1,4,20,8] f32[3,3,2,12] f32[1,4,20,12] 4 size=3x3 pad=1_1x1_1",
    "odd": "f32[2,5,7,6] f32[3,3,3,38] f32[2,3,4,38] 2 size=3x3 stride=2x2 pad=1_1x1_1",
    "a vector and a half": "f32[1,3,9,48] f32[3,3,24,48] f32[1,3,9,48] 2 size=3x3 pad=1_1x1_1",
    "two vectors and a half": "f32[1,3,5,40] f32[3,3,20,80] f32[1,3,5,80] 2 size=3x3 pad=1_1x1_1",
    "without a window": "f32[1,3,5,12] f32[1,1,4,24] f32[1,3,5,24] 3 size=1x1",
    "shared vectors": "f32[1,3,9,32] f32[3,3,4,32] f32[1,3,9,32] 8 size=3x3 pad=1_1x1_1",
    "shared pairs": "f32[1,5,7,96] f32[3,1,2,96] f32[1,3,7,96] 48 size=3x1 stride=2x1 pad=1_1x0_0",
    "shared, a point": "f32[1,3,5,16] f32[1,1,8,16] f32[1,3,5,16] 2 size=1x1",
    "shared, depthwise": "f32[1,5,7,24] f32[3,3,1,48] f32[1,5,7,48] 24 size=3x3 pad=1_1x1_1",
    "shared, fewer inputs": "f32[1,3,9,16] f32[3,3,2,32] f32[1,3,9,32] 8 size=3x3 pad=1_1x1_1",
    "far apart": "f32[1,3,4,8] f32[3,3,4,16] f32[1,11,16,16] 2 size=3x3 pad=1_1x1_1 lhs_dilate=5x5",
}


def grouped_text(case: str, root: str = "maximum(c, b)") -> str:
    """Return ``images weights result groups window`` as HLO, with a bias below."""
    x, w, out, count, *window = case.split()
    attrs = f"window={{{' '.join(window)}}}, dim_labels=b01f_01io->b01f"
    conv = f"convolution(p0, p1), {attrs}, feature_group_count={count}"
    if not root:
        return (
            f"HloModule m\nENTRY main {{\n  p0 = {x} parameter(0)\n  p1 = {w} parameter(1)\n"
            f"  ROOT c = {out} {conv}\n}}\n"
        )
    features = out[:-1].split(",")[-1]
    return (
        f"HloModule m\nENTRY main {{\n  p0 = {x} parameter(0)\n  p1 = {w} parameter(1)\n"
        f"  p2 = f32[{features}] parameter(2)\n  b = {out} broadcast(p2), dimensions={{3}}\n"
        f"  c = {out} {conv}\n  ROOT r = {out} {root}\n}}\n"
    )


def lowered(text: str, frozen: bool) -> Func:
    (group,) = fuse(optimize(parse(text)).entry).groups
    func = lower_group(group.computation, group.name)
    return FROZEN.put(func, (1,)) if frozen else func


def test_an_image_that_is_its_own_kernel() -> None:
    case = "f32[3,3,4,8] f32[3,3,4,8] f32[3,3,4,8] 2 size=3x3 pad=1_1x1_1"
    func = lowered(grouped_text(case, "").replace("(p0, p1)", "(p0, p0)"), False)
    target = Target.parse("cpu -threads=2")
    x = np.random.default_rng(1).integers(-2, 3, (3, 3, 4, 8)).astype(np.float32)
    sketch = generate(func, target)[0]
    assert sketch.name == "grouped@1"
    sch = Schedule(func)
    sketch.apply(sch, sketch.default)
    args = [x] * (len(func.params) - 1)
    np.testing.assert_array_equal(compile_func(sch.func, target)(*args), run(func, args)[0])


@pytest.mark.parametrize("root", ["maximum(c, b)", ""])
@pytest.mark.parametrize("name", CASES)
def test_choices_compute_the_same(name: str, root: str, cheap_forks: None) -> None:
    """The default and random choices, as loops and as code, on small whole numbers."""
    func = lowered(grouped_text(CASES[name], root), bool(root))
    rng, target = random.Random(name), Target.parse("cpu -threads=2")
    draw = np.random.default_rng(1)
    args = [draw.integers(-2, 3, b.shape).astype(np.float32) for b in func.params[:-1]]
    (expected,) = run(func, args)
    sketch = generate(func, target)[0]
    assert sketch.name == "grouped@1"
    drawn = [{k: rng.choice(v) for k, v in sketch.decisions.items()} for _ in range(30)]
    for c in (sketch.default, *[c for c in drawn if sketch.valid(c)][:1]):
        sch = Schedule(func)
        sketch.apply(sch, c)
        for result in (*run(sch.func, args), compile_func(sch.func, target)(*args)):
            np.testing.assert_array_equal(result, expected, err_msg=str(c))


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=haswell"])
@pytest.mark.parametrize("root", ["maximum(c, b)", ""])
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("shared")])
def test_groups_that_share_vectors(name: str, root: str, machine: str, cheap_forks: None) -> None:
    """Choices whose lanes cross groups, on small whole numbers."""
    target = Target.parse(f"{machine} -threads=2")
    if not target.is_host or target.lanes(f32) < 8:
        pytest.skip("this machine has other vectors")
    func = lowered(grouped_text(CASES[name], root), bool(root))
    draw = np.random.default_rng(1)
    args = [draw.integers(-2, 3, b.shape).astype(np.float32) for b in func.params[:-1]]
    (expected,) = run(func, args)
    sketch, lanes = generate(func, target)[0], target.lanes(f32)
    choices = [
        dict(zip(sketch.decisions, c, strict=True)) for c in product(*sketch.decisions.values())
    ]
    features, groups = re.search(r"(\d+)\] (\d+) size", CASES[name]).groups()
    each = int(features) // int(groups)
    crossing = [c for c in choices if c["lanes"] > each and sketch.valid(c)]
    assert {c["lanes"] for c in crossing} == ({lanes} if each < lanes else set())
    for c in random.Random(name).sample(crossing, min(3, len(crossing))):
        sch = Schedule(func)
        sketch.apply(sch, c)
        got = compile_func(sch.func, target)(*args)
        np.testing.assert_array_equal(got, expected, err_msg=str(c))


@pytest.mark.parametrize("machine", ["emeraldrapids", "haswell"])
def test_lanes_take_the_inputs_of_their_groups_by_shuffles(machine: str) -> None:
    target = Target.parse(f"cpu -mcpu={machine} -threads=2")
    case = "f32[1,14,14,64] f32[3,3,4,64] f32[1,14,14,64] 16 size=3x3 pad=1_1x1_1"
    text = stage_text(parse(grouped_text(case, "")), target, "asm")
    loop = hottest_loop(text)
    assert loop is not None and loop.stack == 0, loop
    assert "gather" not in text
    shuffles = len(re.findall(r"\sv(?:shuf|perm)[a-z0-9]*ps\s", text))
    assert 0 < shuffles <= len(re.findall(r"\svfmadd\w+ps\s", text))


@pytest.mark.parametrize("groups", [16, 4])
def test_vectors_of_two_lanes_have_no_half(groups: int) -> None:
    case = f"f32[1,3,9,16] f32[1,3,{16 // groups},32] f32[1,3,7,32] {groups} size=1x3"
    func = lowered(grouped_text(case, "").replace("f32", "f64"), False)
    sketch = generate(func, Target.parse("cpu -mcpu=x86-64-v2 -threads=1"))[0]
    assert sketch.name == "grouped@1"
    for values in product(*sketch.decisions.values()):
        choices = dict(zip(sketch.decisions, values, strict=True))
        if choices["chunks"] == 1 and sketch.valid(choices):
            sketch.apply(Schedule(func), choices)
    assert 1 not in sketch.decisions["lanes"]


@pytest.mark.parametrize("name", ["padded", "a vector and a half", "two vectors and a half"])
@pytest.mark.parametrize("machine", ["emeraldrapids", "haswell"])
def test_defaults_do_not_spill(machine: str, name: str) -> None:
    """The products of a group are summed in registers."""
    target = Target.parse(f"cpu -mcpu={machine} -threads=2")
    loop = hottest_loop(stage_text(parse(grouped_text(CASES[name])), target, "asm"))
    assert loop is not None and loop.stack == 0 and loop.fmas >= 4, loop
