"""GPU sketches: whatever is chosen, the schedule computes what its function did, thread by thread.

Every group of a set of small HLO programs is scheduled with defaults and with random choices, and
run by the interpreter and on the simulated GPU, whose threads come in random order. The operands
are small integers, so that sums in any order are exact; the sizes are odd on purpose.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.registry import lower
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import For, Func, Kind, Load, Scope
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal, exprs, walk, walk_expr
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.schedule.space.space import Choices, Sketch
from nestwright.te.from_hlo import lower_group

SIM = Target.parse("cuda-sim -arch=sm_80")
CUDA = Target.parse("cuda -arch=sm_90")

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
addh { a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
argmax { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k) }
before { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
"""

SOFTMAX = (
    "f32[14,ROW] p0 | m = f32[14] reduce(p0, f32[] constant(-inf)), dimensions={1}, to_apply=max | "
    "ms = f32[14,ROW] broadcast(m), dimensions={0} | d = f32[14,ROW] subtract(p0, ms) | "
    "e = f32[14,ROW] exponential(d) | "
    "s = f32[14] reduce(e, f32[] constant(0)), dimensions={1}, to_apply=add | "
    "ss = f32[14,ROW] broadcast(s), dimensions={0} | f32[14,ROW] divide(e, ss)"
)
LAYER_NORM = (
    "f32[1,6,84] p0 | n = f32[1,6] broadcast(f32[] constant(84)), dimensions={} | "
    "s = f32[1,6] reduce(p0, f32[] constant(0)), dimensions={2}, to_apply=add | "
    "m = f32[1,6] divide(s, n) | ms = f32[1,6,84] broadcast(m), dimensions={0,1} | "
    "d = f32[1,6,84] subtract(p0, ms) | q = f32[1,6,84] multiply(d, d) | "
    "v = f32[1,6] reduce(q, f32[] constant(0)), dimensions={2}, to_apply=add | "
    "w = f32[1,6] divide(v, n) | e = f32[1,6] broadcast(f32[] constant(0.001)), dimensions={} | "
    "we = f32[1,6] add(w, e) | r = f32[1,6] rsqrt(we) | "
    "rs = f32[1,6,84] broadcast(r), dimensions={0,1} | "
    "y = f32[1,6,84] multiply(d, rs) | (f32[1,6,84], f32[1,6], f32[1,6]) tuple(y, m, r)"
)

