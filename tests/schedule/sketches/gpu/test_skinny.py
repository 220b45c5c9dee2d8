"""Products with few rows or columns on a GPU: one launch, right for odd extents, wide loads."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat, compile_func
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.visit import equal
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.sketches.gpu.products.skinny import find_skinny
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

SIMULATED = Target.parse("cuda-sim -arch=sm_80")
NAME = "gpu_skinny@2"


def dot(m: int, n: int, k: int, dtype: str, turned: bool = False) -> str:
    weights, axis = (f"{n},{k}", 1) if turned else (f"{k},{n}", 0)
    return f"""
        x = {dtype}[{m},{k}] parameter(0)
        w = {dtype}[{weights}] parameter(1)
        ROOT c = {dtype}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}},
            rhs_contracting_dims={{{axis}}}"""


HEADS = """
    x = f32[3,1,72] parameter(0)
    w = f32[3,72,40] parameter(1)
    b = f32[40] parameter(2)
    c = f32[3,1,40] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0},
        lhs_contracting_dims={2}, rhs_contracting_dims={1}
    bb = f32[3,1,40] broadcast(b), dimensions={2}
    s = f32[3,1,40] add(c, bb)
    r = f32[3,1,4,10] reshape(s)
    ROOT t = f32[3,4,1,10] transpose(r), dimensions={0,2,1,3}"""

BODIES = {
    "one row": dot(1, 64, 192, "f32"),
    "one row turned": dot(1, 64, 192, "f32", turned=True),
    "odd": dot(3, 37, 51, "f32"),
    "odd turned": dot(15, 33, 129, "f32", turned=True),
    "bf16": dot(8, 192, 64, "bf16"),
    "bf16 turned": dot(2, 192, 1000, "bf16", turned=True),
    "f16": dot(5, 1000, 100, "f16"),
    "one column": dot(70, 1, 36, "f32"),
    "single rows": dot(64, 10, 1024, "f32"),
    "heads": HEADS,
}


def group(body: str) -> Func:
    module = optimize(parse(f"HloModule m\nENTRY main {{{body}}}"))
    (found,) = fuse(module.entry, ("strided",)).groups
    return lower_group(found.computation, "main")


def sketch_of(func: Func, target: Target = SIMULATED) -> Sketch:
    return next(s for s in generate(func, target) if s.name == NAME)


def scheduled(func: Func, sketch: Sketch, choices: dict[str, Any]) -> Schedule:
    sch = Schedule(func)
    sketch.apply(sch, choices)
    return sch


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    buffers = func.params[: len(func.params) - func.outputs]
    return [rng.integers(-3, 4, b.shape).astype(to_numpy(b.dtype)) for b in buffers]


@pytest.mark.parametrize("name", BODIES)
def test_simulated_threads_compute_the_same(name: str) -> None:
    func = group(BODIES[name])
    sketch, args = sketch_of(func), inputs(func)
    (want,) = run(func, args)
    drawn = random.Random(name).choice([*sketch.points()])
    for choices in (sketch.default, drawn):
        sch = scheduled(func, sketch, dict(choices))
        got = compile_func(sch.func, SIMULATED)(*args)
        np.testing.assert_array_equal(np.asarray(got), want, err_msg=str(choices))
    again = Trace.from_json(json.loads(json.dumps(sch.trace.to_json()))).replay(func)
    assert equal(again.func, sch.func)


@pytest.mark.parametrize("seed", ["1", "2"])
@pytest.mark.parametrize(("rows", "dtype", "turned"), [(1, "f32", False), (3, "bf16", True)])
def test_blocks_that_share_the_depth_are_one_launch(
    rows: int, dtype: str, turned: bool, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
    func = group(dot(rows, 37, 500, dtype, turned))
    sketch, args = sketch_of(func), inputs(func)
    points = [p for p in sketch.points() if int(p["blocks"]) == 4]
    choices = random.Random(seed).choice(points)
    flat = lower(scheduled(func, sketch, dict(choices)).func, SIMULATED)
    (launch,) = launches(flat)
    assert launch.grid[1] == 4
    got = Kernel(compile_flat(flat, SIMULATED))(*(x.ravel() for x in args))
    np.testing.assert_array_equal(np.asarray(got).reshape(rows, 37), run(func, args)[0])


def test_blocks_that_share_the_depth_have_more_than_one_column() -> None:
    sketch = sketch_of(group(dot(4, 32, 192, "f32")))
    shared = {"split": 16, "deep": 2, "lanes": 4, "unroll": 1, "blocks": 2}
    assert sketch.valid({**sketch.default, **shared, "near": 1, "across": 2})
    assert not sketch.valid({**sketch.default, **shared, "near": 1, "across": 1})


def test_a_deep_product_with_few_results_is_shared_by_blocks() -> None:
    target = Target.parse("cuda -arch=sm_90")
    assert int(sketch_of(group(dot(1, 768, 3072, "f32")), target).default["blocks"]) > 1
    assert int(sketch_of(group(dot(1, 3072, 768, "f32")), target).default["blocks"]) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_tensor_cores_take_from_half_of_their_rows(turned: bool) -> None:
    func = group(dot(9, 100, 130, "bf16", turned))
    names = [s.name for s in generate(func, SIMULATED)]
    assert {"gpu_mma@1", NAME} <= {*names[:2]}
    assert "gpu_simt@1" not in names
    assert "gpu_mma@1" not in [s.name for s in generate(group(dot(4, 99, 96, "bf16")), SIMULATED)]
    sketch = next(s for s in generate(func, SIMULATED) if s.name == "gpu_mma@1")
    args = inputs(func)
    got = compile_func(scheduled(func, sketch, dict(sketch.default)).func, SIMULATED)(*args)
    np.testing.assert_array_equal(np.asarray(got), run(func, args)[0])


def test_a_convolution_with_few_channels_is_none() -> None:
    image = """
        x = f32[1,16,16,8] parameter(0)
        w = f32[3,3,8,3] parameter(1)
        ROOT c = f32[1,14,14,3] convolution(x, w), window={size=3x3},
            dim_labels=b01f_01io->b01f"""
    assert find_skinny(Schedule(group(image))) is None


def test_it_is_the_default_schedule_of_long_and_short_sides() -> None:
    assert generate(group(BODIES["one row"]), SIMULATED)[0].name == NAME
    others = [(64, 64, 64), (4, 16, 64), (4, 64, 16), (0, 64, 64), (64, 0, 64)]
    for body in (dot(*sizes, "f32") for sizes in others):
        assert find_skinny(Schedule(group(body))) is None


def test_which_side_is_read_along_memory() -> None:
    found = {name: find_skinny(Schedule(group(body))) for name, body in BODIES.items()}
    turned = {name: s.turned for name, s in found.items() if s is not None}
    assert turned["one row"]
    assert turned["odd"]
    assert not turned["one row turned"]
    assert not turned["odd turned"]


@pytest.mark.parametrize(
    ("sizes", "dtype", "turned", "arch"),
    [
        ((1, 3072, 768), "f32", False, "sm_80"),
        ((8, 3072, 768), "f32", True, "sm_90a"),
        ((1, 768, 3072), "f32", False, "sm_100a"),
        ((1, 3072, 768), "bf16", True, "sm_80"),
        ((1, 768, 3072), "bf16", False, "sm_90a"),
    ],
)
def test_loads_are_wide_and_sums_are_shuffled(
    sizes: tuple[int, int, int], dtype: str, turned: bool, arch: str
) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    func = group(dot(*sizes, dtype, turned))
    sketch = sketch_of(func, target)
    sch = scheduled(func, sketch, dict(sketch.default))
    text = nvptx.compile(emit(lower(sch.func, target), target), target)
    assert text.count(".entry") == 1
    loads = re.findall(r"ld\.global\.nc(\S*)", text)
    assert loads
    assert all(".v" in x for x in loads), "no single elements"
    wide = (".v4.b32", ".v8.b32", ".v2.b64", ".v4.b64")
    assert sum(x in wide for x in loads) >= 4, "of the weights"
    assert "shfl.sync.bfly" in text
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    (usage,) = ptxas.assemble(text, arch).kernels.values()
    assert usage.spill_loads == usage.spill_stores == usage.stack == 0
