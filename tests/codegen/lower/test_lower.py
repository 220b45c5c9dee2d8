"""Lowering, pass by pass: before and after as text; the whole of it against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.lower.passes.flatten import flatten
from nestwright.codegen.lower.passes.hoist_init import hoist_init
from nestwright.codegen.lower.passes.lower_blocks import lower_blocks
from nestwright.codegen.lower.passes.name_quotients import name_quotients
from nestwright.codegen.lower.passes.partition import partition
from nestwright.codegen.lower.passes.place import compact, place_buffers
from nestwright.codegen.lower.passes.promote import promote
from nestwright.codegen.lower.passes.unroll import choose_unrolling
from nestwright.codegen.lower.passes.workspace import workspace_bytes
from nestwright.codegen.targets.registry import backend, lower
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

pytestmark = pytest.mark.usefixtures("every_pass")

TARGET = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")

HEAD = "@func(outputs=1)\ndef f(A: f32[37], C: f32[37]):\n"
GUARDED = HEAD + (
    "    for i in range(5):\n"
    "        for j in {kind}(8):\n"
    "            if i * 8 + j < 37:\n"
    "                C[i * 8 + j] = A[i * 8 + j]\n"
)


def after(run: Callable[[Func], Func], before: str) -> str:
    func = parse(before)
    result = run(func)
    verify(result)
    return show(result)


def split(before: str) -> str:
    return after(lambda f: partition(f, TARGET), before)


def test_block_becomes_loops_guard_and_first_iteration() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[9, 4], C: f32[9]):
    for i in range(12):
        for k in range(4):
            with block("C"):
                vi, vk = spatial(9, i), reduce(4, k)
                where(i < 9)
                reads(C[vi], A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = f32(0.0)
                C[vi] = C[vi] + A[vi, vk]
"""
    assert (
        after(lower_blocks, before)
        == """\
@func(outputs=1)
def f(A: f32[9, 4], C: f32[9]):
    for i in range(12):
        for k in range(4):
            if i < 9:
                if k == 0:
                    C[i] = f32(0.0)
                C[i] = C[i] + A[i, k]
"""
    )


def test_buffer_is_made_where_it_is_used_and_no_larger() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    T = alloc(f32[64])
    for i in range(8):
        for j in range(8):
            T[i * 8 + j] = A[i * 8 + j]
        for j in range(8):
            C[i * 8 + j] = T[i * 8 + j]
"""
    placed = after(place_buffers, before)
    assert "    for i in range(8):\n        T = alloc(f32[64])\n" in placed
    small = show(compact(place_buffers(parse(before))))
    assert "        T = alloc(f32[8])\n" in small
    assert "T[i * 8 + j - i * 8] = A[i * 8 + j]" in small


def test_buffer_that_a_reduction_carries_stays_outside_of_its_loop() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[4], C: f32[1]):
    T = alloc(f32[1])
    for k in range(4):
        with block("T"):
            vk = reduce(4, k)
            reads(T[0], A[vk])
            writes(T[0])
            with init():
                T[0] = f32(0.0)
            T[0] = T[0] + A[vk]
        with block("C"):
            reads(T[0])
            writes(C[0])
            C[0] = T[0]
"""
    placed = show(place_buffers(parse(before)))
    assert placed.index("alloc(f32[1])") < placed.index("for k in")


def test_buffers_of_statements_apart_share_the_workspace() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    T = alloc(f32[64])
    U = alloc(f32[64])
    for i in range(64):
        T[i] = A[i]
    for i in range(64):
        C[i] = T[i]
    for i in range(64):
        U[i] = A[i]
    for i in range(64):
        C[i] = U[i]
"""
    func = place_buffers(parse(before))
    assert workspace_bytes(func.body) == 256


@pytest.mark.parametrize(
    "line", ["x = let(f32, T[0])", "if T[0] < f32(1.0):", "for j in range(cast(s64, T[0])):"]
)
def test_buffer_is_made_around_what_asks_for_it(line: str) -> None:
    nested = "" if line.startswith("x") else "    "
    placed = place_buffers(
        parse(f"""\
@func(outputs=1)
def f(A: f32[4], C: f32[4]):
    T = alloc(f32[1])
    for i in range(4):
        T[0] = A[i]
        {line}
        {nested}T[0] = T[0] + f32(1.0)
        {nested}C[i] = T[0]
