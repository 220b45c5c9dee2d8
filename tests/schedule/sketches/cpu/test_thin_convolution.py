"""Convolutions of few features: equal results, vectors along channels, where tiles are better."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo.group import lower_group

NAME = "thin_convolution@1"
WIDE = "cpu -mcpu=skylake-avx512 -threads=2"

CASES = {
    "planes": ("f32", "1,9,13,16", "3,3,16,3", "1,9,13,3", "size=3x3 pad=1_1x1_1", "planes"),
    "pixels": ("f32", "2,6,9,32", "3,3,32,3", "2,6,9,3", "size=3x3 pad=1_1x1_1", "pixels"),
    "no bias": ("f32", "1,6,9,16", "5,1,16,5", "1,2,9,5", "size=5x1", ""),
    "taps beside": ("f32", "1,7,11,12", "3,3,12,2", "1,7,11,2", "size=3x3 pad=1_1x1_1", "pixels"),
    "two": ("f32", "1,7,11,8", "5,4,8,2", "1,7,10,2", "size=5x4 pad=2_2x1_1", "planes"),
    "apart": (
        *("f32", "1,9,12,16", "3,3,16,6", "1,5,6,6"),
        *("size=3x3 stride=2x2 pad=2_2x2_1 rhs_dilate=2x2", "planes"),
    ),
    "doubles": ("f64", "1,5,6,8", "3,3,8,3", "1,5,6,3", "size=3x3 pad=1_1x1_1", "planes"),
}


def thin_text(name: str) -> str:
    """Return a convolution as HLO, with a bias, and transposed to planes if the case says so."""
    kind, x, w, out, window, tail = CASES[name]
    n, h, width, features = out.split(",")
    conv = f"convolution(p0, p1), window={{{window}}}, dim_labels=b01f_01io->b01f"
    head = f"  p0 = {kind}[{x}] parameter(0)\n  p1 = {kind}[{w}] parameter(1)\n"
    if not tail:
        return f"HloModule m\nENTRY main {{\n{head}  ROOT c = {kind}[{out}] {conv}\n}}\n"
    planes = tail == "planes"
    last = (
        f"  ROOT r = {kind}[{n},{features},{h},{width}] transpose(s), dimensions={{0,3,1,2}}\n"
        if planes
        else ""
    )
    return (
        f"HloModule m\nENTRY main {{\n{head}  p2 = {kind}[{features}] parameter(2)\n"
        f"  c = {kind}[{out}] {conv}\n  b = {kind}[{out}] broadcast(p2), dimensions={{3}}\n"
        f"  {'' if planes else 'ROOT '}s = {kind}[{out}] add(c, b)\n{last}}}\n"
    )


def lowered(text: str) -> Func:
    (group,) = fuse(parse(text).entry).groups
    return lower_group(group.computation, group.name)


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=haswell"])
@pytest.mark.parametrize("name", CASES)
def test_choices_compute_the_same(name: str, machine: str, cheap_forks: None) -> None:
    """All kinds of choices, as code, on small whole numbers."""
    target = Target.parse(f"{machine} -threads=2")
    if not target.is_host:
        pytest.skip("this machine has other vectors")
    func = lowered(thin_text(name))
    draw = np.random.default_rng(1)
    args = [draw.integers(-9, 10, b.shape).astype(to_numpy(b.dtype)) for b in func.params[:-1]]
    (expected,) = run(func, args)
    for sketch in (s for s in generate(func, target) if s.name == NAME):
        points = product(*sketch.decisions.values())
        choices = [dict(zip(sketch.decisions, c, strict=True)) for c in points]
        valid = [c for c in choices if sketch.valid(c)]
        for c in (sketch.default, *random.Random(name).sample(valid, min(3, len(valid)))):
            sch = Schedule(func)
            sketch.apply(sch, c)
            got = compile_func(sch.func, target)(*args)
            np.testing.assert_array_equal(got, expected, err_msg=str(c))


def test_the_kernel_of_an_image_is_itself() -> None:
    """One buffer is both operands; the weights of a copy are along the terms."""
    text = (
        "HloModule m\nENTRY main {\n  p0 = f32[3,3,16,3] parameter(0)\n"
        "  t = f32[3,3,3,16] transpose(p0), dimensions={3,0,1,2}\n"
        "  ROOT c = f32[3,3,3,3] convolution(t, p0), window={size=3x3 pad=1_1x1_1},"
        " dim_labels=b01f_01io->b01f\n}\n"
    )
    x = np.random.default_rng(1).integers(-3, 4, (3, 3, 16, 3)).astype(np.float32)
    want = evaluate(parse(text), [x])
    np.testing.assert_array_equal(build(parse(text))(x), want)


@pytest.mark.parametrize("name", CASES)
def test_where_it_is_the_default(name: str) -> None:
    assert generate(lowered(thin_text(name)), Target.parse(WIDE))[0].name == NAME


def test_where_it_is_not() -> None:
    shapes = {
        "few terms": ("1,9,9,8", "1,3,8,3", "1,9,9,3", "size=1x3 pad=0_0x1_1"),
        "many features": ("1,9,9,16", "3,3,16,16", "1,9,9,16", "size=3x3 pad=1_1x1_1"),
        "few channels": ("1,9,9,3", "3,3,3,3", "1,9,9,3", "size=3x3 pad=1_1x1_1"),
    }
    for name, (x, w, out, window) in shapes.items():
        CASES[name] = ("f32", x, w, out, window, "pixels")
        found = [s.name for s in generate(lowered(thin_text(name)), Target.parse(WIDE))]
        del CASES[name]
        assert NAME not in found, name


def test_each_step_is_whole_vectors() -> None:
    text = (
        thin_text("planes").replace("9,13", "64,64").replace("16]", "64]").replace("16,3]", "64,3]")
    )
    loop = hottest_loop(stage_text(parse(text), WIDE, "asm"))
    assert loop is not None and (loop.fmas, loop.stack, loop.broadcasts) == (24, 0, 0), loop
