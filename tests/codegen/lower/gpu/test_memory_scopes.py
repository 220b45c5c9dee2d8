"""Buffers that no schedule has placed, and what a launch may ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from nestwright.codegen.emit.launches import launches
from nestwright.codegen.lower.gpu.narrow import narrow_shared
from nestwright.codegen.targets.registry import lower
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.loop.nodes import Alloc, Func, Scope
from nestwright.ir.loop.notes import WORKSPACE_BYTES
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target

Lowered: TypeAlias = Callable[[str], Func]


def nest(first: str, then: str, scope: str = "global", size: int = 64, threads: int = 16) -> str:
    """A launch that fills T[4, size] by ``first`` and reads it by ``then``, in two loops."""
    return f"""\
@func(outputs=1)
def f(A: f32[4, {size}], C: f32[4, {size}]):
    T = alloc(f32[4, {size}], scope="{scope}")
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", {threads}):
            for j in range({size // threads}):
                T[b, {first}] = A[b, {first}]
        for t in thread("threadIdx.x", {threads}):
            for j in range({size // threads}):
                C[b, {first}] = T[b, {then}]
"""


def made(func: Func) -> dict[str, tuple[Scope, int]]:
    """Scopes and sizes of the buffers that a function makes."""
    found = (x.buffer for x in walk(func.body) if isinstance(x, Alloc))
    return {b.name: (b.scope, b.shape[0]) for b in found}


def test_what_a_thread_alone_uses_is_in_its_registers(means_the_same: Lowered) -> None:
    flat = means_the_same(nest("t * 4 + j", "t * 4 + 3 - j"))
    assert made(flat) == {"T": (Scope.REGISTER, 4)}


def test_other_threads_elements_leave_no_gaps(means_the_same: Lowered) -> None:
    flat = means_the_same(nest("j * 16 + t", "j * 16 + t", size=512))
    assert made(flat) == {"T": (Scope.REGISTER, 32)}
    pairs = "j // 2 * 32 + t * 2 + j % 2"
    flat = means_the_same(nest(pairs, pairs, size=512))
    assert made(flat) == {"T": (Scope.REGISTER, 32)}


BACKWARD = """\
@func(outputs=1)
def f(A: f32[16, 16], C: f32[16, 16]):
    R = alloc(f32[1025])
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 16):
            R[0] = A[t, 0]
            for k in range(4):
                for v in range(4):
                    R[(k + 1) * 256 - v] = A[t, k * 4 + v]
            for k in range(4):
                for v in range(4):
                    C[t, k * 4 + v] = R[(k + 1) * 256 - v] + R[0]
"""


def test_elements_before_a_step_are_not_in_its_gap(means_the_same: Lowered) -> None:
    means_the_same(BACKWARD)


REDUCED = """\
@func(outputs=2)
def f(A: f32[{size}], C: f32[1], D: f32[{size}]):
    T = alloc(f32[{size}])
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            with block("C"):
                vi, vk = spatial(1, b), reduce(64, t)
                reads(C[vi], A[vk])
                writes(C[vi])
                with init():
                    C[vi] = f32(0.0)
                C[vi] = C[vi] + A[vk]
        for t in thread("threadIdx.x", 64):
            for j in range({each}):
                T[j * 64 + t] = A[j * 64 + t]
        for t in thread("threadIdx.x", 64):
            for j in range({each}):
                D[j * 64 + t] = T[{last} - j * 64 - t]
"""


def test_warps_that_exchange_results_leave_less_shared_memory(target: Target) -> None:
    size = target.gpu.shared_per_block // 4
    flat = lower(parse(REDUCED.format(size=size, each=size // 64, last=size - 1)), target)
    assert made(flat)["T"] == (Scope.GLOBAL, size)
    assert launches(flat)[0].shared_bytes < target.gpu.shared_per_block


def test_what_is_much_is_in_the_threads_own_memory(means_the_same: Lowered) -> None:
    flat = means_the_same(nest("t * 100 + j", "t * 100 + 99 - j", size=1600))
    assert made(flat) == {"T": (Scope.GLOBAL, 100)}
    assert WORKSPACE_BYTES.of(flat) is None


def test_what_is_too_much_for_a_thread_is_in_the_workspace(means_the_same: Lowered) -> None:
    flat = means_the_same(nest("t * 1100 + j", "t * 1100 + 1099 - j", size=2200, threads=2))
    assert made(flat) == {"T": (Scope.GLOBAL, 8 * 1100)}
    assert WORKSPACE_BYTES.of(flat) == 8 * 4400


def test_what_threads_share_is_in_shared_memory(means_the_same: Lowered) -> None:
    flat = means_the_same(nest("j * 16 + t", "63 - j * 16 - t"))
    assert made(flat) == {"T": (Scope.SHARED, 64)}
    assert launches(flat)[0].shared_bytes == 256


def test_what_is_too_much_for_shared_memory_is_in_the_workspace(target: Target) -> None:
    size = 16 * 4096
    flat = lower(parse(nest("j * 16 + t", f"{size - 1} - j * 16 - t", size=size)), target)
    assert made(flat) == {"T": (Scope.GLOBAL, 4 * size)}
    assert WORKSPACE_BYTES.of(flat) == 16 * size
    assert launches(flat)[0].shared_bytes == 0


def test_every_block_has_its_place_in_the_workspace(
    means_the_same: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = "nestwright.codegen.lower.gpu.memory_scopes"
    monkeypatch.setattr(f"{settle}._shared_bytes", lambda s: 1 << 30)
    flat = means_the_same(nest("j * 16 + t", "63 - j * 16 - t"))
    assert made(flat) == {"T": (Scope.GLOBAL, 256)}


@pytest.mark.parametrize(
    "before,why",
    [
        (nest("j * 16 + t", "63 - j * 16 - t", "register"), "what another one wrote to T"),
        (nest("j * 16 + t", "63 - j * 16 - t", "shared", 16 * 4096), "bytes of shared memory"),
        (nest("t * 200000 + j", "t * 200000 + j", "register", 3200000), "each thread"),
        (nest("j * 2048 + t", "j * 2048 + t", size=2048, threads=2048), "over threadIdx.x"),
        (
            nest("j * 16 + t", "j * 16 + t")
            .replace("threadIdx.x", "threadIdx.z", 1)
            .replace('"threadIdx.x", 16', '"threadIdx.x", 128'),
            "a block of 2048 threads",
        ),
    ],
)
def test_what_exceeds_the_gpu_is_refused(before: str, why: str, target: Target) -> None:
    with pytest.raises(UnsupportedError, match=why):
        lower(parse(before), target)


PHASES = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    for tx in thread("threadIdx.x", 64):
        with alloc(f32[64], scope="shared") as S:
            with alloc(u64[1], scope="shared") as {name}:
                {first}
                S[tx] = A[tx]
                C[tx] = S[63 - tx]
"""


@pytest.mark.parametrize(
    ("name", "first", "kept"),
    [
        ("bars", 'intrinsic("mbarrier_init", writes(bars[0]), args(1))', True),
        ("words", "words[0] = u64(1)", False),
    ],
)
def test_what_became_an_mbarrier_keeps_its_place(name: str, first: str, kept: bool) -> None:
    body = narrow_shared(parse(PHASES.format(name=name, first=first))).body
    around = next(s for s in walk(body) if isinstance(s, Alloc) and s.buffer.name == name)
    inside = {s.buffer.name for s in walk(around.body) if isinstance(s, Alloc)}
    assert ("S" in inside) == kept
