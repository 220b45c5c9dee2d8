"""Rows in tiles: every choice computes the same, and which groups the sketch takes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.build import PreparedModule
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.plan.groups import fuse_module
from nestwright.ir.arrays import Array
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

WIDE = "cpu -mcpu=skylake-avx512"
COMBINE = """
add { a = T[] parameter(0)  b = T[] parameter(1)  ROOT c = T[] add(a, b) }
max { a = T[] parameter(0)  b = T[] parameter(1)  ROOT c = T[] maximum(a, b) }
"""
CELL = """
  v = T[K] parameter(1)
  d = T[N] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""
LENGTH = """
  q = T[N,K] multiply(x, x)
  zero = T[] constant(0)
  s = T[N] reduce(q, zero), dimensions={1}, to_apply=add
"""
BODIES = {
    "product": "v = T[K] parameter(1)\nROOT d = T[N] dot(x, v), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "cell": f"{CELL} b = T[N] parameter(2)\ny = T[N] add(d, b)\nROOT t = T[N] tanh(y)",
    "length": f"{LENGTH} ROOT l = T[N] sqrt(s)",
    "both": f"""{LENGTH} low = T[] constant(-100)
  m = T[N] reduce(x, low), dimensions={{1}}, to_apply=max
  r = T[N] divide(m, s)
  ROOT t = (T[N], T[N]) tuple(s, r)""",
    "sum": "zero = T[] constant(0)\nROOT s = T[N] reduce(x, zero), dimensions={1}, to_apply=add",
    "exponentials": """zero = T[] constant(0)
  e = T[N,K] exponential(x)
  ROOT s = T[N] reduce(e, zero), dimensions={1}, to_apply=add""",
    "softmax": f"""{LENGTH} b = T[N,K] broadcast(s), dimensions={{0}}
  ROOT y = T[N,K] divide(x, b)""",
    "weighted": """x2 = T[N,4,K] parameter(1)
  v = T[K] parameter(2)
  w = T[N,4,K] broadcast(v), dimensions={2}
  p = T[N,4,K] multiply(x2, w)
  zero = T[] constant(0)
  ROOT s = T[N] reduce(p, zero), dimensions={1,2}, to_apply=add""",
    "planes": """x2 = T[N,4,K] parameter(1)
  low = T[] constant(-100)
  ROOT m = T[N] reduce(x2, low), dimensions={1,2}, to_apply=max""",
}


def module_of(body: str, n: int, k: int, dtype: str = "f32") -> HloModule:
    text = f"HloModule m\n{COMBINE}\nENTRY main {{ x = T[N,K] parameter(0)\n{BODIES[body]} }}"
    words = {"N": str(n), "K": str(k), "T": dtype}
    return parse(re.sub(r"\b([NKT])\b", lambda m: words[m[0]], text))


def sketches(module: HloModule, spec: str) -> tuple[Sketch, ...]:
    (group,) = fuse_module(optimize(module)).distinct.values()
    return generate(lower_group(group.computation, "rows"), Target.parse(spec))


def arguments(module: HloModule) -> list[Array]:
    rng = np.random.default_rng(0)
    arrays = [p.array for p in module.entry.parameters]
    return [rng.standard_normal(a.dims).astype(to_numpy(BY_NAME[a.dtype.name])) for a in arrays]


@pytest.mark.parametrize(
    ("body", "n", "k", "dtype", "spec"),
    [
        ("product", 33, 16, "f32", "cpu -threads=1"),
        ("product", 20, 70, "f64", "cpu -threads=1"),
        ("cell", 37, 45, "f32", "cpu -threads=2"),
        ("cell", 9, 64, "bf16", "cpu -threads=1"),
        ("length", 10, 100, "f32", "cpu -mcpu=haswell"),
        ("both", 40, 33, "f32", "cpu -mcpu=x86-64-v2"),
        ("weighted", 16, 21, "f32", "cpu -mcpu=haswell"),
        ("planes", 18, 21, "s32", "cpu -threads=1"),
    ],
)
def test_every_choice_computes_the_same(body: str, n: int, k: int, dtype: str, spec: str) -> None:
    made = PreparedModule(module_of(body, n, k, dtype), spec)
    args = arguments(made.module)
    expected = evaluate(made.module, args)
    ((key, group),) = made.groups.distinct.items()
    func = lower_group(group.computation, group.name)
    first = generate(func, made.target)[0]
    assert first.name == "row_tiles@1"
    for choices in first.points():
        schedule = Schedule(func)
        first.apply(schedule, choices)
        got = made.build({key: schedule.trace})(*args)
        pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
        assert all(compare(i, a, b).ok for i, (a, b) in enumerate(pairs)), choices


@pytest.mark.parametrize(
    ("body", "n", "k", "first"),
    [
        ("product", 64, 64, "row_tiles@1"),
        ("product", 100000, 64, "row_tiles@1"),
        ("product", 4096, 4096, "rows@1"),  # a row is a stream of memory
        ("sum", 512, 256, "rows@1"),  # and of the second cache
        ("length", 512, 64, "row_tiles@1"),
        ("length", 3, 64, "rows@1"),
        ("length", 64, 4, "short_rows@1"),
        ("product", 2, 100000, "total@1"),
        ("softmax", 64, 64, "rows@1"),
        ("exponentials", 40, 40, "rows@1"),
    ],
)
def test_what_is_in_tiles_by_default(body: str, n: int, k: int, first: str) -> None:
    found = [s.name for s in sketches(module_of(body, n, k), f"{WIDE} -threads=2")]
    assert found[0] == first
    assert ("row_tiles@1" in found) == (min(n, k) > 4 and body not in ("softmax", "exponentials"))


def test_a_tile_of_a_cell_is_products_a_tree_and_a_vector_of_results() -> None:
    asm = stage_text(module_of("cell", 64, 64), WIDE, "asm")
    loop = hottest_loop(asm)
    assert loop is not None
    assert (loop.fmas, loop.loads, loop.stack) == (16, 17, 0)
    assert len(re.findall(r"\svshuf(?:ps|[fi]64x2|[fi]32x4)\s", asm)) == 30
    assert not re.search(r"\sv(?:add|mul|div|fmadd\d+)s[sd]\s", asm)


def test_rows_that_share_sets_of_the_cache_are_fewer() -> None:
    heights = [
        next(s for s in sketches(module_of("cell", 256, k), WIDE) if s.name == "row_tiles@1")
        for k in (1024, 1040)
    ]
    assert [s.default["rows"] for s in heights] == [8, 16]


def test_no_rows_are_not_in_tiles() -> None:
    text = f"""HloModule m
{COMBINE}
ENTRY main {{
  x = T[4,1,20,8] parameter(0)
  zero = T[] constant(0)
  ROOT s = T[2,0,10,1] reduce-window(x, zero), window={{size=3x4x2x8 stride=1x1x2x1}}, to_apply=max
}}""".replace("T[", "f64[")
    assert "row_tiles@1" not in [s.name for s in sketches(parse(text), WIDE)]
