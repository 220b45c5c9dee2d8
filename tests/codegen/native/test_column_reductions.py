"""Reductions of columns: every width in registers, ragged ends, and where the sketch declines."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.plan.groups import fuse_module
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

TARGETS = [t for t in map(Target.parse, ("cpu -threads=2", "cpu -mcpu=haswell")) if t.is_host]
OPS = {"add": (0, np.add), "maximum": ("-inf", np.maximum)}


def function(shape: tuple[int, ...], axis: int, by: str) -> Func:
    kept = ",".join(str(n) for k, n in enumerate(shape) if k != axis)
    dims = ",".join(map(str, shape))
    text = f"""HloModule m
    r {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] {by}(a, b) }}
    ENTRY main {{
      x = f32[{dims}] parameter(0)
      start = f32[] constant({OPS[by][0]})
      ROOT s = f32[{kept}] reduce(x, start), dimensions={{{axis}}}, to_apply=r
    }}"""
    (group,) = fuse_module(optimize(parse(text))).distinct.values()
    return lower_group(group.computation, "columns")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.spec)
@pytest.mark.parametrize("by", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((33, 1023), 0), ((5, 37, 261), 1), ((40, 2, 5, 200), 0), ((9, 70, 64), 1)]
)
def test_every_width(shape: tuple[int, ...], axis: int, by: str, target: Target) -> None:
    func = function(shape, axis, by)
    (sketch,) = [s for s in generate(func, target) if s.name.startswith("columns@")]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if by == "maximum":
        x.reshape(-1)[::1013] = np.nan
    expected = OPS[by][1].reduce(x, axis=axis)
    for choices in sketch.points():
        sch = Schedule(func)
        sketch.apply(sch, choices)
        found = compile_func(sch.func, target)(x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("shape", "axis"), [((4000, 48), 0), ((8, 9), 0), ((200, 300), 1)])
def test_few_results_and_rows_are_for_others(shape: tuple[int, ...], axis: int) -> None:
    found = generate(function(shape, axis, "maximum"), Target.parse("cpu -threads=2"))
    assert not any(s.name.startswith("columns@") for s in found)
