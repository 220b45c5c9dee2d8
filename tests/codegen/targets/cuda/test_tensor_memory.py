"""Products with sums in tensor memory: their schedules, machine code, and simulated results."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.cuda import nvptx, ptxas, sass
from nestwright.codegen.targets.cuda.tcgen05 import instruction_descriptor
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import BY_NAME, bf16, f32, to_numpy
from nestwright.ir.loop.nodes import Func, Intrinsic
from nestwright.ir.loop.tensor_memory import TensorMatrix
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.gpu.products.matmul import find_matmul
from nestwright.schedule.sketches.gpu.products.tcgen05 import find_tensor_core
from nestwright.schedule.sketches.gpu.products.tensor_space import product_sketches
from nestwright.schedule.space.space import Choices, Sketch

BLACKWELL, SIMULATED = (Target.parse(f"{kind} -arch=sm_100a") for kind in ("cuda", "cuda-sim"))
LARGE = (4096, 4096, 4096)


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


def sketches(func: Func, target: Target) -> dict[str, Sketch]:
    """The sketches of a product by name, the preferred one first."""
    found = find_matmul(Schedule(func))
    assert found is not None
    return {s.name: s for s in product_sketches(found, target)}


def lowered(func: Func, target: Target = BLACKWELL, **choices: int) -> Func:
    sketch, sch = sketches(func, target)["gpu_tcgen05@1"], Schedule(func)
    chosen: Choices = {**sketch.default, **choices}
    assert sketch.valid(chosen)
    sketch.apply(sch, chosen)
    return lower(sch.func, target)


def test_where_it_is_chosen() -> None:
    large = product("NT", LARGE, "bf16")
    assert next(iter(sketches(large, BLACKWELL))) == "gpu_tcgen05@1"
    assert has_core(large, "sm_103a")
    assert not any(has_core(large, arch) for arch in ("sm_90a", "sm_100", "sm_120a"))
    whole = product("NT", LARGE, "s8", "s32")
    assert has_core(whole, "sm_100a") and not has_core(whole, "sm_103a")
    cut = product("NT", LARGE, "f32")
    assert not has_core(cut, "sm_100a -tf32=1"), "operands would be cut off, not rounded"


def has_core(func: Func, arch: str) -> bool:
    """True if an architecture multiplies with sums in tensor memory."""
    found = find_matmul(Schedule(func))
    assert found is not None
    return find_tensor_core(found, Target.parse(f"cuda -arch={arch}")) is not None


def test_descriptor_of_an_instruction() -> None:
    """Sums of f32 from bf16 in 128 x 256, neither operand turned: as others write it."""
    assert instruction_descriptor(TensorMatrix(128, 256, 16, bf16, f32), (0, 0)) == 0x8400490
    assert instruction_descriptor(TensorMatrix(128, 256, 16, bf16, f32), (1, 1)) == 0x8418490


def test_one_thread_begins_products_and_all_wait_a_step_later() -> None:
    flat = lowered(product("NT", LARGE, "bf16"), tile_m=128, results=0, bulk=0, copiers=0)
    names = [s.name for s in walk(flat.body) if isinstance(s, Intrinsic)]
    quiet = ("copy_async", "commit_async", "tensor_fence", "fence_")
    assert [re.sub(r"(?<=m128)n\d+", "", n) for n in names if not n.startswith(quiet)] == [
        *["mbarrier_init"] * 2,
        *["tensor_alloc", "barrier", "wait_async", "barrier"],
        *["tcgen05.m128k16.bf16.f32", "tensor_commit", "mbarrier_wait", "mbarrier_wait"],
        *["barrier", *["tensor_load.x32", "tensor_wait"], "barrier", "barrier", "tensor_free"],
    ]


PLAIN = {"tile_m": 128, "tile_n": 64, "results": 0, "bulk": 0, "copiers": 0, "stages": 3}
CASES: dict[str, tuple[Func, dict[str, int]]] = {
    "default": (product("NT", LARGE, "bf16"), {}),
    "plain": (product("TN", LARGE, "f16"), {**PLAIN, "tile_n": 256}),
    "bytes": (product("NT", LARGE, "s8", "s32"), {}),
    "f8": (product("NT", LARGE, "f8e4m3fn", "bf16"), {"tile_m": 128, "groups_n": 2}),
}


@cache
def code(name: str, target: Target = BLACKWELL) -> str:
    """The PTX of a case."""
    func, choices = CASES[name]
    return nvptx.compile(emit(lowered(func, target, **choices), target), target)


@pytest.mark.parametrize("name", CASES)
def test_machine_code_keeps_sums_in_tensor_memory(name: str) -> None:
    """No spills, no local memory, and so few registers that two blocks fit."""
    text = code(name)
    assert "tcgen05.mma.cta_group::1" in text and "align 1024" in text and "mma.sync" not in text
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    made = ptxas.assemble(text, BLACKWELL.cpu)
    assert not made.warnings
    for usage in made.kernels.values():
        assert usage.spill_loads == usage.spill_stores == usage.stack == 0
        assert usage.registers <= 128


def test_other_architectures_and_instructions() -> None:
    if not sass.find() or ptxas.find() is None:
        pytest.skip("no nvdisasm or ptxas on this machine")
    other = Target.parse("cuda -arch=sm_103a")
    assert not ptxas.assemble(code("f8", other), other.cpu).warnings
    found = sass.disassemble(code("plain"), BLACKWELL.cpu)
    assert found.count(" UTCHMMA ") == 4 and " HMMA" not in found and " LDTM" in found


SMALL: dict[str, tuple[str, tuple[int, int, int], str, str, dict[str, int]]] = {
    "odd": ("NN", (133, 67, 131), "bf16", "", {}),
    "turned": ("TN", (136, 72, 80), "f16", "", {"bulk": 1, "stages": 4}),
    "roles": ("NT", (136, 72, 208), "bf16", "", {"bulk": 1, "copiers": 4, "results": 1}),
    "rows": ("NT", (260, 40, 80), "bf16", "f32", {"tile_m": 256, "groups_m": 2, "results": 1}),
    "split": ("NT", (130, 64, 272), "bf16", "f32", {"split": 2, "stages": 2}),
}


@pytest.mark.parametrize("name", SMALL)
def test_simulated_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, (m, n, k), dtype, result, choices = SMALL[name]
    flat = lowered(product(form, (m, n, k), dtype, result), SIMULATED, **{**PLAIN, **choices})
    rng, kind = np.random.default_rng(0), to_numpy(BY_NAME[dtype])
    a, b = (rng.integers(-3, 4, shape).astype(kind) for shape in ((m, k), (k, n)))
    wanted = np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0)
    given = [(x.T if turned == "T" else x).ravel() for x, turned in zip((a, b), form, strict=True)]
    kernel = Kernel(compile_flat(flat, SIMULATED))
    for seed in "05":
        monkeypatch.setenv(SEED, seed)
        found = np.asarray(kernel(*given)).reshape(m, n)
        assert np.array_equal(found, wanted.astype(found.dtype)), seed
