"""Products of warp groups as machine code: HGMMA alone, no spills, nothing serialized."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.targets.cuda import nvptx, ptxas, sass
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import SimulationError
from nestwright.ir.loop.nodes import Func, Intrinsic, Seq, Stmt
from nestwright.ir.loop.visit import map_stmt, walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.gpu.products.matmul import find_matmul
from nestwright.schedule.sketches.gpu.products.tensor_space import product_sketches
from nestwright.schedule.space.space import Choices, Sketch

HOPPER = Target.parse("cuda -arch=sm_90a")


def product(form: str, shape: tuple[int, int, int], dtype: str, result: str = "") -> Func:
    """``D = max(A B, 0)`` with operands as they lie: N as in the formula, T the other way round."""
    m, n, k = shape
    sums = "s32" if BY_NAME[dtype].is_int else "f32"
    a = te.placeholder((k, m) if form[0] == "T" else (m, k), dtype, "A")
    b = te.placeholder((n, k) if form[1] == "T" else (k, n), dtype, "B")
    r = te.reduce_axis(k, "k")

    def term(i: te.Expr, j: te.Expr) -> te.Expr:
        x = a[r, i] if form[0] == "T" else a[i, r]
        y = b[j, r] if form[1] == "T" else b[r, j]
        return te.sum(te.cast(x, sums) * te.cast(y, sums), axis=r)

    c = te.compute((m, n), term, name="C")
    zero = 0 if sums == "s32" else 0.0
    d = te.compute(
        (m, n), lambda i, j: te.cast(te.maximum(c[i, j], zero), result or dtype), name="D"
    )
    return te.create_func([a, b, d], name="product")


def group_sketch(func: Func, target: Target = HOPPER) -> Sketch:
    found = find_matmul(Schedule(func))
    assert found is not None
    return next(s for s in product_sketches(found, target) if s.name == "gpu_wgmma@1")


def lowered(func: Func, target: Target = HOPPER, **choices: int) -> Func:
    sketch, sch = group_sketch(func, target), Schedule(func)
    chosen: Choices = {**sketch.default, **choices}
    assert sketch.valid(chosen)
    sketch.apply(sch, chosen)
    return lower(sch.func, target)


def calls(func: Func) -> list[str]:
    return [s.name for s in walk(func.body) if isinstance(s, Intrinsic)]


@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
def test_main_loop_multiplies_while_copies_begin(form: str) -> None:
    """Between the product of a step and the wait for the one before are the copies."""
    flat = lowered(product(form, (512, 512, 512), "bf16"), bulk=0, copiers=0, results=0)
    names = [n for n in calls(flat) if not n.startswith("copy_async")]
    assert [re.sub(r"n\d+", "", n) for n in names] == [
        "commit_async",
        "wait_async",
        "fence_proxy_async",
        "barrier",
        "wgmma_fence",
        "wgmma.m64k16.bf16.f32",
        "wgmma_commit",
        "commit_async",
        "wgmma_wait",
        "wgmma_wait",
        *["fence_proxy_async", "barrier", "barrier"],  # the last one is of sums that are stored
    ]


@pytest.mark.parametrize("form", ["NN", "TT"])
def test_main_loop_with_bulk_copies(form: str) -> None:
    """One thread starts the copies of a later step; nothing is fenced that only they write."""
    choices = {"bulk": 1, "stages": 3, "copiers": 0, "results": 0}
    flat = lowered(product(form, (512, 512, 512), "bf16"), **choices)
    assert [re.sub(r"n\d+", "", n) for n in calls(flat)] == [
        *["mbarrier_init"] * 3,
        "fence_mbarrier_init",
        "barrier",
        *["mbarrier_expect", "tma_load", "tma_load"],
        "mbarrier_wait",
        "barrier",
        "wgmma_fence",
        "wgmma.m64k16.bf16.f32",
        "wgmma_commit",
        *["mbarrier_expect", "tma_load", "tma_load"],
        "wgmma_wait",
        "wgmma_wait",
        *["barrier"] * 2,
    ]


def test_bulk_copies_need_matrices_with_aligned_rows() -> None:
    for shape, bulk in (((512, 512, 520), (0, 1)), ((512, 512, 516), (0,))):
        assert group_sketch(product("NT", shape, "bf16")).decisions["bulk"] == bulk


def test_default_is_the_warp_groups_on_a_large_product() -> None:
    found = find_matmul(Schedule(product("NT", (4096, 4096, 4096), "bf16")))
    assert found is not None
    first = product_sketches(found, HOPPER)[0]
    assert first.name == "gpu_wgmma@1"
    assert (first.default["tile_m"], first.default["tile_n"]) == (128, 256)
    names = [s.name for s in product_sketches(found, Target.parse("cuda -arch=sm_90"))]
    assert "gpu_wgmma@1" not in names


def test_single_precision_keeps_its_rounding() -> None:
    """Products of warp groups cut off the low bits that ``-tf32=1`` promises to round."""
    found = find_matmul(Schedule(product("NT", (512, 512, 512), "f32")))
    assert found is not None
    names = [s.name for s in product_sketches(found, Target.parse("cuda -arch=sm_90a -tf32=1"))]
    assert "gpu_wgmma@1" not in names


LARGE = (4096, 4096, 4096)
PLAIN = {"bulk": 0, "copiers": 0, "tile_m": 128, "tile_n": 256, "results": 0}
CASES: dict[str, tuple[Func, dict[str, int]]] = {
    "128x256": (product("NT", LARGE, "bf16"), {**PLAIN}),
    "128x256 bulk": (product("NT", LARGE, "bf16"), {**PLAIN, "bulk": 1}),
    "256x192 bulk": (
        product("TN", LARGE, "bf16"),
        {**PLAIN, "tile_m": 256, "tile_n": 192, "bulk": 1},
    ),
    "results": (product("NT", LARGE, "bf16"), {**PLAIN, "bulk": 1, "copiers": 4, "results": 1}),
    "turns": (
        product("NT", (17 * 128, 4096, 4096), "bf16"),
        {**PLAIN, "bulk": 1, "copiers": 4, "results": 1, "stages": 3, "turns": 3},
    ),
    "results f32": (product("NT", LARGE, "bf16", "f32"), {**PLAIN, "results": 1, "stages": 3}),
    "turned": (product("TT", LARGE, "bf16"), {**PLAIN, "groups_m": 1, "groups_n": 2}),
    "bytes": (product("NT", LARGE, "s8", "s32"), {}),
    "odd": (product("NN", (333, 517, 131), "bf16"), {}),
    "split": (product("NT", (128, 256, 16384), "f16"), {"split": 8}),
}


@cache
def code(name: str) -> str:
    """The PTX of a case."""
    func, choices = CASES[name]
    return nvptx.compile(emit(lowered(func, **choices), HOPPER), HOPPER)


@pytest.mark.parametrize("name", CASES)
def test_machine_code_is_asynchronous(name: str) -> None:
    """No spills, no local memory, and no word of the assembler about serialized products."""
    text = code(name)
    assert "wgmma.mma_async.sync.aligned.m64n" in text and "align 1024" in text
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    made = ptxas.assemble(text, HOPPER.cpu)
    assert not made.warnings
    for usage in made.kernels.values():
        assert usage.spill_loads == usage.spill_stores == usage.stack == 0


@pytest.mark.parametrize(
    ("name", "copies", "most"),
    [("128x256", ("LDGSTS", 12), 100), ("128x256 bulk", ("UTMALDG", 2), 80)],
)
def test_hottest_loop_is_mostly_products_and_copies(
    name: str, copies: tuple[str, int], most: int
) -> None:
    """A step of 128 x 256 x 64 is four instructions of a group, and 12 copies of a thread or 2 of
    one."""
    if not sass.find() or ptxas.find() is None:
        pytest.skip("no nvdisasm or ptxas on this machine")
    text = sass.disassemble(code(name), HOPPER.cpu)
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][\w.]*)", text, re.M)
    assert sum(x.startswith("HGMMA.64x256x16") for x in found) == 4
    assert not any(x.startswith(("HMMA", "LDSM", "STL", "LDL")) for x in found)
    end = found.index("WARPGROUP.DEPBAR.LE")
    begin = max(n for n in range(end) if found[n].startswith("BAR.SYNC"))
    assert sum(x.startswith(copies[0]) for x in found[begin:end]) == copies[1]
    assert end - begin < most


def test_epilogue_stores_matrices_and_boxes() -> None:
    """64 sums of a thread are 16 stores of 4 matrices, and a tile 4 boxes of one thread."""
    if not sass.find() or ptxas.find() is None:
        pytest.skip("no nvdisasm or ptxas on this machine")
    text = sass.disassemble(code("results"), HOPPER.cpu)
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][\w.]*)", text, re.M)
    end = max(n for n, x in enumerate(found) if x.startswith("WARPGROUP.DEPBAR"))
    rest = [x.split(".")[0] for x in found[end:] if x != "NOP"]
    counts = {x: rest.count(x) for x in ("STSM", "UTMASTG", "STS", "LDS", "STG")}
    assert counts == {"STSM": 16, "UTMASTG": 4, "STS": 0, "LDS": 0, "STG": 0}
    assert len(rest) < 170


SIMULATED = Target.parse("cuda-sim -arch=sm_90a")
ROLES = {"bulk": 1, "copiers": 4, "stages": 3}
RUNS: dict[str, tuple[str, tuple[int, int, int], str, dict[str, int]]] = {
    "64": ("NT", (64, 64, 64), "bf16", {"bulk": 0}),
    "192": ("TN", (128, 192, 128), "bf16", {"tile_n": 192, "stages": 2, "bulk": 0}),
    "1000": ("NN", (128, 72, 1000), "f16", {"bulk": 0, "tile_m": 128, "groups_m": 2, "stages": 4}),
    "odd": ("NT", (131, 77, 93), "f16", {}),
    "odd turned": ("TT", (67, 130, 71), "bf16", {"tile_n": 128, "groups_n": 2, "stages": 3}),
    "panels": (
        "TT",
        (128, 256, 128),
        "f16",
        {"tile_m": 128, "tile_n": 256, "groups_m": 2, "stages": 3},
    ),
    "half rows": ("NT", (72, 136, 168), "f16", {"bulk": 0, "tile_k": 32, "stages": 5}),
    "split": ("NN", (64, 128, 520), "bf16", {"bulk": 0, "split": 4}),
    "bytes": ("NT", (80, 64, 256), "s8", {"bulk": 0}),
    "f8": ("NT", (64, 80, 256), "f8e4m3fn", {"bulk": 0}),
    "boxes": ("NN", (136, 72, 328), "f16", {"bulk": 1, "stages": 3}),
    "boxes turned": ("TT", (136, 264, 200), "bf16", {"bulk": 1, "tile_m": 128, "tile_n": 128}),
    "boxes by roles": (
        "NN",
        (136, 264, 456),
        "bf16",
        {**ROLES, "tile_m": 128, "tile_n": 256, "groups_m": 2},
    ),
    "boxes by one group's roles": ("NT", (72, 80, 520), "f16", {**ROLES, "stages": 5}),
    "boxes split by roles": ("NT", (64, 72, 392), "bf16", {**ROLES, "split": 2}),
}


@pytest.mark.parametrize("name", RUNS)
def test_simulated_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, shape, dtype, choices = RUNS[name]
    func = product(form, shape, dtype, "s32" if dtype == "s8" else "f32")
    flat = lowered(func, SIMULATED, **{"copiers": 0, **choices})
    assert any(x.startswith("wgmma.") for x in calls(flat))
    assert ("tma_load" in calls(flat)) == name.startswith("boxes")
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, x.shape).astype(to_numpy(x.dtype)) for x in func.params[:2])
    left, right = (x.T if f == "T" else x for x, f in zip((a, b), form, strict=True))
    wanted = np.maximum(left.astype(np.int64) @ right.astype(np.int64), 0)
    kernel = Kernel(compile_flat(flat, SIMULATED))
    for seed in "05":
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        found = np.asarray(kernel(a.ravel(), b.ravel()))
        assert np.array_equal(found.reshape(wanted.shape).astype(np.int64), wanted), seed


RESULTS: dict[str, tuple[str, tuple[int, int, int], str, str, dict[str, int]]] = {
    "64": ("NT", (64, 64, 64), "bf16", "bf16", {}),
    "odd": ("NT", (131, 72, 93), "f16", "f16", {"bulk": 0, "copiers": 0}),
    "f32": ("NT", (72, 80, 128), "bf16", "f32", {"tile_n": 128, "groups_n": 2, "bulk": 0}),
    "roles": ("NN", (136, 264, 200), "bf16", "bf16", {**ROLES, "tile_m": 128, "groups_m": 2}),
}


def run_results(func: Func, flat: Func, form: str) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel makes of small numbers, and the product of the first two operands."""
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-4, 5, x.shape).astype(to_numpy(x.dtype)) for x in func.params[:-1]]
    left, right = (x.T if f == "T" else x for x, f in zip(inputs, form, strict=False))
    found = np.asarray(Kernel(compile_flat(flat, SIMULATED))(*(x.ravel() for x in inputs)))
    sums = left.astype(np.float32) @ right.astype(np.float32)
    return found.reshape(sums.shape), sums + sum(x.astype(np.float32) for x in inputs[2:])


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_sums_in_registers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pairs of halves by ``stmatrix``, or words, and boxes from there: no edge is asked
    for, whatever the extents."""
    form, shape, dtype, result, choices = RESULTS[name]
    func = product(form, shape, dtype, result)
    flat = lowered(func, SIMULATED, **{**choices, "results": 1})
    names = calls(flat)
    assert ("stmatrix.x4" in names) == (result != "f32")
    assert names[-2:] == ["tma_commit", "tma_wait_read"] and names.count("tma_store") > 0
    for seed in "05":
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        found, sums = run_results(func, flat, form)
        wanted = np.maximum(sums, 0).astype(to_numpy(BY_NAME[result]))
        assert np.array_equal(found, wanted), seed


TURNS: dict[str, tuple[tuple[int, int, int], str, dict[str, int]]] = {
    "three": ((130, 192, 200), "f16", {"turns": 3}),
    "uneven": ((130, 192, 200), "f16", {"turns": 2}),
    "two groups": ((256, 64, 72), "f16", {"tile_m": 128, "groups_m": 2, "turns": 2}),
    "f32": ((64, 128, 328), "f32", {"turns": 2}),
}
SMALL = {**ROLES, "tile_m": 64, "tile_n": 64, "groups_m": 1, "groups_n": 1, "group": 1}


def in_turns(name: str) -> tuple[Func, Func]:
    """A product of few tiles, and the same with several of them for each block."""
    shape, result, choices = TURNS[name]
    func = product("NN", shape, "f16", result)
    sketch, sch = group_sketch(func, SIMULATED), Schedule(func)
    sketch.apply(sch, {**sketch.default, **SMALL, "split": 1, "results": 1, **choices})
    return func, lower(sch.func, SIMULATED)


@pytest.mark.parametrize("name", TURNS)
def test_tiles_of_a_block_in_turn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warps that copy run ahead over the ends of tiles: all threads of a block meet only once."""
    func, flat = in_turns(name)
    assert calls(flat).count("barrier") == 1
    for seed in "05":
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        found, sums = run_results(func, flat, "NN")
        wanted = np.maximum(sums, 0).astype(to_numpy(func.params[2].dtype))
        assert np.array_equal(found, wanted), seed


