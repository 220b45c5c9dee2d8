"""Tiles over constants packed ahead, and inputs made inside the loops: the same results as before.

The sizes are odd on purpose, and operands are small whole numbers, exact in any order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.prepack import split_packs
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.prepare.freeze_parameters import freeze
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.sketches.cpu.nests.contraction import AHEAD
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Choices, Sketch
from nestwright.te.from_hlo import lower_group

HOST = Target.parse("cpu -threads=2")
MACHINES = (
    Target.parse("cpu -mcpu=x86-64-v4 -threads=2"),
    Target.parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -threads=4"),
)

CONV = "dim_labels=b01f_01io->b01f"
CASES = {
    "dot": (
        "f32[7,15]",
        "f32[15,43]",
        "f32[7,43]",
        "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "dot one row": (
        "f32[1,15]",
        "f32[15,43]",
        "f32[1,43]",
        "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "batched dot": (
        "f32[3,5,9]",
        "f32[3,9,22]",
        "f32[3,5,22]",
        "dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}",
    ),
    "conv": (
        "f32[1,4,5,2]",
        "f32[3,3,2,19]",
        "f32[1,4,5,19]",
        f"convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, {CONV}",
    ),
    "conv stride": (
        "f32[2,7,5,1]",
        "f32[3,3,1,6]",
        "f32[2,4,3,6]",
        f"convolution(x, w), window={{size=3x3 stride=2x2 pad=1_1x1_1}}, {CONV}",
    ),
    "depthwise": (
        "f32[1,5,4,11]",
        "f32[3,3,1,11]",
        "f32[1,5,4,11]",
        f"convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, {CONV}, feature_group_count=11",
    ),
}
PADDED = ("conv", "conv stride", "depthwise")


def group(case: str) -> Func:
    """The loops of the case's one group, its weights frozen."""
    x, w, out, root = CASES[case]
    module = parse(
        f"HloModule m\nENTRY e {{ x = {x} parameter(0)\n w = {w} parameter(1)\n"
        f" ROOT r = {out} {root} }}"
    )
    weight = np.arange(module.entry.parameters[1].array.size, dtype=np.float32)
    constant = weight.reshape(module.entry.parameters[1].array.dims)
    (found,) = fuse(optimize(freeze(module, {1: constant})).entry).groups
    return lower_group(found.computation, "f")


def known(func: Func) -> tuple[list[Array], list[Array]]:
    rng = np.random.default_rng(3)
    args = [rng.integers(-2, 3, b.shape).astype(np.float32) for b in func.params[: -func.outputs]]
    return args, run(func, args)


def draws(sketch: Sketch, count: int, **fixed: int) -> Iterator[Choices]:
    """Up to ``count`` random valid choices, some of them held."""
    rng = random.Random(f"{sorted(fixed)}")
    for _ in range(400):
        choices = {n: rng.choice(v) for n, v in sketch.decisions.items()} | fixed
        if sketch.valid(choices):
            yield choices
            count -= 1
        if not count:
            return


def check(case: str, **fixed: int) -> None:
    func = group(case)
    args, expected = known(func)
    for target in (*MACHINES, HOST):
        (sketch,) = (s for s in generate(func, target) if s.name.startswith("tiling@"))
        assert all(value in sketch.decisions[name] for name, value in fixed.items())
        chosen = list(draws(sketch, 1, **fixed))
        assert chosen
        for choices in chosen:
            sch = Schedule(func)
            sketch.apply(sch, choices)
            verify(sch.func)
            np.testing.assert_array_equal(run(sch.func, args)[0], expected[0])
            assert equal(Trace.from_json(sch.trace.to_json()).replay(func).func, sch.func)
            _, packs = split_packs(sch.func)
            if choices["pack"] == AHEAD:
                assert func.params[packs[0].index].name == f"p{(FROZEN.of(func) or (-1,))[0]}"
            if target is HOST:
                np.testing.assert_array_equal(compile_func(sch.func, HOST)(*args), expected[0])


@pytest.mark.parametrize("case", CASES)
def test_weights_packed_ahead(case: str, cheap_forks: None) -> None:
    check(case, pack=AHEAD)


@pytest.mark.parametrize("case", PADDED)
def test_padding_made_inside_the_loops(case: str, cheap_forks: None) -> None:
    check(case, inside=1)


@pytest.mark.parametrize("case", PADDED)
def test_both(case: str, cheap_forks: None) -> None:
    check(case, inside=1, pack=AHEAD)


def test_weights_that_another_block_reads_are_not_packed_ahead() -> None:
    text = """HloModule m
ENTRY e { x = f32[7,15] parameter(0)
 w = f32[15,43] parameter(1), frozen=true
 d = f32[7,43] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 n = f32[15,43] negate(w)
 ROOT t = (f32[7,43], f32[15,43]) tuple(d, n) }"""
    sketch = generate(lower_group(parse(text).entry, "f"), HOST)[0]
    assert AHEAD not in sketch.decisions["pack"]
    alone = text.replace("negate(w)", "broadcast(f32[] constant(0)), dimensions={}")
    sketch = generate(lower_group(parse(alone).entry, "f"), HOST)[0]
    assert sketch.default["pack"] == AHEAD
