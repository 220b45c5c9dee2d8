"""Software pipelines and asynchronous copies: what runs ahead, what is waited for, what may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from nestwright.codegen.emit.launches import launches
from nestwright.codegen.lower.gpu.async_copies import Copies
from nestwright.codegen.lower.gpu.software_pipeline import pipeline_loops
from nestwright.codegen.lower.passes.rebuild import with_body
from nestwright.codegen.targets.registry import backend, lower
from nestwright.ir.dtypes import f32
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.loop.build import add, const
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.nodes import (
    Buffer,
    For,
    Func,
    Intrinsic,
    Kind,
    Load,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import map_stmt, walk
from nestwright.ir.target import Target

Lowered: TypeAlias = Callable[[str], Func]
ASYNC = ', **{"async": 1}'


PRODUCT = """\
@func(outputs=1)
def f(A: f32[16, {k}], B: f32[{k}, 16], C: f32[16, 16]):
    S = alloc(f32[16, {k}], scope="shared")
    T = alloc(f32[{k}, 16], scope="shared")
    R = alloc(f32[16, 16], scope="register")
    for b in thread("blockIdx.x", 1):
        for y in thread("threadIdx.y", 8):
            for x in thread("threadIdx.x", 8):
                for j in vectorize(2):
                    for i in range(2):
                        R[i * 8 + y, x * 2 + j] = f32(0.0)
        for k0 in range({steps}{notes}):
            for y in thread("threadIdx.y", 8):
                for x in thread("threadIdx.x", 8):
                    with block("S"{async_}):
                        vi, vk = spatial(16, y * 2 + x // 4), spatial({k}, k0 * 4 + x % 4)
                        reads(A[vi, vk])
                        writes(S[vi, vk])
                        S[vi, vk] = {value}
            for y in thread("threadIdx.y", 4):
                for x in thread("threadIdx.x", 4):
                    for v in vectorize(4):
                        with block("T"{async_}):
                            vk, vj = spatial({k}, k0 * 4 + y), spatial(16, x * 4 + v)
                            reads(B[vk, vj])
                            writes(T[vk, vj])
                            T[vk, vj] = B[vk, vj]
            for y in thread("threadIdx.y", 8):
                for x in thread("threadIdx.x", 8):
                    for k1 in range(4):
                        for i in range(2):
                            for j in vectorize(2):
                                with block("R"):
                                    vi, vj, vk = (
                                        spatial(16, i * 8 + y),
                                        spatial(16, x * 2 + j),
                                        reduce({k}, k0 * 4 + k1),
                                    )
                                    reads(R[vi, vj], S[vi, vk], T[vk, vj])
                                    writes(R[vi, vj])
                                    R[vi, vj] = R[vi, vj] + S[vi, vk] * T[vk, vj]
        for y in thread("threadIdx.y", 8):
            for x in thread("threadIdx.x", 8):
                for i in range(2):
                    for j in vectorize(2):
                        C[i * 8 + y, x * 2 + j] = R[i * 8 + y, x * 2 + j]
"""


def product(notes: str = "", async_: str = "", steps: int = 5, value: str = "A[vi, vk]") -> str:
    """C[16, 16] += A B over ``steps`` tiles of four, by 8 x 8 threads."""
    k = steps * 4
    return PRODUCT.format(notes=notes, async_=async_, steps=steps, value=value, k=k)


def intrinsics(func: Func) -> list[tuple[str, tuple[int, ...]]]:
    """Names and arguments in order."""
    return [(x.name, x.args) for x in walk(func.body) if isinstance(x, Intrinsic)]


@pytest.mark.parametrize("async_", ["", ASYNC])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_pipelined_loop_means_the_same(
    stages: int, steps: int, async_: str, means_the_same: Lowered
) -> None:
    means_the_same(product(f", pipeline={stages}", async_, steps))


def test_copies_run_ahead_and_are_waited_for(means_the_same: Lowered) -> None:
    flat = means_the_same(product(", pipeline=3", ASYNC))
    assert intrinsics(flat) == [
        *([("copy_async", (4,)), ("copy_async", (16,)), ("commit_async", ())]),
        *([("wait_async", (1,)), ("barrier", ())]),
        *([("copy_async", (4,)), ("copy_async", (16,)), ("commit_async", ())]),
    ]
    assert launches(flat)[0].shared_bytes == 2 * 3 * 256
    assert "S[(k0 + 2) % 3 * 64 + " in show(flat)


def test_what_is_not_asynchronous_waits_in_registers(means_the_same: Lowered) -> None:
    flat = means_the_same(product(", pipeline=3"))
    assert intrinsics(flat) == [("barrier", ())]
    text = show(flat)
    order = [
        text.index("for k0 in"),
        text.index("S_next[0] = A["),
        text.index("R[i * 2 + j] +"),
        text.index("= S_next[0]"),
    ]
    assert order == sorted(order)
    assert launches(flat)[0].shared_bytes == 2 * 2 * 256


def test_what_cannot_be_asynchronous_waits_in_registers_too(means_the_same: Lowered) -> None:
    before = product(", pipeline=3", ASYNC, value="A[vi, vk] * f32(2.0)")
    text = show(means_the_same(before))
    order = [
        text.index("wait_async"),
        text.index("S_next[0] = A["),
        text.rindex("copy_async"),
        text.index("R[i * 2 + j] +"),
        text.index("S[(k0 + 2) % 3 * 64 + ty * 8 + tx] = S_next[0]"),
    ]
    assert order == sorted(order)


def test_what_is_too_much_for_registers_is_stored_at_once(means_the_same: Lowered) -> None:
    before = product(", pipeline=2").replace(
        "for v in vectorize(4):",
        "for r in range(32):\n                      for v in vectorize(4):",
    )
    text = show(means_the_same(before))
    assert "S_next" in text and "T_next" not in text


def test_guarded_copies_fill_with_zeros(means_the_same: Lowered) -> None:
    value = "select(vk < 18, A[vi, vk], f32(0.0))"
    flat = means_the_same(product(", pipeline=3", ASYNC, value=value))
    assert ("copy_async_zfill", (4,)) in intrinsics(flat)
    assert "[0] = select(k0 * 4 + tx % 4 < 10, s32(4), s32(0))" in show(flat)


def test_a_vector_that_is_guarded_in_part_is_no_asynchronous_copy(means_the_same: Lowered) -> None:
    guarded = "T[vk, vj] = select(vj < 14, B[vk, vj], f32(0.0))"
    text = product("", ASYNC)
    flat = means_the_same(text.replace("T[vk, vj] = B[vk, vj]", guarded))
    assert [args for name, args in intrinsics(flat) if name.startswith("copy_async")] == [(4,)]


def test_a_name_in_the_loop_stands_for_its_value() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[8, 32], C: f32[8, 32]):
    for bx in thread("blockIdx.x", 1):
        for tx in thread("threadIdx.x", 32):
            for k in range(8, pipeline=2):
                q = let(s64, k // 2)
                S = alloc(f32[32], scope="shared")
                S[tx] = A[q * 2 + k % 2, tx]
                C[k, tx] = S[31 - tx]
"""
    target = Target.parse("cuda-sim -arch=sm_80")
    text = show(pipeline_loops(parse(before), target))
    assert "let(" not in text and "A[(k + 1) // 2 * 2 + (k + 1) % 2, tx]" in text


def test_a_copy_outside_of_a_pipeline_is_waited_for_at_once(means_the_same: Lowered) -> None:
    flat = means_the_same(product("", ASYNC))
    assert intrinsics(flat) == [
        *([("copy_async", (4,)), ("commit_async", ()), ("wait_async", (0,))]),
        *([("copy_async", (16,)), ("commit_async", ()), ("wait_async", (0,))]),
        *([("barrier", ()), ("barrier", ())]),
    ]


def test_older_gpus_copy_through_registers() -> None:
    target = Target.parse("cuda-sim -arch=sm_75")
    flat = lower(parse(product(", pipeline=3", ASYNC)), target)
    assert intrinsics(flat) == [("barrier", ())]


def test_no_note_is_left() -> None:
    target = Target.parse("cuda-sim -arch=sm_80")
    *_, (_, last) = backend(target).lowering.stages(parse(product(", pipeline=3", ASYNC)), target)
    assert "pipeline" not in show(last) and "async=" not in show(last)


@pytest.mark.parametrize("gone", ["barrier", "wait_async"])
def test_waits_are_needed(
    gone: str, means_the_same: Lowered, arguments: Callable[[Func], list[Any]]
) -> None:
    before = product(", pipeline=3", ASYNC)
    flat = means_the_same(before)

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Intrinsic) and s.name == gone:
            return Seq(())
        return map_stmt(s, stmt, lambda e: e)

    args = [a.reshape(-1) for a in arguments(parse(before))]
    with pytest.raises(UndefinedError):
        run(with_body(flat, stmt(flat.body)), args, check_races=True, seed=1)