@pytest.mark.parametrize(
    ("name", "args", "found"),
    [
        ("tma_wait_read", (0,), "D_cache.* is written while it is"),
        ("named_barrier", (1, 128), "race on D_cache|may not be seen|is written while"),
        ("mbarrier_init", (4,), "is used before|before anything|no mbarrier|is no"),
    ],
)
def test_what_turns_wait_for_is_needed(name: str, args: tuple[int, ...], found: str) -> None:
    func, flat = in_turns("uneven")
    broken = replace(flat, body=without(flat.body, name, args))
    with pytest.raises(SimulationError, match=found):
        run_results(func, broken, "NN")


def test_several_tiles_of_a_block_where_there_are_many() -> None:
    large, uneven, small = (4096, 4096, 4096), (17 * 128, 2048, 4096), (1024, 1024, 4096)
    for shape, turns, valid in ((large, 4, True), (uneven, 3, True), (small, 4, False)):
        sketch = group_sketch(product("NT", shape, "bf16"))
        chosen = {**sketch.default, **PLAIN, "bulk": 1, "copiers": 4, "results": 1, "stages": 3}
        chosen |= {"split": 1, "join": "last"}
        assert sketch.valid(chosen)
        assert sketch.valid({**chosen, "turns": turns}) == valid
        assert not sketch.valid({**chosen, "turns": turns, "results": 0})


