"""Attention as one kernel: the online softmax as a primitive, and the sketch with any choices."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
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
  k = f32[{h},{d},{t}] parameter(1)
  v = f32[{h},{t},{w}] parameter(2)
  bias = f32[{s},{t}] parameter(3)
  raw = f32[{h},{s},{t}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  biases = f32[{h},{s},{t}] broadcast(bias), dimensions={{1,2}}
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
  o = f32[{h},{s},{w}] dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  {result}
}}
"""
PLAIN = "ROOT r = f32[{s},{h},{w}] transpose(o), dimensions={{1,0,2}}"
BATCHES = """of = f32[2,{half},{s},{w}] reshape(o)
  ROOT r = f32[2,{s},{half},{w}] transpose(of), dimensions={{0,2,1,3}}"""


@cache
def attention(h: int, s: int, t: int, d: int, w: int, result: str = PLAIN) -> Func:
    sizes = {"h": h, "s": s, "t": t, "d": d, "w": w, "half": h // 2}
    text = TEXT.format(result=result.format(**sizes), **sizes)
    fusion = fuse(optimize(parse(text)).entry, {"attention"})
    (group,) = fusion.groups
    assert group.kind == "attention"
    return lower_group(group.computation, "attention")


def arguments(func: Func, masked: bool = True) -> list[Array]:
    """Random inputs; some rows of the bias begin with -inf, one is wholly -inf."""
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(p.shape).astype(np.float32) for p in func.params[:-1]]
    bias = next(a for a, p in zip(args, func.params, strict=False) if a.ndim == 2)
    if masked:
        bias[1, : bias.shape[1] * 3 // 4] = -np.inf
        bias[2, :] = -np.inf
    return args


def result(func: Func, args: list[Array]) -> Array:
    (found,) = run(func, args)
    return found


def assert_same(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def softmax() -> Schedule:
    a = te.placeholder((3, 24), name="A")
    k, j = te.reduce_axis(24, "k"), te.reduce_axis(24, "j")
    m = te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="M")
    e = te.compute((3, 24), lambda i, t: te.exp(a[i, t] - m[i]), name="E")
    s = te.compute((3,), lambda i: te.sum(e[i, j], axis=j), name="S")
    return Schedule(te.create_func([a, s], name="softmax"))


def in_parts(sch: Schedule, *names: str, part: int = 8) -> None:
    for name in names:
        i, k = sch.get_loops(name)
        outer, inner = sch.split(k, [None, part])
        sch.reorder(outer, i, inner)
        sch.rfactor(outer)


def test_an_online_softmax_computes_the_same_also_of_infinities() -> None:
    sch = softmax()
    before = sch.func
    in_parts(sch, "M", "S")
    scale = sch.rescale("E")
    verify(sch.func)
    assert sch.block(scale).writes[0].buffer.shape == (3, 3)
    x = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32) * 20
    assert_same(result(sch.func, [x]), result(before, [x]))
    x[0, :8] = -np.inf
    x[1, 3] = np.inf
    x[2, :] = -np.inf
    found, expected = result(sch.func, [x]), result(before, [x])
    assert np.isfinite(found[0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    again = Trace.from_json(sch.trace.to_json()).onto(softmax())
    assert again.show() == sch.show()


@pytest.mark.parametrize(
    ("names", "block", "why"),
    [
        (("M", "S"), "S", "is not an exponential"),
        (("S",), "E", "is not the maximum of maxima over parts of the row"),
        (("M",), "E", "is not a sum over parts of the row"),
    ],
)
def test_what_rescale_refuses(names: tuple[str, ...], block: str, why: str) -> None:
    sch = softmax()
    in_parts(sch, *names)
    before = sch.show()
    with pytest.raises(ScheduleError, match=why):
        sch.rescale(block)
    assert sch.show() == before


def test_rescale_refuses_parts_of_two_lengths() -> None:
    sch = softmax()
    in_parts(sch, "M")
    in_parts(sch, "S", part=6)
    with pytest.raises(ScheduleError, match="is not a sum over parts of the row"):
        sch.rescale("E")


SHAPES = [(1, 9, 7, 5, 3), (2, 8, 33, 4, 17), (2, 11, 128, 3, 8), (1, 13, 192, 2, 5)]


CASES = [(s, PLAIN) for s in SHAPES] + [((6, 9, 7, 5, 3), BATCHES), ((4, 7, 128, 3, 8), BATCHES)]


@pytest.mark.parametrize(("shape", "result_of"), CASES)
def test_every_choice_computes_the_same(
    shape: tuple[int, int, int, int, int], result_of: str
) -> None:
    """Also where a result is stored by batches and heads, which are one axis of the products."""
    func, rng = attention(*shape, result_of), random.Random(str(shape))
    args = arguments(func)
    expected = result(func, args)
    for spec in TARGETS:
        sketch = generate(func, Target.parse(spec))[0]
        assert sketch.name == "attention@2"
        points = [sketch.default] if spec == TARGETS[0] else []
        while not points or points == [sketch.default]:
            choices = {n: rng.choice(values) for n, values in sketch.decisions.items()}
            if sketch.valid(choices):
                points.append(choices)
        for choices in points:
            sch = Schedule(func)
            sketch.apply(sch, choices)
            verify(sch.func)
            assert_same(result(sch.func, args), expected)


@pytest.mark.parametrize("shape", [(2, 10, 33, 6, 17), (2, 21, 256, 8, 24)], ids=["odd", "parts"])
def test_code_computes_the_same(shape: tuple[int, int, int, int, int]) -> None:
    func, target, rng = attention(*shape), Target.parse("cpu -threads=2"), random.Random(7)
    args = arguments(func)
    expected = result(func, args)
    sketch = generate(func, target)[0]
    for part in sketch.decisions["part"]:
        valid = [c for c in draws(sketch, rng) if c["part"] == part and sketch.valid(c)]
        sch = Schedule(func)
        sketch.apply(sch, valid[0])
        assert_same(compile_func(sch.func, target)(*args), expected)


def draws(sketch: Any, rng: random.Random) -> list[dict[str, Any]]:
    return [{n: rng.choice(v) for n, v in sketch.decisions.items()} for _ in range(2000)]


def test_long_rows_are_taken_in_parts_and_short_ones_whole() -> None:
    target = Target.parse(TARGETS[0])
    (long, *_), (short, *_) = (
        generate(attention(2, 256, t, 64, 64), target) for t in (1 << 14, 128)
    )
    assert long.default["part"] and not short.default["part"]
    assert long.valid(long.default) and short.valid(short.default)