""")
    )
    verify(placed)
    assert "    for i in range(4):\n        T = alloc(f32[1])\n        T[0] = A[i]\n" in show(
        placed
    )


def test_memory_of_a_parallel_body_is_the_threads_own() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[4], C: f32[4]):
    for i in parallel(4):
        T = alloc(f32[100])
        T[0] = A[i]
        C[i] = T[0]
""")
    assert workspace_bytes(func.body) == 0


def test_loop_splits_into_a_main_part_and_an_edge() -> None:
    assert split(GUARDED.format(kind="range")) == HEAD + (
        "    for i in range(4):\n"
        "        for j in range(8):\n"
        "            C[i * 8 + j] = A[i * 8 + j]\n"
        "    for j in range(5):\n"
        "        C[j + 32] = A[j + 32]\n"
    )


def test_two_iterations_that_decide_other_guards_are_parted() -> None:
    before = GUARDED.format(kind="range").replace("i in range(5)", "i in range(2)")
    assert split(before.replace("37", "13")) == HEAD.replace("37", "13") + (
        "    for j in range(8):\n"
        "        C[j] = A[j]\n"
        "    for j in range(5):\n"
        "        C[j + 8] = A[j + 8]\n"
    )


def test_vector_loop_of_the_edge_is_shorter() -> None:
    assert "for j in vectorize(5):" in split(GUARDED.format(kind="vectorize"))


def test_parallel_loop_asks_which_part_it_is_in() -> None:
    before = GUARDED.format(kind="range").replace("i in range", "i in parallel")
    assert split(before) == HEAD + (
        "    for i in parallel(5):\n"
        "        if i < 4:\n"
        "            for j in range(8):\n"
        "                C[i * 8 + j] = A[i * 8 + j]\n"
        "        else:\n"
        "            for j in range(5):\n"
        "                C[j + 32] = A[j + 32]\n"
    )


def test_padding_is_cut_off_at_both_ends() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[6], C: f32[8]):
    for i in range(8):
        C[i] = select(1 <= i and i < 7, A[max(min(i - 1, 5), 0)], f32(0.0))
"""
    assert (
        split(before)
        == """\
@func(outputs=1)
def f(A: f32[6], C: f32[8]):
    C[0] = f32(0.0)
    for i in range(6):
        C[i + 1] = A[i]
    C[7] = f32(0.0)
"""
    )


def test_what_never_runs_is_cut_off() -> None:
    before = HEAD + (
        "    for i in unroll(2):\n"
        "        for j in vectorize(32):\n"
        "            if i * 32 + j < 20:\n"
        "                C[i * 32 + j] = A[i * 32 + j]\n"
    )
    assert split(before) == HEAD + "    for j in vectorize(20):\n        C[j] = A[j]\n"


def test_reduction_begins_before_its_loops() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[9, 4, 5], C: f32[9]):
    for i in range(9):
        for k in range(4):
            for l in vectorize(5):
                if i < 7:
                    if k == 0 and l == 0:
                        C[i] = f32(0.0)
                    C[i] = C[i] + A[i, k, l]
"""
    assert (
        after(hoist_init, before)
        == """\
@func(outputs=1)
def f(A: f32[9, 4, 5], C: f32[9]):
    for i in range(9):
        if i < 7:
            C[i] = f32(0.0)
        for k in range(4):
            for l in vectorize(5):
                if i < 7:
                    C[i] = C[i] + A[i, k, l]
"""
    )


@pytest.mark.parametrize("loop", ["range(i)", "range(max(i, 0))", "parallel(4)"])
def test_reduction_begins_in_loops_that_may_not_run_or_run_in_any_order(loop: str) -> None:
    func = parse(f"""\
@func(outputs=1)
def f(A: f32[9, 4], C: f32[9]):
    for i in range(4):
        for k in {loop}:
            if k == 0:
                C[i] = f32(0.0)
            C[i] = C[i] + A[i, k]
""")
    assert hoist_init(func) is func


IDLE = """
@func(outputs=2)
def f(A: f32[40], C: f32[40], D: f32[40]):
    for i in range(10):
        for j in unroll(4):
            if i * 4 + j < 17:
                C[i * 4 + j] = A[i * 4 + j]
        for j_1 in unroll(4):
            if i * 4 + j_1 < {}:
                D[i * 4 + j_1] = A[i * 4 + j_1]
"""