def test_results_may_read_more_than_the_sums() -> None:
    """What lies beyond the edges of a row and of a matrix is not read."""
    m, n, k = 70, 72, 64
    a, b = te.placeholder((m, k), "f16", "A"), te.placeholder((k, n), "f16", "B")
    row, more = te.placeholder((n,), "f32", "R"), te.placeholder((m, n), "f16", "M")
    r = te.reduce_axis(k, "k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(te.cast(a[i, r], "f32") * te.cast(b[r, j], "f32"), axis=r),
        name="C",
    )
    d = te.compute(
        (m, n),
        lambda i, j: te.cast(c[i, j] + row[j] + te.cast(more[i, j], "f32"), "f16"),
        name="D",
    )
    func = te.create_func([a, b, row, more, d], name="added")
    found, wanted = run_results(func, lowered(func, SIMULATED, results=1), "NN")
    assert np.array_equal(found, wanted.astype(np.float16))


@pytest.mark.parametrize(
    ("name", "args", "found"),
    [
        ("fence_proxy_async", (), "D_cache.* may not be seen by the asynchronous"),
        ("named_barrier", (1, 128), "race on D_cache|may not be seen|before anything"),
        ("tma_wait_read", (0,), "a block ends while D_cache is"),
    ],
)
def test_what_a_store_of_boxes_waits_for_is_needed(
    name: str, args: tuple[int, ...], found: str
) -> None:
    func = product("NT", (64, 64, 256), "f16")
    flat = lowered(func, SIMULATED, results=1, bulk=1, copiers=4, stages=3)
    kernel = Kernel(compile_flat(replace(flat, body=without(flat.body, name, args)), SIMULATED))
    with pytest.raises(SimulationError, match=found):
        kernel(*(np.ones(64 * 256, np.float16) for _ in range(2)))


