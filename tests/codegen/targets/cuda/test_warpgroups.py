"""Products of warp groups as machine code: HGMMA alone, no spills, nothing serialized."""

from __future__ import annotations

import re

import pytest

import nestwright.te as te
from nestwright.codegen.targets.cuda import nvptx, ptxas, sass
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import BY_NAME
from nestwright.ir.loop.nodes import Func, Intrinsic
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.gpu.group_space import product_sketches
from nestwright.schedule.sketches.gpu.matmul import find_matmul
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
    flat = lowered(product(form, (512, 512, 512), "bf16"))
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
        *["fence_proxy_async", "barrier"] * 2,
    ]


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
CASES: dict[str, tuple[Func, dict[str, int]]] = {
    "128x256": (product("NT", LARGE, "bf16"), {}),
    "256x128": (product("NN", LARGE, "f16"), {"tile_m": 256, "tile_n": 128}),
    "256x192": (product("TN", LARGE, "bf16"), {"tile_m": 256, "tile_n": 192}),
    "turned": (product("TT", LARGE, "bf16"), {"groups_m": 1, "groups_n": 2}),
    "bytes": (product("NT", LARGE, "s8", "s32"), {}),
    "odd": (product("NN", (333, 517, 131), "bf16"), {}),
    "split": (product("NT", (128, 256, 16384), "f16"), {"split": 8}),
    "one stage": (product("NT", (512, 512, 64), "f16"), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_machine_code_is_asynchronous(name: str) -> None:
    """No spills, no local memory, and no word of the assembler about serialized products."""
    func, choices = CASES[name]
    text = nvptx.compile(emit(lowered(func, **choices), HOPPER), HOPPER)
    assert "wgmma.mma_async.sync.aligned.m64n" in text and "align 1024" in text
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    made = ptxas.assemble(text, HOPPER.cpu)
    assert not made.warnings
    for usage in made.kernels.values():
        assert usage.spill_loads == usage.spill_stores == usage.stack == 0


def test_hottest_loop_is_mostly_products_and_copies() -> None:
    """A step of 128 x 256 x 64 is four instructions of a group, and 12 copies of a thread."""
    if not sass.find() or ptxas.find() is None:
        pytest.skip("no nvdisasm or ptxas on this machine")
    func, choices = CASES["128x256"]
    ptx = nvptx.compile(emit(lowered(func, **choices), HOPPER), HOPPER)
    text = sass.disassemble(ptx, HOPPER.cpu)
    code = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][\w.]*)", text, re.M)
    assert sum(x.startswith("HGMMA.64x256x16") for x in code) == 4
    assert not any(x.startswith(("HMMA", "LDSM", "STL", "LDL")) for x in code)
    main = code[code.index("DEPBAR.LE") : code.index("WARPGROUP.DEPBAR.LE")]
    assert sum(x.startswith("LDGSTS") for x in main) == 12
    assert len(main) < 100
