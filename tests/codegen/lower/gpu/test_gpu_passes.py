"""Lowering for GPUs: launches, guards, reductions over threads. Before and after, and meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from nestwright.codegen.emit.launches import launches
from nestwright.codegen.lower.gpu.bind import bind_threads
from nestwright.codegen.lower.passes.flatten import flatten
from nestwright.codegen.lower.passes.place import compact, place_buffers
from nestwright.codegen.plan.code.device import LaunchConfig
from nestwright.codegen.targets.registry import lower
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import WORKSPACE_BYTES
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.simplify import simplify_stmt
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

Lowered: TypeAlias = Callable[[str], Func]


def after(run: Callable[[Func], Func], before: str) -> str:
    func = parse(before)
    result = run(func)
    verify(result)
    return show(result)


TWO = """\
@func(outputs=1)
def f(A: f32[1000], C: f32[1000]):
    T = alloc(f32[1000])
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 64):
            for v in vectorize(4):
                with block("T"):
                    vi = spatial(1000, b * 256 + t * 4 + v)
                    where(b * 256 + t * 4 + v < 1000)
                    reads(A[vi])
                    writes(T[vi])
                    T[vi] = A[vi] + f32(1.0)
    for b in thread("blockIdx.x", 8):
        for t in thread("threadIdx.x", 128):
            with block("C"):
                vi = spatial(1000, b * 128 + t)
                where(b * 128 + t < 1000)
                reads(T[vi])
                writes(C[vi])
                C[vi] = T[vi] * f32(2.0)
"""


def test_nests_become_launches_around_which_their_buffers_live(means_the_same: Lowered) -> None:
    flat = means_the_same(TWO)
    assert launches(flat) == (
        LaunchConfig("f", (4, 1, 1), (64, 1, 1), 0),
        LaunchConfig("f_1", (8, 1, 1), (128, 1, 1), 0),
    )
    assert WORKSPACE_BYTES.of(flat) == 63 * 64
    assert show(flat).split("\n")[2:9] == [
        "    with alloc(f32[1000]) as T:",
        '        for bx in thread("blockIdx.x", 4):',
        '            for tx in thread("threadIdx.x", 64):',
        "                for v in vectorize(4):",
        "                    if bx * 64 + tx < 250:",
        "                        T[bx * 256 + tx * 4 + v] = A[bx * 256 + tx * 4 + v] + f32(1.0)",
        '        for bx in thread("blockIdx.x", 8):',
    ]


def test_loops_are_gathered_in_order_and_shorter_ones_guarded() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    for t in thread("threadIdx.y", 4):
        for b in thread("blockIdx.x", 2):
            for u in thread("threadIdx.x", 8):
                C[b * 32 + t * 8 + u] = A[b * 32 + t * 8 + u]
            for u in thread("threadIdx.x", 5):
                C[b * 32 + t * 8 + u] = A[u]
"""
    assert (
        after(bind_threads, before)
        == """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    for bx in thread("blockIdx.x", 2):
        for ty in thread("threadIdx.y", 4):
            for tx in thread("threadIdx.x", 8):
                C[bx * 32 + ty * 8 + tx] = A[bx * 32 + ty * 8 + tx]
                if tx < 5:
                    C[bx * 32 + ty * 8 + tx] = A[tx]
"""
    )


def test_what_others_see_is_stored_by_one_thread_and_kept_values_by_each() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[2, 8], C: f32[2, 9]):
    R = alloc(f32[1], scope="register")
    for b in thread("blockIdx.x", 2):
        R[0] = A[b, 0]
        for k in parallel(3):
            C[b, 8] = C[b, 8] + R[0]
        for t in thread("threadIdx.x", 8):
            C[b, t] = A[b, t] + R[0]
"""
    assert (
        after(lambda f: bind_threads(place_buffers(f)), before)
        == """\
@func(outputs=1)
def f(A: f32[2, 8], C: f32[2, 9]):
    for bx in thread("blockIdx.x", 2):
        for tx in thread("threadIdx.x", 8):
            R = alloc(f32[1], scope="register")
            R[0] = A[bx, 0]
            if tx == 0:
                for k in range(3):
                    C[bx, 8] = C[bx, 8] + R[0]
            C[bx, tx] = A[bx, tx] + R[0]
"""
    )


def test_one_thread_fills_shared_memory_where_all_would_with_the_same(
    means_the_same: Lowered,
) -> None:
    before = """\
@func(outputs=1)
def f(A: f32[2, 8], C: f32[2, 8]):
    S = alloc(f32[2, 8], scope="shared")
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 8):
            for j in range(8):
                with block("S"):
                    vi, vj = spatial(2, b), spatial(8, j)
                    reads(A[vi, vj])
                    writes(S[vi, vj])
                    S[vi, vj] = A[vi, vj]
            C[b, t] = S[b, 7 - t]