def without(s: Stmt, name: str, args: tuple[int, ...]) -> Stmt:
    """A statement without some call."""
    gone = isinstance(s, Intrinsic) and (s.name, s.args) == (name, args)
    return Seq(()) if gone else map_stmt(s, lambda c: without(c, name, args), lambda e: e)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fence_proxy_async", ()),
        ("wgmma_fence", ()),
        ("wgmma_wait", (1,)),
        ("wait_async", (1,)),
        ("barrier", ()),
        ("mbarrier_wait", ()),
        ("mbarrier_init", (1,)),
        ("mbarrier_expect", (16384,)),
    ],
)
def test_what_a_pipeline_waits_for_is_needed(name: str, args: tuple[int, ...]) -> None:
    """Each order in the main loop is there for a reason that the simulation finds."""
    func = product("NT", (64, 64, 640), "f16", "f32")
    flat = lowered(func, SIMULATED, stages=4, bulk=int(name.startswith("mbarrier")), copiers=0)
    kernel = Kernel(compile_flat(replace(flat, body=without(flat.body, name, args)), SIMULATED))
    with pytest.raises(SimulationError):
        kernel(*(np.ones(64 * 640, np.float16) for _ in range(2)))


@pytest.mark.parametrize(("m", "bulk"), [(128, True), (120, False)])
def test_batches_of_matrices(m: int, bulk: bool) -> None:
    """Rows behind a matrix are the next one's, not zeros: boxes have to end with it."""
    a, b = (te.placeholder((3, m, 192), "f16", name) for name in "AB")
    k = te.reduce_axis(192, "k")
    c = te.compute(
        (3, m, m),
        lambda z, i, j: te.sum(te.cast(a[z, i, k], "f32") * te.cast(b[z, j, k], "f32"), axis=k),
        name="C",
    )
    func = te.create_func([a, b, c], name="batch")
    flat = lowered(func, SIMULATED, **ROLES, results=1)
    assert ("tma_load" in calls(flat)) == ("tma_store" in calls(flat)) == bulk
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-4, 5, (3, m, 192)).astype(np.float16) for _ in "ab")
    found = np.asarray(Kernel(compile_flat(flat, SIMULATED))(x.ravel(), y.ravel()))
    wanted = x.astype(np.int64) @ y.astype(np.int64).transpose(0, 2, 1)
    assert np.array_equal(found.reshape(wanted.shape).astype(np.int64), wanted)


def test_kernels_of_one_model_have_runtimes_of_their_own() -> None:
    """What a kernel brings along for its barriers is not seen by others it is linked with."""
    flat = lowered(product("NT", (64, 64, 256), "f16"), SIMULATED, **ROLES)
    text = emit(flat, SIMULATED)
    assert "@nw_group_multiply" in text
    assert not re.findall(r"^define (?!internal)[^@]*@nw_(?:phase|box|group)\w*", text, re.M)
