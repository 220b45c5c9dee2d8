"""Reductions of several values on GPUs: over all multiprocessors in one launch, ties and NaN as in
order, for rows, columns and a few long rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize_narrow
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.te.from_hlo import lower_group

SIM = Target.parse("cuda-sim -arch=sm_90")
CUDA = Target.parse("cuda -arch=sm_90")
TYPES = {"f32": np.float32, "bf16": to_numpy(bf16), "s32": np.int32, "u8": np.uint8}
LOWEST = {"s32": "-2147483648", "u8": "0"}

FIRST = """HloModule argmax
best {{
  a = {t}[] parameter(0)
  i = s32[] parameter(1)
  b = {t}[] parameter(2)
  j = s32[] parameter(3)
  beyond = pred[] compare(a, b), direction=GT
  nan = pred[] compare(a, a), direction=NE
  wins = pred[] or(beyond, nan)
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  first = pred[] or(wins, tie)
  v = {t}[] select(wins, a, b)
  k = s32[] select(first, i, j)
  ROOT r = ({t}[], s32[]) tuple(v, k)
}}
"""
LAST = FIRST.replace("compare(i, j), direction=LT", "compare(i, j), direction=GT")
TOTALS = """HloModule totals
best {{
  a = {t}[] parameter(0)
  i = s32[] parameter(1)
  b = {t}[] parameter(2)
  j = s32[] parameter(3)
  v = {t}[] maximum(a, b)
  k = s32[] add(i, j)
  ROOT r = ({t}[], s32[]) tuple(v, k)
}}
"""
MAIN = """ENTRY main {{
  x = {t}[{m},{n}] parameter(0)
  at = s32[{m},{n}] iota(), iota_dimension={axis}
  low = {t}[] constant({low})
  zero = s32[] constant(0)
  ROOT r = ({t}[{left}], s32[{left}]) reduce(x, at, low, zero), dimensions={{{axis}}}, to_apply=best
}}"""


def source(m: int, n: int, axis: int, dtype: str = "f32", rule: str = FIRST) -> str:
    low = LOWEST.get(dtype, "-inf")
    return (rule + MAIN).format(m=m, n=n, axis=axis, left=(m, n)[1 - axis], t=dtype, low=low)


@cache
def group(text: str) -> Func:
    (found,) = fuse(optimize_narrow(parse(text), None, SIM)[0].entry).groups
    return lower_group(found.computation, "main")


def draw(m: int, n: int, dtype: str, seed: int) -> Array:
    """Return few different numbers, and for floats zeros of both signs and some NaN."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, (m, n)).astype(TYPES[dtype])
    if dtype in LOWEST:
        return x
    x[rng.random((m, n)) < 0.1] *= -0.0
    x[rng.random((m, n)) < (0.0, 2 / n)[seed % 2]] = np.nan
    return x


