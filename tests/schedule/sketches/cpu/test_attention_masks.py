"""Masks in attention: hidden parts of rows are not computed, and nothing differs.

Causal masks, windows, the last keys of each row, and lengths that are known only when it runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import nestwright as nw
import nestwright.te as te
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.targets.registry import lower
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import Computation
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Alloc, Const, Func
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.concurrent import check_loop_kinds
from nestwright.schedule.cursor import loops_of, nest
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

TARGET = "cpu -mcpu=x86-64-v4 -threads=2"
LOWEST = "-3.4028235e+38"
TEXT = """HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  q = f32[{h},{s},{d}] parameter(0)
  k = f32[{h},{d},{t}] parameter(1)
  v = f32[{h},{t},{w}] parameter(2)
  raw = f32[{h},{s},{t}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  i = s32[{s},{t}] iota(), iota_dimension=0
  j = s32[{s},{t}] iota(), iota_dimension=1
  by = s32[] constant({by})
  bys = s32[{s},{t}] broadcast(by), dimensions={{}}
  at = s32[{s},{t}] add(i, bys)
  {mask}
  shown = pred[{h},{s},{t}] broadcast(seen), dimensions={{1,2}}
  low = f32[] constant({fill})
  lows = f32[{h},{s},{t}] broadcast(low), dimensions={{}}
  x = f32[{h},{s},{t}] select(shown, {arms})
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
WINDOW = """before = pred[{s},{t}] compare(at, j), direction=GE
  wide = s32[] constant(20)
  wides = s32[{s},{t}] broadcast(wide), dimensions={{}}
  least = s32[{s},{t}] subtract(at, wides)
  near = pred[{s},{t}] compare(j, least), direction=GT
  """
MASKS = {
    "ge": ("seen = pred[{s},{t}] compare(at, j), direction=GE", "raw, lows"),
    "gt": ("seen = pred[{s},{t}] compare(at, j), direction=GT", "raw, lows"),
    "le": ("seen = pred[{s},{t}] compare(j, at), direction=LE", "raw, lows"),
    "hidden": ("seen = pred[{s},{t}] compare(at, j), direction=LT", "lows, raw"),
    "last": ("seen = pred[{s},{t}] compare(at, j), direction=LE", "raw, lows"),
    "window": (WINDOW + "seen = pred[{s},{t}] and(before, near)", "raw, lows"),
    "outside": (
        WINDOW + "inside = pred[{s},{t}] and(before, near)  seen = pred[{s},{t}] not(inside)",
        "lows, raw",
    ),
    "far": (
        WINDOW + "after = pred[{s},{t}] not(before)  far = pred[{s},{t}] not(near)"
        "  seen = pred[{s},{t}] or(after, far)",
        "lows, raw",
    ),
    "length": (
        "len = s32[] parameter(3)  lens = s32[{s},{t}] broadcast(len), dimensions={{}}"
        "  seen = pred[{s},{t}] compare(j, lens), direction=LE",
        "raw, lows",
    ),
}
SIZES = {"h": 2, "s": 13, "t": 192, "d": 4, "w": 5}


@cache
def computation(mask: str = "ge", fill: str = "-inf", by: int = 0, **sizes: int) -> Computation:
    of = {**SIZES, **sizes}
    compared, arms = MASKS[mask]
    text = TEXT.format(mask=compared.format(**of), arms=arms, fill=fill, by=by, **of)
    (group,) = fuse(optimize(parse(text)).entry, {"attention"}).groups
    return group.computation


@cache
def attention(mask: str = "ge", fill: str = "-inf", by: int = 0, **sizes: int) -> Func:
    return lower_group(computation(mask, fill, by, **sizes), "attention")


def arguments(func: Func, bad: bool) -> list[Array]:
    """Random inputs; if ``bad``, some rows have scores below any mask, infinite ones or NaN."""
    rng = np.random.default_rng(3)
    args: list[Array] = [
        rng.standard_normal(p.shape).astype(np.float32) if p.shape else np.array(70, np.int32)
        for p in func.params[:-1]
    ]
    q, k, *_ = (a for a in args if a.ndim)
    if bad:
        k[:, 0, :] = np.abs(k[:, 0, :]) + 1
        q[:, 3, :] = 0
        q[:, 3, 0] = -3e9  # less than -1e9 for all keys
        q[:, 4, :] = 0
        q[:, 4, 0] = -np.inf
        q[0, 5, 1] = np.nan
    return args


def points(func: Func, count: int) -> list[tuple[Any, dict[str, Any]]]:
    """Return the sketch with some of its choices that take keys in parts."""
    sketch, rng = generate(func, Target.parse(TARGET))[0], random.Random(func.name)
    assert sketch.name == "attention@2"
    found: list[tuple[Any, dict[str, Any]]] = []
    while len(found) < count:
        c = {n: rng.choice(values) for n, values in sketch.decisions.items()}
        if c["part"] and sketch.valid(c):
            found.append((sketch, c))
    return found


def result(func: Func, args: list[Array]) -> Array:
    (found,) = run(func, args)
    return found


def assert_same(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


CASES = [("ge", "-inf", 0), ("ge", "-1e9", 60), ("ge", LOWEST, -9)]
CASES += [("gt", "-inf", 64), ("le", "-1e9", 43), ("hidden", "-inf", -1)]
CASES += [("last", "-inf", 130), ("last", LOWEST, 190), ("length", LOWEST, 0)]
CASES += [("window", "-inf", 75), ("window", "-1e9", 205)]
CASES += [("outside", "-inf", 75), ("far", "-1e9", 140)]
INTERPRETED = ("ge", "-inf"), ("window", "-inf"), ("outside", "-inf")


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize(("mask", "fill", "by"), CASES)
def test_hidden_parts_are_left_out(mask: str, fill: str, by: int) -> None:
    func = attention(mask, fill, by)
    ((sketch, choices),) = points(func, 1)
    sch = Schedule(func)
    sketch.apply(sch, choices)
    verify(sch.func)
    assert any(step.name == "skip_masked" for step in sch.trace.steps)
    compiled = compile_func(sch.func, Target.parse("cpu -threads=2"))
    for bad in (False, True):
        args = arguments(func, bad)
        expected = evaluate_computation(computation(mask, fill, by), args)
        assert_same(compiled(*args), expected)
    if (mask, fill) in INTERPRETED:
        assert_same(result(sch.func, args), expected)
        again = Trace.from_json(sch.trace.to_json()).onto(Schedule(func))
        assert again.show() == sch.show()


@pytest.mark.parametrize("fill", ["-inf", "-1e9"])
def test_a_length_is_known_when_it_runs(fill: str) -> None:
    func = attention("length", fill)
    args = arguments(func, bad=False)
    sketch, choices = points(func, 1)[0]
    sch = Schedule(func)
    sketch.apply(sch, choices)
    run_it = compile_func(sch.func, Target.parse("cpu -threads=2"))
    for length in (-(2**31), -1, 0, 63, 64, 128, 190, 191, 192, 2**31 - 1):
        args[[a.ndim for a in args].index(0)] = np.array(length, np.int32)
        with np.errstate(all="ignore"):
            expected = evaluate_computation(computation("length", fill), args)
            if length in (0, 63, 191):
                assert_same(result(sch.func, args), expected)
        assert_same(run_it(*args), expected)


def test_scores_of_hidden_parts_are_never_read() -> None:
    """Keys and values that no row sees may hold anything, where a mask is -inf."""
    func = attention(s=16, t=256)
    args = arguments(func, False)
    expected = result(func, args)
    args[1][:, :, 64:] = np.nan
    args[2][:, 64:, :] = np.nan
    for sketch, choices in points(func, 2):
        sch = Schedule(func)
        sketch.apply(sch, {**choices, "part": 64})
        assert_same(result(sch.func, args), expected)


def test_a_mask_makes_it_cheaper() -> None:
    target = Target.parse(TARGET)
    causal = generate(attention(s=2048, t=2048, d=64, w=64), target)[0]
    open_ = generate(attention(s=2048, t=2048, d=64, w=64, by=4096), target)[0]
    assert causal.default["part"]
    assert causal.cost(causal.default) < 0.7 * open_.cost(open_.default)


def masked_softmax(shown: Callable[[Any, Any], Any], decomposed: bool = True) -> Schedule:
    """The sums of each row's exponentials up to the diagonal, in parts that share a loop."""
    a = te.placeholder((8, 32), name="A")
    k, n = te.reduce_axis(32, "k"), te.reduce_axis(32, "n")
    x = te.compute((8, 32), lambda i, j: te.select(shown(i, j), a[i, j], -np.inf), name="X")
    m = te.compute((8,), lambda i: te.max(x[i, k], axis=k), name="M")
    e = te.compute((8, 32), lambda i, j: te.exp(x[i, j] - m[i]), name="E")
    s = te.compute((8,), lambda i: te.sum(e[i, n], axis=n), name="S")
    sch = Schedule(te.create_func([a, s], name="softmax"))
    parts = {}
    for name in ("M", "S"):
        i, along = sch.get_loops(name)
        parts[name], along = sch.split(along, [None, 8])
        sch.reorder(parts[name], i, along)
        sch.rfactor(parts[name])
    sch.rescale("E")
    for name in parts if decomposed else ():
        sch.decompose_reduction(name, sch.get_loops(name)[-1])
    i, along = sch.get_loops("E")
    parts["E"], along = sch.split(along, [None, 8])
    sch.reorder(parts["E"], i, along)
    for name in ("E", "S"):
        sch.merge(parts["M"], parts[name])
    sch.compute_at("X", parts["M"])
    return sch


def test_an_online_softmax_of_shown_parts() -> None:
    sch = masked_softmax(lambda i, j: i + 4 >= j)
    before = sch.func
    sch.skip_masked("k_tile")
    verify(sch.func)
    assert "range(2)" in sch.show() and "range(2)" not in show(before)
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    x[1, :6] = -np.inf
    assert_same(result(sch.func, [x]), result(before, [x]))


@pytest.mark.parametrize(
    ("shown", "decomposed", "why"),
    [
        (lambda i, j: i + 4 >= j * j, True, "shows the first and the last keys of each row"),
        (lambda i, j: i + 4 >= j, False, "does not put results together part by part"),
    ],
    ids=["square", "whole"],
)
def test_what_skip_masked_refuses(
    shown: Callable[[Any, Any], Any], decomposed: bool, why: str
) -> None:
    sch = masked_softmax(shown, decomposed)
    before = sch.show()
    with pytest.raises(ScheduleError, match=why):
        sch.skip_masked("k_tile")
    with pytest.raises(ScheduleError, match="holds no exponentials of parts of rows"):
        sch.skip_masked("part")
    assert sch.show() == before


@pytest.mark.parametrize(
    "sizes",
    [{"d": 40}, {"w": 65}, {"w": 1}, *({n: size} for n in "hstd" for size in (0, 1))],
    ids=lambda sizes: " ".join(f"{n}{size}" for n, size in sizes.items()),
)
def test_odd_and_empty_sizes(sizes: dict[str, int]) -> None:
    of = {**SIZES, "s": 13, "t": 33, **sizes}
    compared, arms = MASKS["ge"]
    module = parse(TEXT.format(mask=compared.format(**of), arms=arms, fill="-inf", by=0, **of))
    rng = np.random.default_rng(5)
    args = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    expected = evaluate_computation(module.entry, args)
    found = nw.build(module, target="cpu -threads=2")(*args)
    assert_same(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize(
    ("mask", "s", "by"),
    [("ge", 8192, 0), ("ge", 8192, 1 << 20), ("window", 4096, 100), ("last", 4096, 100)],
    ids=["causal", "open", "window", "last"],
)
def test_scores_of_long_rows_never_go_to_memory(mask: str, s: int, by: int) -> None:
    """All that a kernel holds, of 2 x 8192 x 8192 scores of 512 MiB, is less than 8 MiB."""
    func = attention(mask, s=s, t=8192, d=64, w=64, by=by)
    target = Target.parse(TARGET)
    sketch = generate(func, target)[0]
    sch = Schedule(func)
    sketch.apply(sch, sketch.default)
    low = lower(sch.func, target)
    held = [x.buffer for x in walk(low.body) if isinstance(x, Alloc)]
    assert sum(b.shape[0] * b.dtype.bytes for b in held) < 8 << 20


def test_threads_of_a_gpu_are_known_to_be_apart_where_the_mask_ends_their_loop() -> None:
    func = attention("ge", s=64, t=96, d=16, w=12)
    sketch = generate(func, Target.parse("cuda-sim -arch=sm_80"))[0]
    assert sketch.name == "gpu_attention@1"
    parts = [c for c in sketch.points() if c["keys"] == 32]
    for choices in random.Random(1).sample(parts, 4):
        sch = Schedule(func)
        sketch.apply(sch, choices)
        assert check_loop_kinds(sch.func, nest(sch.func).blocks.values()) is None
        loops = loops_of(nest(sch.func).blocks["dot"])
        assert any(not isinstance(x.extent, Const) for x in loops)