CASES = {
    "flat": "f32[5,7,9] p0 | f32[5,7,9] p1 | f32[5,7,9] subtract(p0, p1)",
    "flat even": "f32[6,64] p0 | f32[6,64] p1 | f32[6,64] multiply(p0, p1)",
    "broadcasts": "f32[11,28] p0 | f32[28] p1 | f32[11] p2 | "
    "b = f32[11,28] broadcast(p1), dimensions={1} | c = f32[11,28] broadcast(p2), dimensions={0} | "
    "m = f32[11,28] multiply(p0, b) | f32[11,28] add(m, c)",
    "mixed types": "bf16[7,48] p0 | s32[7,48] p1 | a = f32[7,48] convert(p0) | "
    "b = f32[7,48] convert(p1) | c = pred[7,48] compare(a, b), direction=LT | "
    "s = f32[7,48] select(c, a, b) | bf16[7,48] convert(s)",
    "scalar": "f32[] p0 | f32[] p1 | f32[] add(p0, p1)",
    "gather": "f32[19,24] p0 | s32[6] p1 | f32[6,24] gather(p0, p1), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,24}",
    "concatenate": "f32[5,9] p0 | f32[5,12] p1 | n = f32[5,9] negate(p0) | "
    "f32[5,21] concatenate(n, p1), dimensions={1}",
    "update": "f32[9,8] p0 | f32[9,8] p1 | f32[9,8] p2 | g = f32[9,8] multiply(p0, p1) | "
    "a = f32[9,8] add(g, p2) | b = f32[9,8] subtract(a, g) | "
    "(f32[9,8], f32[9,8], f32[9,8]) tuple(g, a, b)",
    "transpose": "f32[35,70] p0 | f32[70,35] p1 | t = f32[70,35] transpose(p0), dimensions={1,0} | "
    "f32[70,35] add(t, p1)",
    "transpose 4d": "f32[2,5,18,9] p0 | f32[2,18,9,5] transpose(p0), dimensions={0,2,3,1}",
    "heads": "bf16[2,9,3,16] p0 | bf16[2,3,16,9] transpose(p0), dimensions={0,2,3,1}",
    "softmax": SOFTMAX.replace("ROW", "37"),
    "softmax short": SOFTMAX.replace("ROW", "10"),
    "softmax even": SOFTMAX.replace("ROW", "256"),
    "layer norm": LAYER_NORM,
    "argmax": "f32[9,43] p0 | i = s32[9,43] iota(), iota_dimension=1 | (f32[9], s32[9]) "
    "reduce(p0, i, f32[] constant(-inf), s32[] constant(0)), dimensions={1}, to_apply=argmax",
    "sum rows": "bf16[9,132] p0 | bf16[9] reduce(p0, bf16[] constant(0)), dimensions={1}, "
    "to_apply=addh",
    "sum all": "f32[95,129] p0 | f32[] reduce(p0, f32[] constant(0)), dimensions={0,1}, "
    "to_apply=add",
    "mean of products": "f32[70,128] p0 | f32[70,128] p1 | f32[70,128] p2 | "
    "m = f32[70,128] multiply(p1, p2) | s = f32[70,128] add(p0, m) | "
    "r = f32[] reduce(s, f32[] constant(0)), dimensions={0,1}, to_apply=add | "
    "f32[] multiply(r, f32[] constant(0.25))",
    "few sums": "f32[3,8448] p0 | f32[3] reduce(p0, f32[] constant(0)), dimensions={1}, "
    "to_apply=add",
    "sum columns": "f32[141,52] p0 | f32[52] reduce(p0, f32[] constant(0)), dimensions={0}, "
    "to_apply=add",
    "mean pool": "f32[2,9,6,20] p0 | s = f32[2,20] reduce(p0, f32[] constant(0)), "
    "dimensions={1,2}, to_apply=add | c = f32[2,20] broadcast(f32[] constant(0.5)), dimensions={} "
    "| f32[2,20] multiply(s, c)",
    "max pool": "f32[1,9,8,21] p0 | f32[1,5,4,21] reduce-window(p0, f32[] constant(-inf)), "
    "window={size=1x3x2x1 stride=1x2x2x1 pad=0_0x1_1x0_0x0_0}, to_apply=max",
    "depthwise relu": "f32[1,7,6,20] p0 | f32[3,3,1,20] p1 | c = f32[1,4,3,20] "
    "convolution(p0, p1), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, "
    "feature_group_count=20 | z = f32[1,4,3,20] broadcast(f32[] constant(0)), dimensions={} | "
    "f32[1,4,3,20] maximum(c, z)",
    "matrix vector": "f32[31,45] p0 | f32[45] p1 | f32[31] dot(p0, p1), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "scatter": "f32[7,9] p0 | s32[4,1] p1 | f32[4,9] p2 | f32[7,9] scatter(p0, p1, p2),"
    " update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=add",
    "sort": "f32[6,11] p0 | f32[6,11] sort(p0), dimensions={1}, to_apply=before",
    "running sum": "f32[5,12] p0 | f32[5,12] reduce-window(p0, f32[] constant(0)), "
    "window={size=1x12 pad=0_0x11_0}, to_apply=add",
}


def module_text(case: str) -> str:
    """``shape parameter | .. | name = shape opcode(..) | .. | root`` as a module."""
    *parts, root = (part.strip() for part in case.split(" | "))
    rows = []
    for n, part in enumerate(parts):
        shape, _, name = part.partition(" ")
        rows.append(f"  {part}" if " = " in part else f"  {name} = {shape} parameter({n})")
    return "\n".join(["HloModule m", REDUCERS, "ENTRY main {", *rows, f"  ROOT root = {root}", "}"])


