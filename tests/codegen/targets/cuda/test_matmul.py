"""Matrix products from the graph to GPU code: simulated, and as PTX that the assembler takes."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from nestwright.autotune.measure.reference import TF32
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.prepack import split_packs
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func, Scope
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.gpu.products.contraction import matmul_sketches
from nestwright.schedule.sketches.gpu.products.matmul import find_matmul
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

SIMULATED = Target.parse("cuda-sim -arch=sm_80 -tf32=1")


def group(body: str) -> Func:
    module = optimize(parse(f"HloModule m\nENTRY main {{{body}}}"))
    (found,) = (
        g for g in fuse(module.entry, ("strided",)).groups if g.kind in ("dot", "convolution")
    )
    return lower_group(found.computation, "main")


def dot(m: int, n: int, k: int, dtype: str, result: str = "") -> str:
    return f"""
        x = {dtype}[{m},{k}] parameter(0)
        w = {dtype}[{k},{n}] parameter(1)
        ROOT c = {result or dtype}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}},
            rhs_contracting_dims={{0}}"""


CONV = """
    x = {0}[2,{1},{1},{2}] parameter(0)
    w = {0}[3,3,{2},{3}] parameter(1)
    b = {0}[{3}] parameter(2)
    c = {0}[2,{1},{1},{3}] convolution(x, w), window={{size=3x3 pad=1_1x1_1}},
        dim_labels=b01f_01io->b01f
    bb = {0}[2,{1},{1},{3}] broadcast(b), dimensions={{3}}
    s = {0}[2,{1},{1},{3}] add(c, bb)
    z = {0}[] constant(0)
    zero = {0}[2,{1},{1},{3}] broadcast(z), dimensions={{}}
    ROOT r = {0}[2,{1},{1},{3}] maximum(s, zero)"""

NT = "rhs_contracting_dims={1}"

BODIES = {
    "f16": dot(70, 90, 100, "f16"),
    "f16 aligned": dot(128, 64, 96, "f16"),
    "bf16": dot(70, 88, 64, "bf16"),
    "tf32": dot(70, 88, 40, "f32"),
    "s8": dot(70, 88, 128, "s8", "s32"),
    "conv": CONV.format("f16", 7, 16, 40),
    "odd conv": CONV.format("f32", 5, 6, 21),
}


def sketch_of(func: Func, target: Target, name: str) -> Sketch:
    found = find_matmul(Schedule(func))
    assert found is not None
    return next(s for s in matmul_sketches(found, target) if s.name == name)


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    buffers = func.params[: len(func.params) - func.outputs]
    return [rng.integers(-3, 4, b.shape).astype(to_numpy(b.dtype)) for b in buffers]


@pytest.mark.parametrize(
    ("name", "core"),
    [*((n, "gpu_mma@1") for n in BODIES), *((n, "gpu_simt@1") for n in ("f16", "s8", "odd conv"))],
)
def test_simulated_threads_compute_the_same(name: str, core: str) -> None:
    func = group(BODIES[name])
    sketch = sketch_of(func, SIMULATED, core)
    args = inputs(func)
    (want,) = run(func, args)
    points = [p for p in sketch.points() if int(p["tile_m"]) * int(p["tile_n"]) <= 2048]
    drawn = random.Random(name).choice(points)
    whole = core == "gpu_mma@1" and name in ("f16", "s8", "conv")
    for choices in (sketch.default, drawn) if whole else (drawn,):
        sch = Schedule(func)
        sketch.apply(sch, choices)
        got = compile_func(sch.func, SIMULATED)(*args)
        np.testing.assert_array_equal(np.asarray(got), want, err_msg=str(choices))


@pytest.mark.parametrize(("name", "core"), [("f16", "gpu_mma@1"), ("odd conv", "gpu_simt@1")])
def test_the_last_block_of_a_tile_adds_the_parts_of_its_depth(name: str, core: str) -> None:
    func = group(BODIES[name])
    sketch, args = sketch_of(func, SIMULATED, core), inputs(func)
    small = {"tile_m": 32, "tile_n": 32, "warps_m": 1, "warps_n": 2, "rows": 4, "columns": 4}
    choices = {n: small.get(n, v) for n, v in sketch.default.items()}
    sch = Schedule(func)
    sketch.apply(sch, {**choices, "split": 2, "join": "last"})
    got = compile_func(sch.func, SIMULATED)(*args)
    np.testing.assert_array_equal(np.asarray(got), run(func, args)[0])
    (launch,) = launches(lower(sch.func, SIMULATED))
    assert launch.grid[1] == 2


@pytest.mark.parametrize("turned", [False, True])
def test_tf32_operands_are_rounded_not_cut(turned: bool) -> None:
    body = dot(40, 48, 64, "f32")
    if turned:
        body = body.replace("[64,48]", "[48,64]").replace("rhs_contracting_dims={0}", NT)
    func = group(body)
    sketch, sch = sketch_of(func, SIMULATED, "gpu_mma@1"), Schedule(func)
    sketch.apply(sch, sketch.default)
    rng = np.random.default_rng(2)
    x = rng.uniform(1.0, 2.0, (40, 64)).astype(np.float32)
    w = rng.uniform(1.0, 2.0, (64, 48)).astype(np.float32)
    x[3, 5], x[4, 6], w[7, 1] = np.nan, np.inf, -np.inf
    args = [x, w] if not turned else [w.T.copy(), x]
    got = np.asarray(compile_func(sch.func, SIMULATED)(*args))
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[~np.isfinite(want)], want[~np.isfinite(want)])
    finite = np.isfinite(want)
    error = got[finite] / want[finite] - 1
    assert np.abs(error).max() < 2 * TF32
    assert abs(error.mean()) < 2e-5, "cutting would give -7e-4"


@pytest.mark.parametrize("name", ["f16", "s8"])
def test_operands_that_are_slow_to_copy_are_laid_out_first(name: str) -> None:
    func = group(BODIES[name])
    sketch = sketch_of(func, SIMULATED, "gpu_mma@1")
    args = inputs(func)
    sch = Schedule(func)
    sketch.apply(sch, {**sketch.default, "pack": 1})
    np.testing.assert_array_equal(
        np.asarray(compile_func(sch.func, SIMULATED)(*args)), run(func, args)[0]
    )
    packs = {"f16": ["dot_a", "dot_b"], "s8": ["dot_b"]}
    scopes = {b.name: b.scope for b in sch.func.allocs}
    assert [n for n in ("dot_a", "dot_b") if scopes[n] is Scope.GLOBAL] == packs[name]


def test_constants_are_laid_out_ahead_of_time() -> None:
    func = group(BODIES["s8"])
    func = FROZEN.put(func, (1,))
    sketch = sketch_of(func, SIMULATED, "gpu_mma@1")
    assert sketch.default["pack"] == 1
    sch = Schedule(func)
    sketch.apply(sch, sketch.default)
    main, packs = split_packs(sch.func)
    assert len(packs) == 1
    assert [b.name for b in main.params] == ["p0", "dot_b", "out"]
    args = inputs(func)
    np.testing.assert_array_equal(run(sch.func, args)[0], run(func, args)[0])


def code(body: str, spec: str, core: str) -> str:
    target = Target.parse(spec)
    func = group(body)
    sketch, sch = sketch_of(func, target, core), Schedule(func)
    sketch.apply(sch, sketch.default)
    return nvptx.compile(emit(lower(sch.func, target), target), target)


LARGE = {
    "f16": (dot(4096, 4096, 4096, "f16"), "", "gpu_mma@1"),
    "bf16": (dot(4096, 4096, 4096, "bf16"), "", "gpu_mma@1"),
    "tf32": (dot(4096, 4096, 4096, "f32"), " -tf32=1", "gpu_mma@1"),
    "f32": (dot(4096, 4096, 4096, "f32"), "", "gpu_simt@1"),
    "conv": (CONV.format("f16", 56, 64, 128), "", "gpu_mma@1"),
    "deep": (dot(128, 128, 8192, "bf16"), "", "gpu_mma@1"),
}


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *((name, "sm_80") for name in ("bf16", "tf32", "f32", "deep")),
        *((name, "sm_90") for name in ("f16", "tf32", "conv")),
    ],
)
def test_large_products_fit_the_registers(name: str, arch: str) -> None:
    body, options, core = LARGE[name]
    text = code(body, f"cuda -arch={arch}{options}", core)
    assert re.search(r"cp\.async\.c[ag]\.shared\.global \[.*\], \[.*\], 16", text) or name == "f32"
    assert name != "tf32" or ("cvt.rna" not in text and "], 4;" not in text)
    if core == "gpu_mma@1":
        assert "mma.sync.aligned.m16n8k" in text
        assert "ldmatrix.sync.aligned.m8n8.x4" in text
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    assert (".inc.u32" in text) == (name == "deep")  # its last blocks add up
    for usage in ptxas.assemble(text, arch).kernels.values():
        assert usage.spill_loads == usage.spill_stores == usage.stack == 0