"""
    assert "if tx == 0:" in show(means_the_same(before))
    block = """\
            for u in thread("threadIdx.x", 8):
                with block("S"):
                    vi, vj = spatial(2, b), spatial(8, u)
                    reads(A[vi, vj])
                    writes(S[vi, vj])
                    S[vi, vj] = A[vi, vj]
"""
    start, end = before.index("            for j in"), before.index("            C[")
    assert "if tx" not in show(means_the_same(before[:start] + block + before[end:]))


def test_statements_bound_to_nothing_share_a_launch_of_one_thread(means_the_same: Lowered) -> None:
    before = """\
@func(outputs=2)
def f(A: f32[8], B: f32[()], C: f32[8]):
    T = alloc(f32[8])
    for i in parallel(8):
        T[i] = A[i] * f32(2.0)
    B[()] = T[7]
    for b in thread("blockIdx.x", 8):
        C[b] = B[()] + T[b]
"""
    flat = means_the_same(before)
    assert [x.grid[0] * x.threads for x in launches(flat)] == [1, 8]
    assert WORKSPACE_BYTES.of(flat) == 64


def test_shared_memory_covers_all_threads_registers_each_their_own(means_the_same: Lowered) -> None:
    before = """\
@func(outputs=1)
def f(A: f32[64, 8], C: f32[64, 8]):
    S = alloc(f32[64, 8], scope="shared")
    R = alloc(f32[64, 8], scope="register")
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 16):
            for j in range(8):
                S[b * 16 + t, j] = A[b * 16 + t, j]
        for t in thread("threadIdx.x", 16):
            for j in range(8):
                R[b * 16 + t, j] = S[b * 16 + 15 - t, j]
            for j in range(8):
                C[b * 16 + t, j] = R[b * 16 + t, j]
"""

    def small(f: Func) -> Func:
        f = compact(bind_threads(place_buffers(f)))
        return Func(f.name, f.params, f.outputs, simplify_stmt(f.body))

    assert (
        after(small, before)
        == """\
@func(outputs=1)
def f(A: f32[64, 8], C: f32[64, 8]):
    for bx in thread("blockIdx.x", 4):
        for tx in thread("threadIdx.x", 16):
            S = alloc(f32[16, 8], scope="shared")
            for j in range(8):
                S[tx, j] = A[bx * 16 + tx, j]
            R = alloc(f32[1, 8], scope="register")
            for j in range(8):
                R[0, j] = S[15 - tx, j]
            for j in range(8):
                C[bx * 16 + tx, j] = R[0, j]
"""
    )
    assert launches(means_the_same(before))[0].shared_bytes == 512


def test_alignment_and_swizzle_move_what_stands_in_shared_memory() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[8, 32], C: f32[8, 32]):
    S = alloc(f32[8, 32], scope="shared", align=(0, 8, 1))
    T = alloc(f32[8, 32], scope="shared", swizzle=8)
    for i in range(8):
        for j in range(32):
            S[i, j] = A[i, j]
    for i in range(8):
        for j in range(8):
            for v in range(4):
                T[i, j * 4 + v] = S[i, j * 4 + v]
    C[0, 0] = T[7, 31]
"""
    text = after(flatten, before)
    assert 'S = alloc(f32[264], scope="shared")' in text
    assert "S[i * 33 + j] = " in text
    func = flatten(parse(before))
    text = show(Func("f", func.params, 1, simplify_stmt(func.body), func.allocs))
    assert "T[i * 32 + (j ^ i) * 4 + v]" in text
    assert "C[0] = T[227]" in text


ROWS = """\
@func(outputs=1)
def f(A: f32[10, {n}], C: f32[10]):
    for b in thread("blockIdx.x", 3):
        for y in thread("threadIdx.y", 4):
            for k0 in range({steps}):
                for k1 in thread("threadIdx.x", {threads}):
                    with block("C"):
                        vi, vk = spatial(10, b * 4 + y), reduce({n}, k0 * {threads} + k1)
                        where(b * 4 + y < 10 and k0 * {threads} + k1 < {n})
                        reads(C[vi], A[vi, vk])
                        writes(C[vi])
                        with init():
                            C[vi] = f32({start})
                        C[vi] = {op}
"""
SUM = "C[vi] + A[vi, vk]"