@cache
def groups(name: str) -> tuple[Func, ...]:
    module = optimize(parse(module_text(CASES[name])))
    return tuple(lower_group(g.computation, g.name, False) for g in fuse(module.entry).groups)


@cache
def known(func: Func) -> tuple[list[Array], list[Array]]:
    """Arguments of small whole numbers, and what the function makes of them."""
    rng = np.random.default_rng(3)
    inputs = func.params[: len(func.params) - func.outputs]
    args = [np.asarray(rng.integers(0, 5, b.shape) - 2).astype(to_numpy(b.dtype)) for b in inputs]
    return args, run(func, args)


def assert_same(results: Any, expected: list[Array]) -> None:
    found = results if isinstance(results, list | tuple) else [results]
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        tolerance = 1e-2 if want.dtype.itemsize < 4 else 2e-5
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def draws(sketch: Sketch, rng: random.Random, count: int) -> Iterator[Choices]:
    """Up to ``count`` different random choices that the sketch calls valid."""
    seen: set[tuple[object, ...]] = set()
    for _ in range(20 * count):
        choices = {name: rng.choice(values) for name, values in sketch.decisions.items()}
        if tuple(choices.values()) not in seen and sketch.valid(choices):
            seen.add(tuple(choices.values()))
            yield choices
        if len(seen) == count:
            return


def applied(func: Func, sketch: Sketch, choices: Choices) -> Schedule:
    sch = Schedule(func)
    sketch.apply(sch, choices)
    verify(sch.func)
    return sch


@pytest.mark.parametrize("name", CASES)
def test_choices_compute_the_same(name: str) -> None:
    rng = random.Random(f"{name} loops")
    for func in groups(name):
        args, expected = known(func)
        for sketch in generate(func, CUDA):
            for choices in (sketch.default, *draws(sketch, rng, 1)):
                sch = applied(func, sketch, choices)
                try:
                    assert_same(run(sch.func, args), expected)
                    plain = json.loads(json.dumps(sch.trace.to_json()))
                    assert equal(Trace.from_json(plain).replay(func).func, sch.func)
                except BaseException:
                    print(f"{sketch.name} {choices}\n{sch.trace.show()}\n{show(sch.func)}")
                    raise


@pytest.mark.parametrize("name", CASES)
def test_threads_compute_the_same(name: str) -> None:
    """On the simulated GPU, which finds races and reads of what is not there."""
    rng = random.Random(f"{name} code")
    for func in groups(name):
        args, expected = known(func)
        for n, sketch in enumerate(generate(func, SIM)):
            for choices in (*draws(sketch, rng, 1), *([sketch.default] if n == 0 else [])):
                sch = applied(func, sketch, choices)
                try:
                    assert_same(compile_func(sch.func, SIM)(*args), expected)
                except BaseException:
                    print(
                        f"{sketch.name} {choices}\n{show(sch.func)}\n{show(lower(sch.func, SIM))}"
                    )
                    raise


@pytest.mark.parametrize("name", CASES)
def test_generate_is_deterministic(name: str) -> None:
    for func in groups(name):
        first, again = generate(func, CUDA), generate(func, CUDA)
        for a, b in zip(first, again, strict=True):
            assert (a.name, a.kind, a.decisions) == (b.name, b.kind, b.decisions)
            assert a.default == b.default and a.valid(a.default)
            assert all(a.default[n] in values for n, values in a.decisions.items())
            assert a.default.keys() == a.decisions.keys()
            for choices in draws(a, random.Random(1), 3):
                assert b.valid(choices) and a.cost(choices) == b.cost(choices) > 0
        assert len({s.name for s in first}) == len(first)


