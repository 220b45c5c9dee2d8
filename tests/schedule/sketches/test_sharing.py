"""Default schedules share work among threads where a second one is expected to gain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.codegen.plan.groups import fuse_module
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import For, Func, Kind
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.te.from_hlo import lower_group

REDUCERS = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
BODIES = {
    "negate": "x = f32[{n}] parameter(0) ROOT r = f32[{n}] negate(x)",
    "tanh": "x = f32[{n}] parameter(0) ROOT r = f32[{n}] tanh(x)",
    "total": "x = f32[{n}] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[] reduce(x, z), dimensions={{0}}, to_apply=sum",
    "rows": "x = f32[{n},64] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[{n}] reduce(x, z), dimensions={{1}}, to_apply=sum",
    "columns": "x = f32[64,{n}] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[{n}] reduce(x, z), dimensions={{0}}, to_apply=sum",
    "dot": "x = f32[{n},{n}] parameter(0) y = f32[{n},{n}] parameter(1) ROOT r = f32[{n},{n}] "
    "dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "sort": "x = f32[{n},64] parameter(0) ROOT r = f32[{n},64] sort(x), dimensions={{1}}, "
    "to_apply=less",
    "gather": "x = f32[1000] parameter(0) i = s32[{n},1] parameter(1) ROOT r = f32[{n}] "
    "gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, "
    "index_vector_dim=1, slice_sizes={{1}}",
}
LESS = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT p = pred[] compare(a, b), "
TARGET = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -threads=2")
# Sizes measured on two cores of a Zen 5 at which threads lose, and at which they gain.
SIZES = {
    "negate": (16384, 262144),
    "tanh": (2048, 16384),
    "total": (16384, 262144),
    "rows": (128, 16384),
    "columns": (256, 8192),
    "dot": (32, 96),
    "sort": (16, 512),
    "gather": (512, 32768),
}


def lowered(name: str, n: int) -> Func:
    body = BODIES[name].format(n=n).replace(") ROOT", ")\n ROOT")
    text = f"HloModule m\n{REDUCERS}\n{LESS}direction=LT, type=TOTALORDER }}\nENTRY e {{ {body} }}"
    (group,) = fuse_module(optimize(parse(text))).distinct.values()
    return lower_group(group.computation, "kernel")


def shared(func: Func, target: Target) -> bool:
    scheduled = default_schedule(func, target).func
    return any(isinstance(s, For) and s.kind is Kind.PARALLEL for s in walk(scheduled.body))


@pytest.mark.parametrize("name", SIZES)
def test_threads_share_what_takes_longer_than_waking_them(name: str) -> None:
    small, large = SIZES[name]
    assert not shared(lowered(name, small), TARGET)
    assert shared(lowered(name, large), TARGET)
    assert not shared(lowered(name, large), replace(TARGET, threads=1))


@pytest.mark.parametrize("name", SIZES)
def test_dear_forks_are_not_taken(name: str) -> None:
    dear = replace(TARGET, core=TARGET.core._replace(fork=1e9))
    assert not shared(lowered(name, SIZES[name][1]), dear)


@pytest.mark.parametrize("name", SIZES)
def test_the_tuner_may_try_either(name: str) -> None:
    sketch = generate(lowered(name, SIZES[name][1]), TARGET)[0]
    assert len(sketch.decisions.get("parallel", sketch.decisions.get("pieces", ()))) > 1
