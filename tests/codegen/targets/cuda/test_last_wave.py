"""Products whose last tiles do not fill the multiprocessors: these are divided along the depth."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import BY_NAME, s32, to_numpy
from nestwright.ir.errors import SimulationError
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Const, Func, Intrinsic, Stmt, Store
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import map_stmt
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.sketches.gpu.products import contraction
from nestwright.schedule.sketches.gpu.products.last_wave import LastWave, find_last_wave, waves
from nestwright.schedule.sketches.gpu.products.matmul import Matmul, find_matmul
from nestwright.schedule.sketches.gpu.products.tensor_space import product_sketches
from nestwright.schedule.space.space import Choices, Sketch
from nestwright.te.from_hlo import lower_group


def product(shape: tuple[int, int, int], dtype: str, relu: bool = True) -> Func:
    """``A B``, or ``max(A B, 0)``."""
    m, n, k = shape
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis(k, "k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(te.cast(a[i, r], "f32") * te.cast(b[r, j], "f32"), axis=r),
        name="C",
    )
    if not relu:
        return te.create_func([a, b, c], name="product")
    d = te.compute((m, n), lambda i, j: te.cast(te.maximum(c[i, j], 0.0), dtype), name="D")
    return te.create_func([a, b, d], name="product")


def analyzed(func: Func) -> Matmul:
    found = find_matmul(Schedule(func))
    assert found is not None
    return found


def sketch_of(func: Func, target: Target, name: str) -> Sketch:
    return next(s for s in product_sketches(analyzed(func), target) if s.name == name)


def in_order(whole: int, rest: int, parts: int, slots: int) -> float:
    """When the last of some blocks ends, if each begins where the first of those before ends."""
    ends = [0.0] * slots
    for length in [1.0] * whole + [1 / parts] * (rest * parts):
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


def test_waves_are_those_of_blocks_in_order() -> None:
    rng = random.Random(1)
    for _ in range(200):
        slots, parts = rng.randint(1, 9), rng.choice((1, 2, 4, 8))
        whole, rest = rng.randint(0, 30), rng.randint(0, 9)
        assert waves(whole, rest, parts, slots) == in_order(whole, rest, parts, slots)


def test_the_cut_is_where_whole_waves_end() -> None:
    """17 x 8 tiles on 132 multiprocessors: 16 rows of them, which leave room for half a row."""
    k = analyzed(product((17 * 128, 8 * 128, 512), "f16"))
    tile = {"m": 128, "n": 128}
    assert find_last_wave(k, tile, 132) == LastWave("m", 0, 2048, 2048, 128, 8)
    assert waves(136, 0, 1, 132) == 2.0
    assert waves(128, 8, 8, 132) == 1.125
    assert find_last_wave(k, tile, 136) is None
    assert find_last_wave(k, tile, 137) is None
    wide = analyzed(product((8 * 128 - 5, 17 * 128 - 3, 512), "f16"))
    assert find_last_wave(wide, tile, 132) == LastWave("n", 1, 2048, 2048, 128, 8)


def test_tails_by_default_only_where_waves_are_counted_to_pay() -> None:
    target = Target.parse("cuda -arch=sm_90")
    for shape, tail in (((17 * 128, 2048, 4096), True), ((2048, 2048, 4096), False)):
        sketch = sketch_of(product(shape, "bf16"), target, "gpu_mma@1")
        assert (sketch.default["tail"] != 1) == tail
        chosen = {**sketch.default, "tail": 1}
        assert sketch.cost(sketch.default) <= sketch.cost(chosen)
        assert not sketch.valid({**sketch.default, "tail": 2, "split": 2})


MMA = {"tile_m": 32, "tile_n": 32, "tile_k": 32, "warps_m": 2, "warps_n": 1, "stages": 3}
SIMT = {"tile_m": 32, "tile_n": 32, "tile_k": 16, "rows": 4, "columns": 4, "stages": 2}
GROUP = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "groups_m": 1, "groups_n": 1, "stages": 3}
ROLES = {"bulk": 1, "copiers": 4, "results": 1, "turns": 2}
RUNS: dict[str, tuple[str, str, tuple[int, int, int], str, bool, Choices, int]] = {
    "simt": ("sm_80", "gpu_simt@1", (279, 410, 85), "f32", False, {**SIMT, "tail": 3}, 135),
    "wgmma": (
        "sm_90a",
        "gpu_wgmma@1",
        (744, 712, 136),
        "f16",
        True,
        {**GROUP, **ROLES, "tail": 2},
        66 + 24,
    ),
}


@cache
def lowered(name: str) -> tuple[Func, Func, Target]:
    """What a case computes, and that on threads, as its trace makes it."""
    arch, core, shape, dtype, relu, choices, _ = RUNS[name]
    func, target = product(shape, dtype, relu), Target.parse(f"cuda-sim -arch={arch}")
    sketch, sch = sketch_of(func, target, core), Schedule(func)
    plain: Choices = {"split": 1, "join": "last", "group": 2}
    sketch.apply(sch, {**sketch.default, **plain, **choices})
    again = Trace.from_json(sch.trace.to_json()).replay(func)
    assert show(again.func) == show(sch.func)
    return func, lower(sch.func, target), target


@pytest.mark.parametrize("name", RUNS)
def test_one_launch_of_whole_tiles_and_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just above the number of multiprocessors, with odd extents; the same bits in each run."""
    func, flat, target = lowered(name)
    (launch,) = launches(flat)
    assert launch.grid == (RUNS[name][-1], 1, 1)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(x.shape).astype(to_numpy(x.dtype)) for x in func.params[:2])
    sums = a.astype(np.float64) @ b.astype(np.float64)
    wanted = np.maximum(sums, 0) if RUNS[name][4] else sums
    kernel, found = Kernel(compile_flat(flat, target)), []
    for seed in "05":
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        found.append(np.asarray(kernel(a.ravel(), b.ravel())).reshape(wanted.shape))
    near = 2e-3 if BY_NAME[RUNS[name][3]].bytes == 2 else 1e-5
    np.testing.assert_allclose(found[0].astype(np.float64), wanted, near, 5 * near)
    np.testing.assert_array_equal(found[0], found[1])