def test_last_iterations_that_do_nothing_cost_no_copies() -> None:
    """Even where the function may not become longer, and with a guard for each of its parts."""
    func = parse(IDLE.format(14))
    assert "for i in range(5):" in show(partition(func, TARGET, limit=0))
    assert "for i in range(9):" in show(partition(parse(IDLE.format(33)), TARGET, limit=0))
    whole = parse(IDLE.format(40))
    assert partition(whole, TARGET, limit=0) is whole


def test_no_guard_no_change() -> None:
    func = parse(HEAD + "    for i in range(37):\n        C[i] = A[i]\n")
    assert partition(func, TARGET) is func
    assert lower_blocks(func) is func
    assert hoist_init(func) is func
    assert name_quotients(func) is func
    assert promote(func) is func
    assert flatten(func) is func


def test_parts_of_a_fused_index_get_names() -> None:
    before = HEAD + (
        "    for f in range(10):\n"
        "        if f // 2 * 8 + f % 2 < 37:\n"
        "            C[f // 2 * 8 + f % 2] = A[f]\n"
    )
    assert after(name_quotients, before) == HEAD + (
        "    for f in range(10):\n"
        "        f_0 = let(s64, f // 2)\n"
        "        f_1 = let(s64, f % 2)\n"
        "        if f_0 * 8 + f_1 < 37:\n"
        "            C[f_0 * 8 + f_1] = A[f]\n"
    )


def test_quotients_of_several_loops_get_no_names() -> None:
    func = parse(
        HEAD + "    for i in range(5):\n"
        "        for j in range(8):\n"
        "            if (i * 8 + j) // 7 < 5:\n"
        "                C[i * 8 + j - 3] = A[i]\n"
    )
    assert name_quotients(func) is func


def test_updated_element_is_held_in_a_register() -> None:
    before = "@func(outputs=1)\ndef f(A: f32[8], C: f32[1]):\n" + (
        "    C[0] = f32(0.0)\n    for k in range(8):\n        C[0] = C[0] + A[k]\n"
    )
    assert after(promote, before).endswith(
        '    C_kept = alloc(f32[1], scope="register")\n'
        "    C_kept[0] = C[0]\n"
        "    for k in range(8):\n"
        "        C_kept[0] = C_kept[0] + A[k]\n"
        "    C[0] = C_kept[0]\n"
    )


def test_vector_reduction_keeps_one_partial_result_per_lane() -> None:
    before = "@func(outputs=1)\ndef f(A: f32[64], C: f32[1]):\n" + (
        "    C[0] = f32(-inf)\n"
        "    for k in range(8):\n"
        "        for l in vectorize(8):\n"
        "            C[0] = max(C[0], A[k * 8 + l])\n"
    )
    assert after(promote, before).endswith(
        '    C_lanes = alloc(f32[8], scope="register")\n'
        "    for l in vectorize(8):\n"
        "        C_lanes[l] = f32(-inf)\n"
        "    for k in range(8):\n"
        "        for l in vectorize(8):\n"
        "            C_lanes[l] = max(C_lanes[l], A[k * 8 + l])\n"
        "    for l in vectorize(8):\n"
        "        C[0] = max(C[0], C_lanes[l])\n"
    )


def test_element_that_the_loop_also_reads_elsewhere_stays_in_memory() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[8], C: f32[8]):
    for k in range(8):
        C[0] = C[0] + A[k] + C[k]
""")
    assert promote(func) is func


def test_an_element_that_all_lanes_update_stays_in_memory() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[8, 4], C: f32[1]):
    for l in vectorize(8):
        for k in range(4):
            C[0] = C[0] + A[l, k]
""")
    assert promote(func) is func


@pytest.mark.parametrize("inner", ["range(i)", "parallel(2)"])
def test_element_that_may_not_be_updated_stays_in_memory(inner: str) -> None:
    func = parse(f"""\
@func(outputs=1)
def f(A: f32[4], C: f32[4]):
    for i in range(4):
        for k in range(8):
            for l in {inner}:
                C[i] = C[i] + A[i]
""")
    assert promote(func) is func


