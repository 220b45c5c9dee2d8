"""Rows on GPUs: one row in one launch, rows kept in registers, NaN and infinity where they come."""

from __future__ import annotations

import itertools
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
from nestwright.ir.hlo.interp.evaluate import evaluate, evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func, Scope
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.te.from_hlo import lower_group

SIM = Target.parse("cuda-sim -arch=sm_80")
CUDA = Target.parse("cuda -arch=sm_90")

REDUCERS = """HloModule rows
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
"""
SOFTMAX = """ENTRY main {{
  x = {dtype}[{all}] parameter(0)
  wide = f32[{all}] convert(x)
  low = f32[] constant(-inf)
  top = f32[{lead}] reduce(wide, low), dimensions={{{axis}}}, to_apply=max
  tops = f32[{all}] broadcast(top), dimensions={{{kept}}}
  less = f32[{all}] subtract(wide, tops)
  e = f32[{all}] exponential(less)
  zero = f32[] constant(0)
  sum = f32[{lead}] reduce(e, zero), dimensions={{{axis}}}, to_apply=add
  sums = f32[{all}] broadcast(sum), dimensions={{{kept}}}
  ROOT out = f32[{all}] divide(e, sums)
}}"""
NORM = """ENTRY main {{
  x = {dtype}[{all}] parameter(0)
  wide = f32[{all}] convert(x)
  zero = f32[] constant(0)
  sum = f32[{lead}] reduce(wide, zero), dimensions={{{axis}}}, to_apply=add
  share = f32[] constant(0.0625)
  shares = f32[{lead}] broadcast(share), dimensions={{}}
  mean = f32[{lead}] multiply(sum, shares)
  means = f32[{all}] broadcast(mean), dimensions={{{kept}}}
  less = f32[{all}] subtract(wide, means)
  square = f32[{all}] multiply(less, less)
  total = f32[{lead}] reduce(square, zero), dimensions={{{axis}}}, to_apply=add
  one = f32[] constant(1)
  ones = f32[{lead}] broadcast(one), dimensions={{}}
  more = f32[{lead}] add(total, ones)
  root = f32[{lead}] rsqrt(more)
  roots = f32[{all}] broadcast(root), dimensions={{{kept}}}
  ROOT out = f32[{all}] multiply(less, roots)
}}"""


@cache
def group(text: str, lead: tuple[int, ...], columns: int, dtype: str = "f32") -> tuple[Func, Any]:
    shape = (*lead, columns)
    body = text.format(
        all=",".join(map(str, shape)),
        lead=",".join(map(str, lead)),
        axis=len(lead),
        kept=",".join(map(str, range(len(lead)))),
        dtype=dtype,
    )
    (found,) = fuse(optimize(parse(REDUCERS + body)).entry).groups
    return lower_group(found.computation, "main"), found.computation


