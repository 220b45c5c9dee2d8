"""Warps with roles: some copy, the others compute; what they compute, and what a mistake does."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.arrays import Array
from nestwright.ir.errors import SimulationError, UnsupportedError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import For, Func
from nestwright.ir.loop.notes import PIPELINE
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.sketches.gpu.products.matmul import find_matmul
from nestwright.schedule.sketches.gpu.products.tensor_space import product_sketches

SMALL = {"tile_m": 64, "tile_n": 32, "tile_k": 32, "warps_m": 2, "warps_n": 2, "stages": 3}
GROUPS = {
    "tile_m": 128,
    "tile_n": 64,
    "tile_k": 64,
    "groups_m": 2,
    "groups_n": 1,
    "copiers": 0,
    "bulk": 0,
}


def product(shape: tuple[int, int, int], dtype: str) -> Func:
    """``max(A B, 0)``, summed up in f32."""
    m, n, depth = shape
    a, b = te.placeholder((m, depth), dtype, "A"), te.placeholder((depth, n), dtype, "B")
    k = te.reduce_axis(depth, "k")

    def term(i: te.Expr, j: te.Expr) -> te.Expr:
        return te.sum(te.cast(a[i, k], "f32") * te.cast(b[k, j], "f32"), axis=k)

    c = te.compute((m, n), term, name="C")
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_func([a, b, d], name="product")


def scheduled(func: Func, target: Target, sketch: str, **choices: int) -> tuple[Schedule, str]:
    """Return a product with the sketch's choices, and the name of its pipelined loop."""
    found = find_matmul(Schedule(func))
    assert found is not None
    one = next(s for s in product_sketches(found, target) if s.name == f"gpu_{sketch}@1")
    chosen = {**one.default, **choices}
    assert one.valid(chosen)
    sch = Schedule(func)
    one.apply(sch, chosen)
    loops = (x for x in walk(sch.func.body) if isinstance(x, For) and PIPELINE.of(x))
    return sch, next(loops).var.name


def by_hand(rounds: int = 1, rows: int = 8, warps: int = 1) -> Schedule:
    """Rows of 8 threads, of which the first one copies, in some rounds; of twelve rows all copy."""
    sch = Schedule(product((rows * rounds, 8, 10), "f32"))
    i, j, k = sch.get_loops("C")
    _, i = sch.split(i, [rounds, None])
    sch.bind(i, "threadIdx.y")
    sch.bind(j, "threadIdx.x")
    step, _ = sch.split(k, [None, 2])
    tile = sch.cache_read("C", 2 if rows == 8 else 1, "shared")
    sch.compute_at(tile, step)
    *_, first, last = sch.get_loops(tile)
    sch.bind(last, "threadIdx.x")
    if rows > 8:
        sch.bind(first, "threadIdx.y")
    sch.annotate(tile, "async", 1)
    sch.annotate(step, "pipeline", 2)
    sch.specialize(step, warps)
    return sch


def operands(shape: tuple[int, int, int], dtype: object) -> tuple[Array, Array]:
    m, n, k = shape
    draw = np.random.default_rng(0)
    a, b = draw.integers(-4, 5, (m, k)), draw.integers(-4, 5, (k, n))
    return a.astype(dtype), b.astype(dtype)


def runs(flat: Func, target: Target, shape: tuple[int, int, int], dtype: object) -> Array:
    a, b = operands(shape, dtype)
    return np.asarray(Kernel(compile_flat(flat, target))(a.ravel(), b.ravel()))