def wanted(x: Array, axis: int, rule: str) -> tuple[Array, Array]:
    """Return what the rules say in order: of equals the first or the last, but the first NaN."""
    x = x.astype(np.float64)
    best, first = x.max(axis), x.argmax(axis)
    n = x.shape[axis]
    if rule is TOTALS:
        return best, np.full(best.shape, n * (n - 1) // 2)
    last = n - 1 - np.flip(x, axis).argmax(axis)
    return best, np.where(np.isnan(best), first, last) if rule is LAST else first


def check(
    func: Func, shape: tuple[int, int], axis: int, dtype: str, rule: str, monkeypatch: Any
) -> None:
    kernel = compile_func(func, SIM)
    for seed in (0, 5):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", str(seed))
        x = draw(*shape, dtype, seed)
        for found, right in zip(kernel(x), wanted(x, axis, rule), strict=True):
            np.testing.assert_array_equal(found.astype(np.float64), right)


LONG = [
    ("last", 4, 256, 2, (1, 8200), "f32", FIRST),
    ("last", 2, 512, 1, (2, 8195), "bf16", FIRST),
    ("launch", 4, 128, 4, (2, 8196), "s32", FIRST),
    ("in a cluster", 2, 256, 4, (1, 8200), "u8", FIRST),
    ("last", 3, 256, 4, (2, 8196), "f32", LAST),
    ("launch", 8, 128, 1, (1, 8193), "bf16", LAST),
    ("last", 4, 128, 4, (2, 8196), "f32", TOTALS),
]


@pytest.mark.parametrize(("join", "blocks", "threads", "vector", "shape", "dtype", "rule"), LONG)
def test_a_few_long_rows(
    join: str,
    blocks: int,
    threads: int,
    vector: int,
    shape: tuple[int, int],
    dtype: str,
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = source(*shape, 1, dtype, rule)
    sketch = next(s for s in generate(group(text), SIM) if s.name.startswith("gpu_total"))
    sch = Schedule(group(text))
    choices = {"blocks": blocks, "threads": threads, "vector": vector, "unroll": 2, "join": join}
    sketch.apply(sch, choices)
    assert len(launches(lower(sch.func, SIM))) == (2 if join == "launch" else 1)
    check(sch.func, shape, 1, dtype, rule, monkeypatch)


DEEP = [
    ("last", 1, 4, 4, (131, 40), "f32", FIRST),
    ("last", 2, 4, 1, (66, 33), "bf16", FIRST),
    ("launch", 2, 4, 2, (66, 34), "s32", LAST),
    ("in a cluster", 2, 4, 4, (66, 64), "f32", LAST),
]


@pytest.mark.parametrize(("join", "blocks", "share", "vector", "shape", "dtype", "rule"), DEEP)
def test_deep_columns(
    join: str,
    blocks: int,
    share: int,
    vector: int,
    shape: tuple[int, int],
    dtype: str,
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = source(*shape, 0, dtype, rule)
    sketch = next(s for s in generate(group(text), SIM) if s.name.startswith("gpu_columns"))
    choices = {"columns": 16, "vector": vector, "share": share, "blocks": blocks, "unroll": 2}
    choices |= {"join": join}
    assert sketch.valid(choices)
    sch = Schedule(group(text))
    sketch.apply(sch, choices)
    check(sch.func, shape, 0, dtype, rule, monkeypatch)


@pytest.mark.parametrize("rule", [FIRST, LAST], ids=["first", "last"])
@pytest.mark.parametrize(("shape", "vector"), [((5, 296), 4), ((3, 41), 1)])
def test_rows(
    shape: tuple[int, int], vector: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = source(*shape, 1, "f32", rule)
    sketch = next(s for s in generate(group(text), SIM) if s.name.startswith("gpu_rows"))
    sch = Schedule(group(text))
    sketch.apply(sch, {"threads": 32, "rows": 1, "vector": vector, "keep": 0})
    check(sch.func, shape, 1, "f32", rule, monkeypatch)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (0, 5), (5, 0)])
def test_unit_and_empty(shape: tuple[int, int], axis: int) -> None:
    text = source(*shape, axis)
    x = np.zeros(shape, np.float32)
    for found, right in zip(nw.build(parse(text), SIM)(x), evaluate(parse(text), [x]), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((1, 1000000), 1, "f32"),
        ((65536, 256), 0, "s32"),
    ],
)
def test_one_launch_of_all_multiprocessors(shape: tuple[int, int], axis: int, dtype: str) -> None:
    for rule in (FIRST, LAST):
        func = default_schedule(group(source(*shape, axis, dtype, rule)), CUDA).func
        (launch,) = launches(lower(func, CUDA))
        assert np.prod(launch.grid) >= 100


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_vectors_without_local_memory(arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    func = default_schedule(group(source(1, 1 << 20, 1, "bf16")), target).func
    code = nvptx.compile(emit(lower(func, target), target), target)
    assert "ld.global.nc.v4" in code
    (usage,) = ptxas.assemble(code, target.cpu).kernels.values()
    assert usage.stack == usage.spill_stores == 0