def wanted(computation: Any, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(evaluate_computation(computation, [x])).reshape(x.shape)


def draw(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(1).integers(-8, 9, shape).astype(np.float32) / 4


@pytest.mark.parametrize("text", [SOFTMAX, NORM], ids=["softmax", "norm"])
@pytest.mark.parametrize(
    ("lead", "columns"), [((), 1), ((), 77), ((1,), 260), ((1, 1), 40), ((3,), 68), ((2, 3), 33)]
)
def test_few_rows_are_one_launch(
    text: str, lead: tuple[int, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    func, computation = group(text, lead, columns)
    scheduled = default_schedule(func, SIM).func
    assert len(launches(lower(scheduled, SIM))) == 1
    x = draw((*lead, columns))
    for seed in ("0", "3"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        found = compile_func(scheduled, SIM)(x)
        np.testing.assert_allclose(found, wanted(computation, x), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("columns", [60, 129])
@pytest.mark.parametrize("text", [SOFTMAX, NORM], ids=["softmax", "norm"])
def test_rows_in_registers_and_in_shared_memory_are_the_same(text: str, columns: int) -> None:
    """With NaN and infinities in some rows; a row's threads are some of a warp, or several."""
    func, computation = group(text, (6,), columns)
    sketch = next(s for s in generate(func, SIM) if s.name.startswith("gpu_rows"))
    x = draw((6, columns))
    x[1, 7], x[2, columns - 1], x[3, 0], x[4] = np.nan, np.inf, -np.inf, -np.inf
    right = wanted(computation, x)
    scopes: set[Scope] = set()
    for keep, threads, vector in itertools.product((1, 2), (8, 64), (1, 4)):
        choices = {"threads": threads, "rows": 2, "vector": vector, "keep": keep}
        if not sketch.valid(choices):
            assert columns == 129
            continue
        sch = Schedule(func)
        sketch.apply(sch, choices)
        if keep == 2:
            scopes |= {b.scope for b in sch.func.allocs}
        np.testing.assert_allclose(compile_func(sch.func, SIM)(x), right, rtol=2e-6, atol=1e-6)
    assert scopes == {Scope.REGISTER}


def test_narrow_rows_are_loaded_in_whole_vectors() -> None:
    """bf16 to f32: eight elements a load, and as many for every stage."""
    func, computation = group(SOFTMAX, (4,), 96, "bf16")
    sketch = next(s for s in generate(func, SIM) if s.name.startswith("gpu_rows"))
    sch = Schedule(func)
    sketch.apply(sch, {"threads": 8, "rows": 1, "vector": 8, "keep": 2})
    x = draw((4, 96)).astype(to_numpy(bf16))
    np.testing.assert_allclose(
        compile_func(sch.func, SIM)(x), wanted(computation, x), rtol=2e-6, atol=1e-6
    )


@pytest.mark.parametrize("text", [SOFTMAX, NORM], ids=["softmax", "norm"])
def test_many_rows_stay_in_registers_by_default(text: str) -> None:
    func, _ = group(text, (65536,), 1024)
    (launch,) = launches(lower(default_schedule(func, CUDA).func, CUDA))
    assert launch.shared_bytes == 0
    assert {b.scope for b in default_schedule(func, CUDA).func.allocs} == {Scope.REGISTER}


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_registers_hold_rows_without_local_memory(arch: str) -> None:
    """The most elements that a thread may hold, with a tail, and narrow ones by eights."""
    target = Target.parse(f"cuda -arch={arch}")
    for text, columns, dtype, threads, vector in (
        (SOFTMAX, 1000, "f32", 16, 4),
        (NORM, 2048, "bf16", 32, 8),
    ):
        func, _ = group(text, (4096,), columns, dtype)
        sketch = next(s for s in generate(func, target) if s.name.startswith("gpu_rows"))
        choices = {"threads": threads, "rows": 2, "vector": vector, "keep": 2}
        assert sketch.valid(choices)
        sch = Schedule(func)
        sketch.apply(sch, choices)
        code = nvptx.compile(emit(lower(sch.func, target), target), target)
        (usage,) = ptxas.assemble(code, target.cpu).kernels.values()
        assert usage.stack == usage.spill_stores == 0


def test_shifted_columns_are_not_kept_in_registers() -> None:
    """A stage that reads its neighbor's value needs memory that both threads see."""
    body = """ENTRY main {
  x = f32[4,64] parameter(0)
  low = f32[] constant(-inf)
  top = f32[4] reduce(x, low), dimensions={1}, to_apply=max
  tops = f32[4,64] broadcast(top), dimensions={0}
  less = f32[4,64] subtract(x, tops)
  back = f32[4,64] reverse(x), dimensions={1}
  ROOT out = f32[4,64] multiply(less, back)
}"""
    for found in fuse(optimize(parse(REDUCERS + body)).entry).groups:
        func = lower_group(found.computation, "main")
        for sketch in generate(func, SIM):
            if sketch.name.startswith("gpu_rows"):
                assert 2 not in sketch.decisions["keep"]


@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_one_long_row_is_reduced_by_several_blocks_in_one_launch(lead: tuple[int, ...]) -> None:
    """The places of vocabulary-sized maxima: no block of threads goes over all of it."""
    body = """ENTRY main {{
  x = f32[{all}] parameter(0)
  low = f32[] constant(-inf)
  ROOT top = f32[{lead}] reduce(x, low), dimensions={{{axis}}}, to_apply=max
}}"""
    func, computation = group(body, lead, 50257)
    (launch,) = launches(lower(default_schedule(func, CUDA).func, CUDA))
    assert launch.grid[0] >= 16
    func, computation = group(body, lead, 16411)
    x = np.random.default_rng(0).standard_normal((*lead, 16411)).astype(np.float32)
    sketch = next(s for s in generate(func, SIM) if s.name.startswith("gpu_total"))
    for place in (None, 16410):
        if place is not None:
            x[..., place] = np.nan
        sch = Schedule(func)
        sketch.apply(sch, sketch.default)
        found = np.asarray(compile_func(sch.func, SIM)(x)).reshape(lead)
        right = np.asarray(evaluate_computation(computation, [x])).reshape(lead)
        np.testing.assert_array_equal(found, right)


MEAN = """ENTRY main {
  x = f32[1,9001] parameter(0)
  zero = f32[] constant(0)
  sum = f32[1] reduce(x, zero), dimensions={1}, to_apply=add
  one = f32[] reshape(sum)
  share = f32[] constant(0.0625)
  ROOT mean = f32[] multiply(one, share)
}"""


def test_a_scalar_of_one_long_row_is_found_by_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of a norm of one row: what follows the sum has no axis of the row."""
    (found,) = fuse(optimize(parse(REDUCERS + MEAN)).entry).groups
    func = lower_group(found.computation, "main")
    scheduled = default_schedule(func, SIM).func
    (launch,) = launches(lower(scheduled, SIM))
    assert launch.grid[0] > 1
    x = draw((1, 9001))
    for seed in ("0", "3"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        right = np.asarray(evaluate_computation(found.computation, [x]))
        np.testing.assert_allclose(compile_func(scheduled, SIM)(x), right, rtol=1e-6)


PAIRS = """HloModule pairs
both { a = f32[] parameter(0)
  c = s32[] parameter(1)
  b = f32[] parameter(2)
  d = s32[] parameter(3)
  s = f32[] add(a, b)
  m = s32[] maximum(c, d)
  ROOT t = (f32[], s32[]) tuple(s, m)
}
twice { a = f32[] parameter(0)
  c = f32[] parameter(1)
  b = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, b)
  m = f32[] maximum(c, d)
  ROOT t = (f32[], f32[]) tuple(s, m)
}
ENTRY main {
  x = f32[3,301] parameter(0)
  zero = f32[] constant(0)
  low = f32[] constant(-inf)
  none = s32[] constant(-1000)
  n = s32[3,301] convert(x)
  p = (f32[3], s32[3]) reduce(x, n, zero, none), dimensions={1}, to_apply=both
  q = (f32[3], f32[3]) reduce(x, x, zero, low), dimensions={1}, to_apply=twice
  a = f32[3] get-tuple-element(p), index=0
  b = s32[3] get-tuple-element(p), index=1
  c = f32[3] get-tuple-element(q), index=0
  d = f32[3] get-tuple-element(q), index=1
  ROOT t = (f32[3], s32[3], f32[3], f32[3]) tuple(a, b, c, d)
}"""


def test_threads_share_reductions_that_run_beside_each_other() -> None:
    """Of the same elements as well: a sum of x beside a maximum of x."""
    x = np.random.default_rng(0).integers(-20, 20, (3, 301)).astype(np.float32)
    for found in fuse(optimize(parse(PAIRS)).entry).groups:
        func = lower_group(found.computation, "main")
        scheduled = default_schedule(func, SIM).func
        assert max(launch.threads for launch in launches(lower(scheduled, SIM))) > 3
    exe = nw.build(parse(PAIRS), target=SIM, cache=False)
    for a, b in zip(exe(x), (x.sum(1), x.max(1), x.sum(1), x.max(1)), strict=True):
        np.testing.assert_array_equal(a, b)


def long_softmax(lead: tuple[int, ...], columns: int, dtype: str = "f32") -> str:
    """Softmax of rows that one block of threads is too few for: three groups."""
    shape = (*lead, columns)
    return REDUCERS + SOFTMAX.format(
        all=",".join(map(str, shape)),
        lead=",".join(map(str, lead)),
        axis=len(lead),
        kept=",".join(map(str, range(len(lead)))),
        dtype=dtype,
    )


@pytest.mark.parametrize("lead", [(), (1,), (3,)])
def test_terms_of_long_rows_are_reduced_where_they_are_computed(
    lead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A maximum, exponentials and their sum, quotients: three launches, each of many blocks."""
    module = parse(long_softmax(lead, 16387 + len(lead)))
    groups = fuse(optimize(module).entry).groups
    funcs = [lower_group(g.computation, "main") for g in groups]
    made = [x for f in funcs for x in launches(lower(default_schedule(f, SIM).func, SIM))]
    assert len(made) == 3 and all(x.grid[0] > 4 for x in made)
    exe = nw.build(module, target=SIM, cache=False)
    x = np.random.default_rng(0).standard_normal((*lead, 16387 + len(lead))).astype(np.float32)
    for seed, special in (("0", 0.0), ("3", np.inf), ("5", np.nan)):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        x[..., 16385] = special
        with np.errstate(all="ignore"):
            right = np.asarray(evaluate(module, [x]))
        np.testing.assert_allclose(exe(x), right, rtol=1e-5)


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_terms_of_long_rows_take_no_local_memory(arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    for found in fuse(optimize(parse(long_softmax((4,), 20000))).entry).groups:
        func = lower_group(found.computation, "main")
        flat = lower(default_schedule(func, target).func, target)
        code = nvptx.compile(emit(flat, target), target)
        (usage,) = ptxas.assemble(code, target.cpu).kernels.values()
        assert usage.stack == usage.spill_stores == 0