@pytest.mark.parametrize("threads,n", [(32, 100), (8, 64), (5, 33)])
@pytest.mark.parametrize("op,start", [(SUM, 0.0), (SUM, 3.0), ("max(C[vi], A[vi, vk])", -9.0)])
def test_reductions_over_threads(
    threads: int, n: int, op: str, start: float, means_the_same: Lowered
) -> None:
    steps = -(-n // threads)
    flat = means_the_same(ROWS.format(threads=threads, n=n, steps=steps, op=op, start=start))
    (one,) = launches(flat)
    assert one.block == (1 << (threads - 1).bit_length(), 4, 1)


def test_a_reduction_over_threads_is_a_partial_result_each_then_one_of_all(
    means_the_same: Lowered,
) -> None:
    before = ROWS.format(threads=32, n=64, steps=2, op=SUM, start=3.0)
    assert (
        show(means_the_same(before))
        == """\
@func(outputs=1)
def f(A: f32[640], C: f32[10]):
    for bx in thread("blockIdx.x", 3):
        for ty in thread("threadIdx.y", 4):
            for tx in thread("threadIdx.x", 32):
                C_part = alloc(f32[1], scope="register")
                C_part[0] = f32(0.0)
                for k0 in range(2):
                    if bx * 4 + ty < 10:
                        C_part[0] = C_part[0] + A[bx * 256 + ty * 64 + k0 * 32 + tx]
                C_all = alloc(f32[1], scope="register")
                C_all[0] = C_part[0]
                all_reduce(32, C_all, lambda left, right: left + right)
                if bx * 4 + ty < 10 and tx == 0:
                    C[bx * 4 + ty] = f32(3.0) + C_all[0]
"""
    )


SOFTMAX = """\
@func(outputs=1)
def f(A: f32[3, 100], O: f32[3, 100]):
    M = alloc(f32[3], scope="{scope}")
    S = alloc(f32[3], scope="{scope}")
    for b in thread("blockIdx.x", 3):
        for k0 in range(4):
            for k1 in thread("threadIdx.x", 25):
                with block("M"):
                    vi, vk = spatial(3, b), reduce(100, k0 * 25 + k1)
                    reads(M[vi], A[vi, vk])
                    writes(M[vi])
                    with init():
                        M[vi] = f32(-inf)
                    M[vi] = max(M[vi], A[vi, vk])
        for k0 in range(4):
            for k1 in thread("threadIdx.x", 25):
                with block("S"):
                    vi, vk = spatial(3, b), reduce(100, k0 * 25 + k1)
                    reads(S[vi], M[vi], A[vi, vk])
                    writes(S[vi])
                    with init():
                        S[vi] = f32(0.0)
                    S[vi] = S[vi] + exp(A[vi, vk] - M[vi])
        for k0 in range(4):
            for k1 in thread("threadIdx.x", 25):
                with block("O"):
                    vi, vk = spatial(3, b), spatial(100, k0 * 25 + k1)
                    reads(S[vi], M[vi], A[vi, vk])
                    writes(O[vi, vk])
                    O[vi, vk] = exp(A[vi, vk] - M[vi]) / S[vi]
"""


@pytest.mark.parametrize("scope", ["shared", "global", "register"])
def test_results_of_reductions_pass_on_to_all_threads(scope: str, means_the_same: Lowered) -> None:
    means_the_same(SOFTMAX.format(scope=scope))


ARGMAX = """\
@func(outputs=2)
def f(A: f32[3, 100], V: f32[3], I: s32[3]):
    for b in thread("blockIdx.x", 3):
        for k1 in thread("threadIdx.x", 16):
            for k0 in range(7):
                with block("M"):
                    vi, vk = spatial(3, b), reduce(100, {k})
                    where({k} < 100)
                    reads(V[vi], I[vi], A[vi, vk])
                    writes(V[vi], I[vi])
                    with init():
                        V[vi] = f32(-inf)
                        I[vi] = s32(0)
                    v = let(f32, V[vi])
                    i = let(s32, I[vi])
                    V[vi] = select(v >= A[vi, vk], v, A[vi, vk])
                    I[vi] = select(v >= A[vi, vk], i, cast(s32, vk))
"""


def test_pairs_are_combined_together_and_in_order(means_the_same: Lowered) -> None:
    flat = means_the_same(ARGMAX.format(k="k1 * 7 + k0"))
    assert "all_reduce(16, V_all, I_all, lambda" in show(flat)


@pytest.mark.parametrize(
    "before,why",
    [
        (ARGMAX.format(k="k0 * 16 + k1"), "is not commutative"),
        (
            ROWS.format(threads=32, n=64, steps=2, op=SUM, start=0.0).replace(
                "threadIdx.x", "threadIdx.z"
            ),
            "only threads in a row",
        ),
        (
            TWO.replace('for b in thread("blockIdx.x", 8)', "for k in range(8)")
            .replace('thread("threadIdx.x", 128)', 'thread("blockIdx.x", 128)')
            .replace("b * 128 + t", "k * 128 + t"),
            "blocks of a launch run at once",
        ),
        (TWO.replace("alloc(f32[1000])", 'alloc(f32[1000], scope="shared")'), "several launches"),
    ],
)
def test_what_threads_cannot_do_is_refused(before: str, why: str, target: Target) -> None:
    with pytest.raises(UnsupportedError, match=why):
        lower(parse(before), target)