@pytest.mark.parametrize(
    "before",
    [
        # the copy reads what the loop writes
        product(", pipeline=2")
        .replace("S[vi, vk] = A[vi, vk]", "S[vi, vk] = C[vi, vk % 4]")
        .replace("T[vk, vj] = B[vk, vj]", "T[vk, vj] = C[vj, vk % 4]")
        .replace("reads(A[vi, vk])", "reads(C[vi, 0:16])")
        .replace("reads(B[vk, vj])", "reads(C[vj, 0:16])")
        .replace("R[vi, vj] = R[vi, vj] + S", "C[vi, vj] = C[vi, vj] + S")
        .replace("reads(R[vi, vj]", "reads(C[vi, vj]")
        .replace("writes(R[vi, vj])", "writes(C[vi, vj])"),
        # nothing is copied to shared memory
        product(", pipeline=2")
        .replace('scope="shared"', 'scope="global"')
        .replace("S[vi, vk] = A[vi, vk]", "C[vi, 0] = A[vi, vk]")
        .replace("writes(S[vi, vk])", "writes(C[vi, 0])")
        .replace("T[vk, vj] = B[vk, vj]", "C[vj, 0] = B[vk, vj]")
        .replace("writes(T[vk, vj])", "writes(C[vj, 0])"),
    ],
)
def test_what_cannot_run_ahead_is_refused(before: str, target: Target) -> None:
    with pytest.raises(UnsupportedError, match="cannot be pipelined"):
        lower(parse(before), target)


@pytest.mark.parametrize(("first", "copied"), [(0, True), (1, False), (4, True), (6, False)])
def test_copies_that_begin_between_their_sizes_stay_loads(first: int, copied: bool) -> None:
    """The instruction takes addresses at multiples of the bytes that it copies."""
    source, shared, v = Buffer("A", (64,), f32), Buffer("S", (64,), f32, Scope.SHARED), Var("v")
    body = Store(shared, (v,), Load(source, (add(v, first),)))
    loop = For(v, const(4), body, Kind.VECTOR)
    made = Copies(frozenset({"S"})).stmt(loop, {})
    assert (made is not loop) == copied
