"""Products that are stored transposed: lanes along the rows of the result, one operand turned."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

TARGETS = (
    "cpu -mcpu=x86-64-v4 -threads=2",
    "cpu -mcpu=haswell -threads=1",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -threads=4",
)
TEXT = """HloModule planes
ENTRY main {{
  x = f32[{n},{y},{z},{k}] parameter(0)
  rows = f32[{m},{k}] reshape(x)
  w = f32[{k},{c}] parameter(1)
  b = f32[{c}] parameter(2)
  d = f32[{m},{c}] dot(rows, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  bs = f32[{m},{c}] broadcast(b), dimensions={{1}}
  s = f32[{m},{c}] add(d, bs)
  image = f32[{n},{y},{z},{c}] reshape(s)
  ROOT out = f32[{n},{c},{y},{z}] transpose(image), dimensions={{0,3,1,2}}
}}
"""
SHAPES = [(1, 5, 17, 7, 9), (2, 3, 16, 5, 21), (3, 1, 33, 4, 2), (1, 2, 40, 19, 1)]


@cache
def planes(n: int, y: int, z: int, k: int, c: int) -> Func:
    """A product of pixels and channels, stored plane by plane."""
    sizes = {"n": n, "y": y, "z": z, "k": k, "c": c, "m": n * y * z}
    fusion = fuse(parse(TEXT.format(**sizes)).entry)
    (group,) = (g for g in fusion.groups if g.kind == "dot")
    return lower_group(group.computation, "planes")


def turned(func: Func, spec: str) -> Any:
    return next(s for s in generate(func, Target.parse(spec)) if s.name == "turned@1")


def points(sketch: Any, rng: random.Random, count: int) -> list[dict[str, Any]]:
    """The default and random choices that are valid, if there are any."""
    domains = sketch.decisions.values()
    valid = np.concatenate([found for found, _ in sketch.many.admitted(sketch.decisions)])
    rows = rng.choices(valid, k=count) if valid.size else valid
    picked = np.unravel_index(rows, tuple(map(len, domains)))
    drawn = ([d[i] for d, i in zip(domains, at, strict=True)] for at in zip(*picked, strict=True))
    return [sketch.default, *(dict(zip(sketch.decisions, c, strict=True)) for c in drawn)]


def arguments(func: Func) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.integers(-4, 5, p.shape).astype(np.float32) for p in func.params[:-1]]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_every_choice_computes_the_same(shape: tuple[int, int, int, int, int]) -> None:
    func, rng = planes(*shape), random.Random(str(shape))
    args = arguments(func)
    (expected,) = run(func, args)
    for spec in TARGETS:
        sketch = turned(func, spec)
        for choices in points(sketch, rng, 3):
            sch = Schedule(func)
            sketch.apply(sch, choices)
            verify(sch.func)
            np.testing.assert_array_equal(run(sch.func, args)[0], expected)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_code_computes_the_same(shape: tuple[int, int, int, int, int]) -> None:
    func, target = planes(*shape), Target.parse("cpu -threads=2")
    args = arguments(func)
    (expected,) = run(func, args)
    for choices in points(turned(func, "cpu -threads=2"), random.Random(2), 4):
        sch = Schedule(func)
        turned(func, "cpu -threads=2").apply(sch, choices)
        np.testing.assert_array_equal(compile_func(sch.func, target)(*args), expected)


def test_few_terms_are_turned_and_many_are_not() -> None:
    """The first has 64 terms and planes 25 KiB apart, the second reads more than it stores."""
    few, many = planes(1, 80, 80, 64, 84), planes(1, 1, 128, 768, 64)
    assert generate(few, Target.parse(TARGETS[0]))[0].name == "turned@1"
    names = [s.name for s in generate(many, Target.parse(TARGETS[0]))]
    assert names.index("tiling@2") < names.index("turned@1")


def test_a_reduction_of_one_element_that_becomes_a_scalar_is_not_turned() -> None:
    text = """HloModule one
least { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] minimum(a, b) }
ENTRY main {
  x = f32[1,3,2,4] parameter(0)
  zero = f32[] constant(0)
  r = f32[1] reduce(x, zero), dimensions={1,2,3}, to_apply=least
  s = f32[] reshape(r)
  ROOT out = f32[] tanh(s)
}
"""
    (group,) = fuse(parse(text).entry).groups
    func = lower_group(group.computation, "one")
    assert "turned@1" not in [s.name for s in generate(func, Target.parse(TARGETS[0]))]