def test_a_thousand_partial_results_are_too_many() -> None:
    text = "@func(outputs=1)\ndef f(A: f32[8, {0}], C: f32[1]):\n" + (
        "    for k in range(8):\n"
        "        for l in vectorize({0}):\n"
        "            C[0] = C[0] + A[k, l]\n"
    )
    assert "alloc(f32[256], scope=" in show(promote(parse(text.format(256))))
    func = parse(text.format(257))
    assert promote(func) is func


def test_loop_over_a_register_tile_is_written_out_and_a_huge_one_is_not() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[4], C: f32[9999]):
    T = alloc(f32[4], scope="register")
    for i in range(4):
        T[i] = A[i]
    for i in unroll(9999):
        C[i] = T[0]
"""
    result = show(choose_unrolling(parse(before), TARGET))
    assert "for i in unroll(4):" in result
    assert "for i in range(9999):" in result


@pytest.mark.parametrize(("extent", "inner"), [(8, "unroll(8)"), (40, "range(40)")])
def test_loops_in_what_is_written_out_count_as_often(extent: int, inner: str) -> None:
    before = f"""\
@func(outputs=1)
def f(A: f32[{extent * extent}], C: f32[1]):
    T = alloc(f32[{extent * extent}], scope="register")
    for i in range({extent}):
        for j in range({extent}):
            T[i * {extent} + j] = A[i * {extent} + j]
    C[0] = T[0]
"""
    result = show(choose_unrolling(parse(before), TARGET))
    assert f"for i in unroll({extent}):" in result and f"for j in {inner}:" in result


def test_flat_buffers() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[4, 5], C: f32[5, 4]):
    for i in range(4):
        for j in range(5):
            C[j, i] = A[i, j]
"""
    assert after(flatten, before).endswith("C[j * 4 + i] = A[i * 5 + j]\n")


IN_TILES = """\
@func(outputs=1)
def mm(A: f32[13, 7], B: f32[7, 21], C: f32[13, 21]):
  T = alloc(f32[13, 21], scope="register")
  for f in {outer}(8):
    for i in unroll(4):
      for j in vectorize(16):
        with block("init"):
          vi, vj = spatial(13, f // 2 * 4 + i), spatial(21, f % 2 * 16 + j)
          where(f // 2 * 4 + i < 13 and f % 2 * 16 + j < 21)
          reads()
          writes(T[vi, vj])
          T[vi, vj] = f32(0.0)
    for k in range(7):
      for i in unroll(4):
        for j in vectorize(16):
          with block("update"):
            vi, vj, vk = spatial(13, f // 2 * 4 + i), spatial(21, f % 2 * 16 + j), reduce(7, k)
            where(f // 2 * 4 + i < 13 and f % 2 * 16 + j < 21)
            reads(T[vi, vj], A[vi, vk], B[vk, vj])
            writes(T[vi, vj])
            T[vi, vj] = T[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in unroll(4):
      for j in vectorize(16):
        with block("store"):
          vi, vj = spatial(13, f // 2 * 4 + i), spatial(21, f % 2 * 16 + j)
          where(f // 2 * 4 + i < 13 and f % 2 * 16 + j < 21)
          reads(T[vi, vj])
          writes(C[vi, vj])
          C[vi, vj] = T[vi, vj]
"""


@pytest.mark.parametrize("outer", ["range", "parallel"])
def test_every_stage_means_the_same(outer: str) -> None:
    func = parse(IN_TILES.format(outer=outer))
    rng = np.random.default_rng(0)
    args: list[Any] = [rng.standard_normal(b.shape).astype(np.float32) for b in func.params[:2]]
    want = run(func, args)[0]
    for name, stage in backend(TARGET).lowering.stages(func, TARGET):
        verify(stage)
        flat = [a.reshape(p.shape) for a, p in zip(args, stage.params, strict=False)]
        got = run(stage, flat)[0].reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=name)


def test_tile_keeps_no_guard_and_its_registers_have_constant_places() -> None:
    text = show(lower(parse(IN_TILES.format(outer="range")), TARGET))
    assert 'alloc(f32[64], scope="register")' in text
    assert "T[i * 16 + j] = T[i * 16 + j] + " in text
    assert [x for x in text.splitlines() if "if " in x] == [
        "        if f_0 < 3:",
        "            if f_1 < 1:",
        "            if f_1 < 1:",
    ]
