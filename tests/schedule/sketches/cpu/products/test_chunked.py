"""Gradients of weights in chunks of their terms: equal results, and where they are the default."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.anchors import PLANES
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.fuse.runs import SCATTERED
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.products import chunked
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo.group import lower_group

WIDE = Target.parse("cpu -mcpu=skylake-avx512 -threads=2")


def gradient(
    images: int, size: int, inputs: int, outputs: int, taps: int, pad: int = 0, kind: str = "f32"
) -> str:
    """Return the gradient of a convolution's weights, from NHWC images, stored as OIHW."""
    out = size + 2 * pad - taps + 1
    x, g = f"{images},{size},{size},{inputs}", f"{images},{out},{out},{outputs}"
    low = f" pad={pad}_{pad}x{pad}_{pad}" if pad else ""
    return (
        f"HloModule m\nENTRY main {{\n  x = {kind}[{x}] parameter(0)\n"
        f"  g = {kind}[{g}] parameter(1)\n"
        f"  a = {kind}[{inputs},{size},{size},{images}] transpose(x), dimensions={{3,1,2,0}}\n"
        f"  b = {kind}[{out},{out},{images},{outputs}] transpose(g), dimensions={{1,2,0,3}}\n"
        f"  c = {kind}[{inputs},{taps},{taps},{outputs}] convolution(a, b), "
        f"window={{size={out}x{out}{low}}}, dim_labels=b01f_01io->b01f\n"
        f"  ROOT r = {kind}[{outputs},{inputs},{taps},{taps}] transpose(c), "
        "dimensions={3,0,1,2}\n}\n"
    )


def lowered(text: str) -> Func:
    (group,) = fuse(parse(text).entry, kinds=(PLANES, SCATTERED)).groups
    return lower_group(group.computation, group.name)


CASES = {
    "images": (4, 12, 16, 32, 3, 0, "f32"),
    "padded": (2, 9, 13, 37, 3, 1, "f32"),
    "pointwise": (3, 8, 21, 48, 1, 0, "f32"),
    "one image": (1, 14, 7, 17, 3, 1, "f32"),
    "doubles": (3, 8, 9, 20, 2, 0, "f64"),
}


@pytest.mark.parametrize("name", CASES)
def test_choices_compute_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, cheap_forks: None
) -> None:
    """The default and some choices, as code, on small whole numbers."""
    monkeypatch.setattr(chunked, "BEHIND", math.inf)
    target = replace(Target.parse("cpu -threads=2"), l2=1 << 10)
    func = lowered(gradient(*CASES[name]))
    draw = np.random.default_rng(1)
    args = [draw.integers(-9, 10, b.shape).astype(to_numpy(b.dtype)) for b in func.params[:-1]]
    (expected,) = run(func, args)
    (sketch,) = (s for s in generate(func, target) if s.name == "chunked@1")
    choices = [
        dict(zip(sketch.decisions, c, strict=True)) for c in product(*sketch.decisions.values())
    ]
    valid = [c for c in choices if sketch.valid(c)]
    for c in (sketch.default, *random.Random(name).sample(valid, 3)):
        sch = Schedule(func)
        sketch.apply(sch, c)
        got = compile_func(sch.func, target)(*args)
        np.testing.assert_array_equal(got, expected, err_msg=str(c))


def test_operands_beyond_l2_are_taken_in_chunks() -> None:
    small, large = gradient(1, 10, 32, 32, 3), gradient(16, 30, 128, 128, 3)
    first = [next(iter(generate(lowered(text), WIDE))).name for text in (small, large)]
    assert first == ["tiling@2", "chunked@1"]


def test_sums_of_a_chunk_stay_in_registers() -> None:
    text = gradient(16, 30, 128, 128, 3)
    loop = hottest_loop(stage_text(parse(text), "cpu -mcpu=skylake-avx512 -threads=2", "asm"))
    assert loop is not None
    assert loop.stack == 0 and loop.fmas >= 20, loop