BATCH = """
    x = f16[3,70,72] parameter(0)
    w = f16[3,72,90] parameter(1)
    ROOT r = f16[3,70,90] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0},
        lhs_contracting_dims={2}, rhs_contracting_dims={1}"""
IMAGES = """
    x = f16[1,12,12,16] parameter(0)
    w = f16[3,3,16,40] parameter(1)
    b = f16[40] parameter(2)
    c = f16[1,12,12,40] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
    bb = f16[1,12,12,40] broadcast(b), dimensions={3}
    ROOT r = f16[1,12,12,40] add(c, bb)"""


@pytest.mark.parametrize(("text", "slots"), [(BATCH, 14), (IMAGES, 7)])
def test_other_products(text: str, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several matrices are cut alike; an image between rows that are whole tiles."""
    module = optimize(parse(f"HloModule m\nENTRY main {{{text}}}"))
    (found,) = fuse(module.entry, ("strided",)).groups
    func, target = lower_group(found.computation, "main"), Target.parse("cuda-sim -arch=sm_80")
    cut = partial(find_last_wave, slots=slots)
    monkeypatch.setattr(contraction, "find_last_wave", lambda k, tile, _: cut(k, tile))
    sketch, sch = sketch_of(func, target, "gpu_mma@1"), Schedule(func)
    chosen: Choices = {**sketch.default, **MMA, "split": 1, "join": "last", "pack": 0, "tail": 2}
    assert sketch.valid(chosen)
    sketch.apply(sch, chosen)
    flat = lower(sch.func, target)
    assert len(launches(flat)) == 1
    rng = np.random.default_rng(3)
    args = [rng.integers(-3, 4, b.shape).astype(np.float16) for b in func.params[:-1]]
    (wanted,) = run(func, args)
    got = np.asarray(Kernel(compile_flat(flat, target))(*(x.ravel() for x in args)))
    np.testing.assert_array_equal(got, wanted.ravel())


def unordered(s: Stmt) -> Stmt:
    """A statement in which each block takes itself for the last."""
    if isinstance(s, Intrinsic) and s.name == "arrive":
        return Store(s.writes[0].buffer, (Const(0),), Const(1, s32))
    return map_stmt(s, unordered, lambda e: e)


def test_parts_are_only_added_by_the_last() -> None:
    """Without the arrival that orders them, blocks read what others may not have written."""
    func, flat, target = lowered("simt")
    broken = replace(flat, body=unordered(flat.body))
    a, b = (np.ones(x.shape, np.float32).ravel() for x in func.params[:2])
    with pytest.raises(SimulationError, match="race on C_again_rf"):
        Kernel(compile_flat(broken, target))(a, b)


@pytest.mark.parametrize(
    ("arches", "core", "choices"),
    [
        (("sm_80", "sm_100a"), "gpu_mma@1", {**MMA, "tile_m": 128, "tile_n": 64, "warps_n": 2}),
        (("sm_90a",), "gpu_wgmma@1", {**GROUP, **ROLES}),
    ],
)
def test_machine_code_does_not_spill(arches: tuple[str, ...], core: str, choices: Choices) -> None:
    """One schedule, for a GPU and later ones that have its instructions."""
    targets = [Target.parse(f"cuda -arch={arch}") for arch in arches]
    func = product((17 * 128, 2048, 2048), "bf16")
    sketch, sch = sketch_of(func, targets[0], core), Schedule(func)
    chosen = {**sketch.default, "stages": 3, "split": 1, "join": "last", "tail": 2, **choices}
    assert sketch.valid(chosen)
    sketch.apply(sch, chosen)
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    flat = lower(sch.func, targets[0])
    for target in targets:
        made = ptxas.assemble(nvptx.compile(emit(flat, target), target), target.cpu)
        assert not made.warnings
        (usage,) = made.kernels.values()
        assert usage.spill_loads == usage.spill_stores == usage.stack == 0
