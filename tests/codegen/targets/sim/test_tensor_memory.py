"""Simulated and interpreted tensor memory: sums of products there, and what is found in it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import SimulationError, UnsupportedError
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

TARGET = "cuda-sim -arch=sm_100a"

SUMS = """
@func(outputs=1)
def sums(A: {left}[{rows}], B: {right}[{columns}], C: {sums}[2048]):
    for t in thread("threadIdx.x", 128):
        SA = alloc({left}[{rows}], scope="shared")
        SB = alloc({right}[{columns}], scope="shared")
        slot = alloc(u32[1], scope="shared")
        done = alloc(u64[2], scope="shared")
        T = alloc({sums}[32], scope="tensor")
        base = alloc(u32[1], scope="register")
        flag = alloc(s32[1], scope="register")
        parity = alloc(s32[1], scope="register")
        R = alloc({sums}[16], scope="register")
        for c in range(2):
            for v in range({per}):
                SA[(t * 2 + c ^ (t * 2 + c) // 8 % 2) * {per} + v] = A[(t * 2 + c) * {per} + v]
        if t < 32:
            for v in range({per}):
                SB[(t ^ t // 8 % 2) * {per} + v] = B[t * {per} + v]
            intrinsic("tensor_alloc", writes(slot[0]), args(32))
        if t == 0:
            intrinsic("mbarrier_init", writes(done[0]), args(1))
            intrinsic("mbarrier_init", writes(done[1]), args(1))
            intrinsic("fence_mbarrier_init")
        intrinsic("fence_proxy_async")
        intrinsic("tensor_fence_before")
        intrinsic("barrier")
        intrinsic("tensor_fence_after")
        base[0] = slot[0]
        if t == 0:
            for k in range(2):
                flag[0] = cast(s32, k)
                intrinsic("{name}", writes(T[8]), reads(flag[0], base[0], SA[0 : {per}], \
SB[0 : {per}]), args(0, 0, 32, 0, 256, 32, 0, 256))
                intrinsic("tensor_commit", writes(done[k]))
        parity[0] = s32(0)
        intrinsic("mbarrier_wait", reads(done[1], parity[0]))
        intrinsic("tensor_fence_after")
        intrinsic("tensor_load.x16", writes(R[0 : 16]), reads(T[8], base[0]))
        intrinsic("tensor_wait", writes(R[0 : 16]), reads(R[0 : 16]))
        for v in range(16):
            C[t * 16 + v] = R[v]
        intrinsic("tensor_fence_before")
        intrinsic("barrier")
        intrinsic("tensor_fence_after")
        if t < 32:
            intrinsic("tensor_free", reads(base[0]), args(32))
"""
"""Twice 128 x 16 by 16 x 16 transposed, with swizzles of 32 bytes."""

KINDS = {
    "bf16": "m128n16k16.bf16",
    "f16": "m128n16k16.f16",
    "f32": "m128n16k8.tf32",
    "s8": "m128n16k32.s8",
    "f8e4m3fn": "m128n16k32.f8e4m3fn",
    "f8e5m2.f8e4m3fn": "m128n16k32.f8e5m2.f8e4m3fn",
}


def text_of(kind: str) -> str:
    left, right = kind.split(".") * (2 - kind.count("."))
    per, sums = 16 // BY_NAME[left].bytes, "s32" if kind == "s8" else "f32"
    return SUMS.format(
        left=left,
        right=right,
        per=per,
        rows=256 * per,
        columns=32 * per,
        sums=sums,
        name=f"tcgen05.{KINDS[kind]}.{sums}",
    )


def operands(kind: str) -> tuple[Array, Array]:
    rng, types = np.random.default_rng(0), kind.split(".") * (2 - kind.count("."))
    a, b = (
        rng.integers(-4, 5, (rows, 32 // BY_NAME[t].bytes)).astype(to_numpy(BY_NAME[t]))
        for rows, t in zip((128, 16), types, strict=True)
    )
    return a, b


def kernel(text: str) -> Kernel:
    func = parse(text)
    verify(func)
    return Kernel(compile_flat(func, Target.parse(TARGET)))


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_each_kind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(kind)
    wide = np.int32 if kind == "s8" else np.float32
    expected = 2 * (a.astype(wide) @ b.astype(wide).T).ravel()
    simulated = kernel(text_of(kind))
    for seed in "01":
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_array_equal(simulated(a.ravel(), b.ravel()), expected)
    if kind == "s8":
        (got,) = run(parse(text_of(kind)), [a.ravel(), b.ravel()], seed=0, check_races=True)
        np.testing.assert_array_equal(got, expected)


def test_architectures_without_it() -> None:
    for arch in ("sm_90a", "sm_100", "sm_120a"):
        with pytest.raises(UnsupportedError, match="tensor_alloc"):
            compile_flat(parse(text_of("bf16")), Target.parse(f"cuda-sim -arch={arch}"))
    with pytest.raises(UnsupportedError, match="tcgen05"):
        compile_flat(parse(text_of("s8")), Target.parse("cuda-sim -arch=sm_103a"))


def call(name: str, rest: str = "") -> str:
    """A call of the program."""
    return f'intrinsic("{name}"{rest})'


LOADED = ", writes(R[0 : 16]), reads(R[0 : 16])"
LATER, AFTER = call("tensor_fence_before"), call("tensor_fence_after")
ALLOC, PHASE = ", writes(slot[0]), args({})", ", reads(done[{}], parity[0])"
FREE = ", reads(base[0]), args({})"
FAULTS: dict[str, tuple[str, int, str, str, str]] = {
    "no wait for the phase": (
        *(call("mbarrier_wait", PHASE.format(1)), 1, ""),
        *("under way|before anything", "under way|never written"),
    ),
    "another phase": (
        *(call("mbarrier_wait", PHASE.format(1)), 1, call("mbarrier_wait", PHASE.format(0))),
        *("under way", "under way"),
    ),
    "no wait for a load": (call("tensor_wait", LOADED), 1, "", "accessed early", "nothing wrote R"),
    "allocated, no fence": (LATER, 1, "", "fence_before", "fence_before"),
    "loaded, no fence": (LATER, 2, "", "fence_before", "fence_before"),
    "no fence to multiply": (AFTER, 1, "", "fence_after", "fence_after"),
    "no fence to load": (AFTER, 2, "", "fence_after", "fence_after"),
    "no fence to free": (AFTER, 3, "", "fence_after", "fence_after"),
    "odd columns": (
        *(call("tensor_alloc", ALLOC.format(32)), 1, call("tensor_alloc", ALLOC.format(48))),
        *("not to be had", "not to be had"),
    ),
    "many columns": (
        *(call("tensor_alloc", ALLOC.format(32)), 1, call("tensor_alloc", ALLOC.format(1024))),
        *("not to be had", "not to be had"),
    ),
    "not allocated": (
        *(call("tensor_alloc", ALLOC.format(32)), 1, ""),
        *("before anything|no columns", "no columns|nothing wrote"),
    ),
    "not freed": (call("tensor_free", FREE.format(32)), 1, "", "ends with", "ends with"),
    "other columns freed": (
        *(call("tensor_free", FREE.format(32)), 1, call("tensor_free", FREE.format(64))),
        *("not to be had", "are freed"),
    ),
    "operands not fenced": (call("fence_proxy_async"), 1, "", "asynchronous proxy", "seen asynch"),
    "no commit": (call("tensor_commit", ", writes(done[k])"), 1, "", "deadlock", "deadlock"),
    "added to nothing": (
        *("flag[0] = cast(s32, k)", 1, "flag[0] = s32(1)"),
        *("before anything", "never written"),
    ),
}


def with_faults() -> str:
    """The program with all faults, of which its last input says the number."""
    found, lines = {}, text_of("bf16").splitlines()
    for number, (old, which, new, *_) in enumerate(FAULTS.values()):
        at = [n for n, line in enumerate(lines) if line.strip() == old][which - 1]
        found.setdefault(at, []).append((number, new))
    done = []
    for n, line in enumerate(lines):
        space = line[: len(line) - len(line.lstrip())]
        for number, new in found.get(n, ()):
            done += [f"{space}if F[0] == s32({number}):", f"{space}    {new or 'pass'}"]
        if n in found:
            test = " and ".join(f"F[0] != s32({number})" for number, _ in found[n])
            done.append(f"{space}if {test}:")
            line = f"    {line}"
        done.append(line)
    return "\n".join(done).replace("B: bf16[256]", "B: bf16[256], F: s32[1]")


def test_faults() -> None:
    """Each order and each call is there for a reason that both executions find."""
    a, b = (x.ravel() for x in operands("bf16"))
    text = with_faults()
    func, simulated = parse(text), kernel(text)
    none = np.array([-1], np.int32)
    assert np.array_equal(simulated(a, b, none), run(func, [a, b, none], seed=0)[0])
    for number, (name, row) in enumerate(FAULTS.items()):
        which = np.array([number], np.int32)
        with pytest.raises(SimulationError) as told:
            simulated(a, b, which)
        assert re.search(row[3], str(told.value)), (name, told.value)
        with pytest.raises(UndefinedError) as found:
            run(func, [a, b, which], seed=0, check_races="asynch" in row[4])
        assert re.search(row[4], str(found.value)), (name, found.value)
