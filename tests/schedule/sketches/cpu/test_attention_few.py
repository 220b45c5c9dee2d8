"""Attention of few queries: keys are read as they lie, and any choices compute the same.

Heads of many sizes and of as many keys as queries or fewer, one of each, none.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize
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
TEXT = """HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  q = f32[{h},{s},{d}] parameter(0)
  k = f32[{h},{t},{d}] parameter(1)
  v = f32[{h},{t},{w}] parameter(2)
  bias = f32[{t}] parameter(3)
  raw = f32[{h},{s},{t}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  biases = f32[{h},{s},{t}] broadcast(bias), dimensions={{2}}
  x = f32[{h},{s},{t}] add(raw, biases)
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{h},{s}] reduce(x, lowest), dimensions={{2}}, to_apply=max
  ms = f32[{h},{s},{t}] broadcast(m), dimensions={{0,1}}
  y = f32[{h},{s},{t}] subtract(x, ms)
  e = f32[{h},{s},{t}] exponential(y)
  n = f32[{h},{s}] reduce(e, zero), dimensions={{2}}, to_apply=sum
  ns = f32[{h},{s},{t}] broadcast(n), dimensions={{0,1}}
  p = f32[{h},{s},{t}] divide(e, ns)
  ROOT o = f32[{h},{s},{w}] dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""
Sizes = tuple[int, int, int, int, int]
SHAPES = [(2, 1, 33, 5, 17), (1, 1, 128, 40, 3), (2, 2, 192, 17, 24), (2, 7, 45, 20, 9)]


def text(h: int, s: int, t: int, d: int, w: int) -> str:
    return TEXT.format(h=h, s=s, t=t, d=d, w=w)


@cache
def attention(*sizes: int) -> Func:
    fusion = fuse(optimize(parse(text(*sizes))).entry, {"attention"})
    (group,) = fusion.groups
    assert group.kind == "attention"
    return lower_group(group.computation, "attention")


def arguments(shapes: list[tuple[int, ...]]) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(dims).astype(np.float32) for dims in shapes]


def assert_same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_every_choice_computes_the_same(shape: Sizes) -> None:
    func, rng = attention(*shape), random.Random(str(shape))
    args = arguments([p.shape for p in func.params[:-1]])
    bias = next(a for a in args if a.size == shape[2])
    bias[..., : shape[2] * 3 // 4] = -np.inf
    (expected,) = run(func, args)
    for spec in TARGETS:
        sketch = generate(func, Target.parse(spec))[0]
        assert sketch.name == "attention_few@1"
        points = [sketch.default]
        while len(points) < (3 if spec == TARGETS[0] else 2):
            choices = {n: rng.choice(values) for n, values in sketch.decisions.items()}
            if sketch.valid(choices):
                points.append(choices)
        for choices in points:
            sch = Schedule(func)
            sketch.apply(sch, choices)
            verify(sch.func)
            assert_same(run(sch.func, args)[0], expected)
            if spec == TARGETS[0]:
                assert_same(compile_func(sch.func, Target.parse("cpu -threads=2"))(*args), expected)


def narrow(dtype: str, *sizes: int) -> str:
    """Keys and values of another type, widened before they are multiplied."""
    made = text(*sizes)
    for name in "kv":
        (line,) = (x for x in made.splitlines() if x.startswith(f"  {name} = "))
        shape = line.split()[2]
        stored = line.replace("f32", dtype).replace(f"{name} =", f"{name}n =")
        made = made.replace(line, f"{stored}\n  {name} = {shape} convert({name}n)")
    return made


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        *((dtype, (2, 1, 130, 33, 40)) for dtype in ("bf16", "f16", "s8")),
        *((dtype, (3, 5, 64, 64, 7)) for dtype in ("bf16", "f16")),
        *((dtype, (1, 16, 31, 8, 16)) for dtype in ("f16", "s8")),
    ],
)
def test_narrow_keys_and_values_are_widened_as_they_are_read(dtype: str, sizes: Sizes) -> None:
    module = parse(narrow(dtype, *sizes))
    (group,) = fuse(optimize(module).entry, {"attention"}).groups
    assert group.kind == "attention"
    given = random_arguments(module.entry, seed=5)
    expected = evaluate_computation(module.entry, given)
    assert_same(nw.build(module, target="cpu -threads=2")(*given), expected)


@pytest.mark.parametrize(
    ("sizes", "keys"), [((32, 1, 2048, 128, 128), 1), ((12, 1, 1024, 64, 64), 2)]
)
def test_keys_and_values_are_read_in_their_order(sizes: Sizes, keys: int) -> None:
    default = generate(attention(*sizes), Target.parse("cpu -mcpu=znver4"))[0].default
    assert (default["keys"], int(default["value_vectors"]) * 16) == (keys, sizes[-1])


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 64, 64, 64),
        (2, 1, 1500, 80, 96),
        (1, 3, 100, 32, 256),
        (4, 16, 65, 33, 8),
        (2, 1, 1, 7, 9),
        (2, 1, 2, 1, 2),
        (3, 2, 5, 16, 1),
        (0, 1, 16, 8, 8),
        (2, 1, 16, 8, 0),
        (2, 24, 50, 80, 80),
        (1, 40, 12, 256, 256),
        (2, 17, 33, 96, 33),
        (1, 20, 1, 1, 1),
    ],
    ids=lambda s: "x".join(map(str, s)),
)
def test_built_code_gives_what_the_formula_gives(sizes: Sizes) -> None:
    module = parse(text(*sizes))
    exe = nw.build(module, target="cpu -threads=2")
    for bad in ("", "hidden", "all hidden", "nan", "inf"):
        q, k, v, bias = args = arguments([p.array.dims for p in module.entry.parameters])
        if "hidden" in bad:
            bias[: k.shape[1] * 3 // 4 if bad == "hidden" else None] = -np.inf
        if bad == "nan" and q.size:
            q[0, 0, 0] = np.nan
        if bad == "inf" and v.size:
            v[0, 0, 0] = np.inf
        with np.errstate(all="ignore"):
            expected = evaluate_computation(module.entry, args)
        assert_same(exe(*args), expected)