CASES: dict[str, tuple[str, str, tuple[int, int, int], str, int, dict[str, int]]] = {
    "mma": ("sm_80", "mma", (70, 40, 160), "f16", 2, SMALL),
    "one operand by stores": ("sm_80", "mma", (64, 31, 96), "f16", 4, SMALL),
    "simt": ("sm_80", "simt", (33, 20, 70), "f32", 2, {}),
    "groups": ("sm_90a", "wgmma", (128, 64, 320), "bf16", 4, {**GROUPS, "stages": 3}),
    "groups, two places": ("sm_90a", "wgmma", (128, 64, 256), "bf16", 4, {**GROUPS, "stages": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_machine_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arch, sketch, shape, dtype, warps, choices = CASES[name]
    target = Target.parse(f"cuda-sim -arch={arch}")
    sch, loop = scheduled(product(shape, dtype), target, sketch, **choices)
    sch.specialize(loop, warps)
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[dtype]
    a, b = operands(shape, kind)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0)
    kernel = Kernel(compile_flat(lower(sch.func, target), target))
    for seed in "01":
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_array_equal(kernel(a.ravel(), b.ravel()), expected.ravel())
    cuda = Target.parse(f"cuda -arch={arch}")
    ptx = nvptx.compile(emit(lower(sch.func, cuda), cuda), cuda)
    assert "cp.async.mbarrier.arrive.noinc" in ptx
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    made = ptxas.assemble(ptx, cuda.cpu)
    assert not made.warnings
    for usage in made.kernels.values():
        assert usage.spill_loads == usage.spill_stores == usage.stack == 0


@pytest.mark.parametrize(("rounds", "rows", "warps"), [(1, 8, 1), (3, 8, 1), (1, 12, 2)])
def test_threads_that_copy_take_turns_for_all(rounds: int, rows: int, warps: int) -> None:
    """Four rows of threads a warp are added; all of a block meet only at the beginning. Places are
    taken in turn over all rounds, though a round has an odd number of steps. Eight rows that copy
    for twelve leave four to the second turn."""
    sch, target = by_hand(rounds, rows, warps), Target.parse("cuda-sim -arch=sm_80")
    flat = lower(sch.func, target)
    text = show(flat)
    assert f'thread("threadIdx.y", {rows + 4 * warps})' in text
    assert text.count('intrinsic("barrier")') == 1
    shape = (rows * rounds, 8, 10)
    expected = np.maximum(np.matmul(*operands(shape, np.float32)), 0)
    np.testing.assert_array_equal(runs(flat, target, shape, np.float32), expected.ravel())
    inputs = [x.ravel() for x in operands(shape, np.float32)]
    (got,) = run(flat, inputs, seed=0, check_races=True)
    np.testing.assert_array_equal(got, expected.ravel())
    again = Trace.from_json(sch.trace.to_json()).replay(product(shape, "f32"))
    assert show(again.func) == show(sch.func)


@pytest.mark.parametrize(
    ("line", "which", "found"),
    [
        ('intrinsic("mbarrier_wait"', 0, r"while an asynchronous copy|before anything|race on"),
        ('intrinsic("mbarrier_wait"', 1, r"race on C_|while an asynchronous copy"),
        ('intrinsic("mbarrier_arrive"', 0, r"deadlock: .* thread \(0, 0, 2\) .*phases\[\d\]"),
        (
            'intrinsic("mbarrier_arrive_copies"',
            0,
            r"deadlock: .* phase 0 of phases\[0\]: 0 of 64",
        ),
        ('intrinsic("warp_barrier"', 0, r"race on C_"),
        ('intrinsic("named_barrier"', 0, r"race on|before anything"),
    ],
)
def test_a_missing_line_is_found(line: str, which: int, found: str) -> None:
    shape, target = (64, 32, 128), Target.parse("cuda-sim -arch=sm_80")
    sch, loop = scheduled(product(shape, "f16"), target, "mma", **SMALL)
    sch.specialize(loop, 2)
    lines = show(lower(sch.func, target)).splitlines()
    at = [n for n, x in enumerate(lines) if x.strip().startswith(line)][which]
    space = len(lines[at]) - len(lines[at].lstrip())
    lines[at] = " " * space + 'intrinsic("commit_async")'
    with pytest.raises(SimulationError) as caught:
        runs(parse("\n".join(lines)), target, shape, np.float16)
    assert re.search(found, str(caught.value)), str(caught.value)


def test_refusals() -> None:
    target = Target.parse("cuda-sim -arch=sm_80")
    sch, loop = scheduled(product((64, 32, 96), "f16"), target, "mma", **SMALL)
    with pytest.raises(ScheduleError, match="9 warps cannot copy"):
        sch.specialize(loop, 9)
    with pytest.raises(ScheduleError, match="is not pipelined"):
        sch.specialize(sch.get_loops("C")[-1], 1)
    sch.specialize(loop, 1)
    with pytest.raises(ScheduleError, match="has such warps already"):
        sch.specialize(loop, 1)
    with pytest.raises(UnsupportedError, match="1 warps that copy beside blocks of 64 x 2"):
        lower(sch.func, target)
    with pytest.raises(UnsupportedError, match="has no mbarriers: it needs sm_80"):
        lower(by_hand().func, Target.parse("cuda-sim -arch=sm_75"))
    with pytest.raises(ScheduleError, match=r"no copy in loop .* is asynchronous"):
        plain, loop = scheduled(product((64, 31, 33), "f16"), target, "mma", **SMALL)
        plain.specialize(loop, 2)