@pytest.mark.parametrize("spec", ["cuda -arch=sm_75", "cuda -arch=sm_90a", "cuda-sim -arch=sm_86"])
def test_default_schedules_fit_every_gpu(spec: str) -> None:
    target = Target.parse(spec)
    for name in CASES:
        for func in groups(name):
            flat = lower(default_schedule(func, target).func, target)
            for launch in launches(flat):
                assert np.prod(launch.block) <= target.gpu.threads_per_block
                assert launch.shared_bytes <= target.gpu.shared_per_block


LAUNCHES = {
    "flat": 1,
    "broadcasts": 1,
    "update": 1,
    "transpose": 1,
    "softmax": 1,
    "softmax even": 1,
    "layer norm": 1,
    "argmax": 1,
    "sum rows": 1,
    "sum columns": 1,
    "mean pool": 1,
    "depthwise relu": 1,
    "sort": 1,
    "running sum": 1,
    "scatter": 2,
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_of_the_default_schedule(name: str) -> None:
    """A group is few launches, none of them of a single thread where there is more to share."""
    (func,) = groups(name)
    found = launches(lower(default_schedule(func, CUDA).func, CUDA))
    assert len(found) == LAUNCHES[name]
    assert all(np.prod(x.grid) * np.prod(x.block) > 1 for x in found)


def large_sum() -> Func:
    text = "f32[4096,4096] p0 | f32[4096,4096] p1 | f32[4096,4096] p2 | "
    text += "m = f32[4096,4096] multiply(p1, p2) | s = f32[4096,4096] add(p0, m) | "
    text += "f32[] reduce(s, f32[] constant(0)), dimensions={0,1}, to_apply=add"
    module = optimize(parse(module_text(text)))
    (group,) = fuse(module.entry).groups
    return lower_group(group.computation, "main")


def test_a_large_sum_is_one_pass_of_the_whole_gpu_that_its_last_block_ends() -> None:
    flat = lower(default_schedule(large_sum(), CUDA).func, CUDA)
    (only,) = launches(flat)
    assert only.grid[0] >= CUDA.gpu.multiprocessors
    vectors = [s for s in walk(flat.body) if isinstance(s, For) and s.kind is Kind.VECTOR]
    lanes = {s.extent.value for s in vectors if loads_of(s)}
    assert lanes == {4}


def test_deep_columns_are_one_launch_whose_last_blocks_combine_pieces() -> None:
    text = "f32[4096,64] p0 | f32[64] reduce(p0, f32[] constant(0)), dimensions={0}, to_apply=add"
    (group,) = fuse(optimize(parse(module_text(text))).entry).groups
    (only,) = launches(
        lower(default_schedule(lower_group(group.computation, "f"), CUDA).func, CUDA)
    )
    assert only.grid[0] > 1 and only.grid[1] > 1


def loads_of(s: For) -> list[Load]:
    return [
        x
        for part in walk(s.body)
        for e in exprs(part)
        for x in walk_expr(e)
        if isinstance(x, Load) and x.buffer.scope is Scope.GLOBAL
    ]


@pytest.mark.parametrize(("heads", "rows", "whole"), [(3, 7, {1, 7}), (3, 8, {1, 2, 4, 8})])
def test_rows_of_a_block_do_not_run_across_the_end_of_an_axis(
    heads: int, rows: int, whole: set[int]
) -> None:
    text = f"f32[{heads},{rows},64] a | m = f32[{heads},{rows}] reduce(a, f32[] constant(0)), "
    text += f"dimensions={{2}}, to_apply=add | b = f32[{heads},{rows},64] broadcast(m), "
    text += f"dimensions={{0,1}} | f32[{heads},{rows},64] subtract(a, b)"
    (group,) = fuse(optimize(parse(module_text(text))).entry).groups
    found = generate(lower_group(group.computation, "main"), Target.parse("cuda -arch=sm_75"))
    sketch = next(s for s in found if s.name.startswith("gpu_rows"))
    chosen = {int(c["rows"]) for c in sketch.points()}
    assert chosen and chosen <= whole
