"""Simulated bulk copies and products of 128 threads: their results, and what is found in them."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import SimulationError
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

TARGET = "cuda-sim -arch=sm_90a"

PIPELINE = """
@func(outputs=1)
def group(A: bf16[7680], B: bf16[8192], C: f32[4096]):
    for t in thread("threadIdx.x", 160):
        SA = alloc(bf16[8192], scope="shared")
        SB = alloc(bf16[8192], scope="shared")
        full = alloc(u64[2], scope="shared")
        empty = alloc(u64[2], scope="shared")
        if t == 0:
            for i in range(2):
                intrinsic("mbarrier_init", writes(full[i]), args(1))
                intrinsic("mbarrier_init", writes(empty[i]), args(128))
            intrinsic("fence_mbarrier_init")
        intrinsic("barrier")
        if t < 128:
            R = alloc(f32[32], scope="register")
            for e in range(32):
                R[e] = f32(0.0)
            for k in range(4):
                p = alloc(s32[1], scope="register")
                p[0] = cast(s32, k // 2 % 2)
                intrinsic("mbarrier_wait", reads(full[k % 2], p[0]))
                intrinsic("wgmma_fence")
                for h in unroll(2):
                    intrinsic("wgmma.m64n64k16.bf16.f32", writes(R[0 : 32]), reads(R[0 : 32], \
SA[k % 2 * 4096 + h * 16 : k % 2 * 4096 + h * 16 + 8], \
SB[k % 2 * 4096 + h * 16 : k % 2 * 4096 + h * 16 + 8]), args(0, 0, 64, 0, 512, 64, 0, 512))
                intrinsic("wgmma_commit")
                intrinsic("wgmma_wait", writes(R[0 : 32]), reads(R[0 : 32]), args(0))
                intrinsic("mbarrier_arrive", writes(empty[k % 2]))
            for e in range(32):
                C[(t // 32 * 16 + t % 32 // 4 + e // 2 % 2 * 8) * 64 + e // 4 * 8 + t % 4 * 2 \
+ e % 2] = R[e]
        else:
            if t == 128:
                for k in range(4):
                    p = alloc(s32[1], scope="register")
                    q = alloc(s32[2], scope="register")
                    p[0] = cast(s32, (k // 2 + 1) % 2)
                    intrinsic("mbarrier_wait", reads(empty[k % 2], p[0]))
                    intrinsic("mbarrier_expect", writes(full[k % 2]), args(8192))
                    q[0] = cast(s32, k * 32)
                    q[1] = s32(0)
                    intrinsic("tma_load", writes(SA[k % 2 * 4096 : k % 2 * 4096 + 2048]), \
reads(A[0 : 7680], q[0 : 2], full[k % 2]), args(120, 64, 120, 32, 64, 64))
                    intrinsic("tma_load", writes(SB[k % 2 * 4096 : k % 2 * 4096 + 2048]), \
reads(B[0 : 8192], q[0 : 2], full[k % 2]), args(128, 64, 128, 32, 64, 64))
"""
"""64 x 120 by 64 x 128 transposed, a warp loading boxes of 64 x 32 into two places in turn."""

INIT = '            intrinsic("fence_mbarrier_init")\n'
EXPECT = '                    intrinsic("mbarrier_expect", writes(full[k % 2]), args(8192))\n'

STORED = """
@func(outputs=1)
def stored(A: {type}[{size}], B: {right}[{size}], C: {sums}[4096]):
    for t in thread("threadIdx.x", 128):
        SA = alloc({type}[{size}], scope="shared")
        SB = alloc({right}[{size}], scope="shared")
        SC = alloc({sums}[4096], scope="shared")
        R = alloc({sums}[32], scope="register")
        for v in range({per}):
            SA[(t ^ t // 8 % 2) * {per} + v] = A[t * {per} + v]
            SB[(t ^ t // 8 % 2) * {per} + v] = B[t * {per} + v]
        intrinsic("fence_proxy_async")
        intrinsic("barrier")
        for e in range(32):
            R[e] = {sums}(0)
        intrinsic("wgmma_fence")
        intrinsic("{name}", writes(R[0 : 32]), reads(R[0 : 32], SA[0 : {per}], SB[0 : {per}]), \
args(0, 0, 32, 0, 256, 32, 0, 256))
        intrinsic("wgmma_commit")
        intrinsic("wgmma_wait", writes(R[0 : 32]), reads(R[0 : 32]), args(0))
        for e in range(32):
            SC[(t // 32 * 16 + t % 32 // 4 + e // 2 % 2 * 8) * 64 + e // 4 * 8 + t % 4 * 2 \
+ e % 2] = R[e]
        intrinsic("fence_proxy_async")
        intrinsic("barrier")
        if t == 0:
            q = alloc(s32[2], scope="register")
            q[0] = s32(0)
            q[1] = s32(0)
            intrinsic("tma_store", writes(C[0 : 4096]), reads(SC[0 : 4096], q[0 : 2]), \
args(64, 64, 64, 64, 64, 0))
            intrinsic("tma_commit")
            intrinsic("tma_wait_read", args(0))
            SC[0] = R[0]
"""
"""Operands that threads store, with a swizzle of 32 bytes; sums that a bulk copy stores."""

HELD = """
@func(outputs=1)
def held(A: {type}[1024], B: {type}[1280], C: f32[5120]):
    for t in thread("threadIdx.x", 128):
        SB = alloc({type}[1280], scope="shared")
        W = alloc({type}[8], scope="register")
        R = alloc(f32[40], scope="register")
        for i in range(10):
            SB[i * 128 + t] = B[i * 128 + t]
        for e in range(8):
            W[e] = A[(t // 32 * 16 + t % 32 // 4 + e // 2 % 2 * 8) * 16 + e // 4 * 8 + t % 4 * 2 \
+ e % 2]
        for e in range(40):
            R[e] = f32(0.0)
        intrinsic("fence_proxy_async")
        intrinsic("barrier")
        intrinsic("wgmma_fence")
        intrinsic("wgmma.m64n80k16.{type}.f32", writes(R[0 : 40]), reads(R[0 : 40], W[0 : 8], \
SB[0 : 8]), args(0, 1, 32, 512, 256))
        intrinsic("wgmma_commit")
        intrinsic("wgmma_wait", writes(R[0 : 40]), reads(R[0 : 40]), args(0))
        W[1] = W[0]
        for e in range(40):
            C[(t // 32 * 16 + t % 32 // 4 + e // 2 % 2 * 8) * 80 + e // 4 * 8 + t % 4 * 2 \
+ e % 2] = R[e]
"""
"""A left operand in registers, a right one whose rows are its depth, in panels of 16 columns."""

KINDS = {
    "bf16": ("wgmma.m64n64k16.bf16.f32", "f32"),
    "f16": ("wgmma.m64n64k16.f16.f32", "f32"),
    "f32": ("wgmma.m64n64k8.tf32.f32", "f32"),
    "s8": ("wgmma.m64n64k32.s8.s32", "s32"),
    "f8e4m3fn": ("wgmma.m64n64k32.f8e4m3fn.f32", "f32"),
    "f8e5m2": ("wgmma.m64n64k32.f8e5m2.f32", "f32"),
    "f8e4m3fn.f8e5m2": ("wgmma.m64n64k32.f8e4m3fn.f8e5m2.f32", "f32"),
}


def stored(kind: str) -> str:
    name, sums = KINDS[kind]
    left, right = kind.split(".") * (2 - kind.count("."))
    per = 16 // BY_NAME[left].bytes
    return STORED.format(type=left, right=right, sums=sums, name=name, size=128 * per, per=per)


def kernel(text: str, spec: str = TARGET) -> Kernel:
    func = parse(text)
    verify(func)
    return Kernel(compile_flat(func, Target.parse(spec)))


def small(shape: tuple[int, int], dtype: object) -> Array:
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype)


def fault(text: str, *inputs: Array) -> str:
    with pytest.raises(SimulationError) as caught:
        kernel(text)(*(x.ravel() for x in inputs))
    return str(caught.value)


def operands() -> tuple[Array, Array]:
    return small((64, 120), ml_dtypes.bfloat16), small((64, 128), ml_dtypes.bfloat16)


def panels(b: Array) -> Array:
    """[16, 80] in panels of [16, 16], whose rows swap their halves where a swizzle says so."""
    parts = b.reshape(16, 5, 2, 8).transpose(1, 0, 2, 3).copy()
    turned = np.arange(16) // 4 % 2 == 1
    parts[:, turned] = parts[:, turned, ::-1]
    return parts


def held_case(kind: str) -> tuple[Array, Array, Array]:
    a, b = (small(s, to_numpy(BY_NAME[kind])) for s in ((64, 16), (16, 80)))
    return a.ravel(), panels(b).ravel(), (a.astype(np.float32) @ b.astype(np.float32)).ravel()


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_a_left_operand_in_registers(kind: str) -> None:
    a, b, expected = held_case(kind)
    text = HELD.format(type=kind)
    np.testing.assert_array_equal(kernel(text)(a, b), expected)
    (again,) = run(parse(text), [a, b], seed=0, check_races=True)
    np.testing.assert_array_equal(again, expected)


WRITE, COMMIT = "        W[1] = W[0]\n", '        intrinsic("wgmma_commit")\n'


@pytest.mark.parametrize(
    ("old", "new", "found", "interpreted"),
    [
        (COMMIT, WRITE + COMMIT, "reads are written early", "reads are written"),
        (COMMIT, COMMIT + WRITE, "reads are written early", "reads are written"),
        ('        intrinsic("wgmma_fence")\n', "", "may not see its registers", ""),
        ("reads(R[0 : 40]), args(0))", "reads(R[0 : 40]), args(1))", "early", "nothing wrote R"),
        ("for e in range(8)", "for e in range(7)", "", "never written"),
    ],
)
def test_faults_of_a_left_operand_in_registers(
    old: str, new: str, found: str, interpreted: str
) -> None:
    a, b, _ = held_case("bf16")
    text = HELD.format(type="bf16")
    assert old in text
    if found:
        assert found in fault(text.replace(old, new, 1), a, b)
    if interpreted:
        with pytest.raises(UndefinedError, match=interpreted):
            run(parse(text.replace(old, new, 1)), [a, b], seed=0, check_races=True)


@pytest.mark.parametrize("spec", [TARGET, f"{TARGET} -check=0"])
def test_boxes_and_products_in_a_pipeline(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()
    expected = a.astype(np.float32) @ b[:, :120].astype(np.float32).T
    simulated = kernel(PIPELINE, spec)
    for seed in "012":
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_array_equal(simulated(a.ravel(), b.ravel()), expected.ravel())


def test_what_landed_may_be_overwritten_by_who_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the thread that began the copy did so after it had said how many bytes would come."""
    a, b = operands()
    before, after = PIPELINE.rsplit("            for e in", 1)
    text = f"{before}            SA[t] = bf16(1.0)\n            for e in{after}"
    expected = a.astype(np.float32) @ b[:, :120].astype(np.float32).T
    simulated = kernel(text)
    for seed in "012":
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_array_equal(simulated(a.ravel(), b.ravel()), expected.ravel())


def test_the_interpreter_does_the_same() -> None:
    a, b = operands()
    expected = a.astype(np.float32) @ b[:, :120].astype(np.float32).T
    (got,) = run(parse(PIPELINE), [a.ravel(), b.ravel()], seed=0, check_races=True)
    np.testing.assert_array_equal(got, expected.ravel())
    a, b = a[:, :16].copy(), b[:, :16].copy()
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    (got,) = run(parse(stored("bf16")), [a.ravel(), b.ravel()], seed=0, check_races=True)
    np.testing.assert_array_equal(got, expected.ravel())


@pytest.mark.parametrize(
    ("text", "old", "new", "found"),
    [
        (PIPELINE, "args(8192)", "args(8191)", "-1 bytes are missing"),
        (PIPELINE, "args(8192)", "args(4096)", "ends too early"),
        (PIPELINE, INIT, "", r"full\[0\] may not be seen by the asynchronous proxy"),
        (
            PIPELINE,
            '                intrinsic("mbarrier_wait", reads(full[k % 2], p[0]))\n',
            "",
            "race",
        ),
        (PIPELINE, "reads(R[0 : 32]), args(0))", "reads(R[0 : 32]), args(1))", "while it is read"),
        (PIPELINE, "t < 128", "t < 96", "not all of 128 threads reach"),
        (stored("bf16"), '        intrinsic("fence_proxy_async")\n', "", "not be seen asynch"),
        (stored("bf16"), '        intrinsic("barrier")\n', "", "race on"),
        (
            stored("bf16"),
            "reads(R[0 : 32]), args(0))\n",
            "reads(R[0 : 32]), args(1))\n",
            "nothing wrote R",
        ),
        (
            stored("bf16"),
            '            intrinsic("tma_wait_read", args(0))\n',
            "",
            "SC is written while it is read",
        ),
    ],
)
def test_the_interpreter_finds_faults(text: str, old: str, new: str, found: str) -> None:
    a, b = operands() if text == PIPELINE else (small((64, 16), ml_dtypes.bfloat16),) * 2
    assert old in text
    with pytest.raises(UndefinedError, match=found):
        faulty = parse(text.replace(old, new, 1))
        run(faulty, [a.ravel(), b.ravel()], seed=0, check_races=True)


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_each_kind(kind: str) -> None:
    types = [BY_NAME[t] for t in kind.split(".") * (2 - kind.count("."))]
    a, b = (small((64, 32 // t.bytes), to_numpy(t)) for t in types)
    wide = np.int32 if kind == "s8" else np.float32
    expected = a.astype(wide) @ b.astype(wide).T
    got = kernel(stored(kind))(a.ravel(), b.ravel())
    np.testing.assert_array_equal(got, expected.ravel())
    if "." in kind:
        (again,) = run(parse(stored(kind)), [a.ravel(), b.ravel()], seed=0)
        np.testing.assert_array_equal(again, expected.ravel())


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("args(8192)", "args(8191)", r"phase 0 of full\[\d\].* 1 bytes too many landed"),
        ("args(8192)", "args(8193)", r"phase 0 of full\[\d\].* 1 bytes are missing"),
        ("args(8192)", "args(4096)", r"phase 0 of full\[\d\] ends too early"),
        (INIT, "", r"full\[0\] may not be seen by the asynchronous proxy: thread 128 of"),
        (EXPECT, "", r"full\[\d\]: 0 of 1 arrivals are there"),
        (EXPECT, EXPECT.replace("_expect", "_arrive").replace(", args(8192)", ""), "while an asy"),
        (
            '                    intrinsic("mbarrier_wait", reads(empty[k % 2], p[0]))\n',
            "",
            r"full\[0\] gets too many|while an asynchronous copy|is written while it is read",
        ),
        ("args(128)", "args(129)", r"deadlock.* at empty\[0\]"),
        (
            '                intrinsic("mbarrier_wait", reads(full[k % 2], p[0]))\n',
            "",
            r"SA\[0\] is accessed while an asynchronous copy",
        ),
        ('                intrinsic("wgmma_fence")\n', "", "may not see its registers"),
        ("reads(R[0 : 32]), args(0))", "reads(R[0 : 32]), args(1))", "is written while it is read"),
        ("t < 128", "t < 96", "not all threads reach wgmma_fence.*thread 96 of block 0 has ended"),
        ("* 4096 : k % 2 * 4096 + 2048", "* 4096 + 64 : k % 2 * 4096 + 2112", "not aligned"),
        (
            "+ h * 16 : k % 2 * 4096 + h * 16 + 8]), args",
            "+ t // 64 * 8 : k % 2 * 4096 + t // 64 * 8 + 8]), args",
            "disagree",
        ),
    ],
)
def test_faults_of_a_pipeline(old: str, new: str, found: str) -> None:
    assert old in PIPELINE
    text = fault(PIPELINE.replace(old, new, 1), *operands())
    assert re.search(found, text), text


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            '        intrinsic("fence_proxy_async")\n',
            "",
            "SA.* may not be seen by the asynchronous",
        ),
        ('        intrinsic("barrier")\n', "", "may not be seen|race on S|read before anything"),
        ("reads(R[0 : 32]), args(0))\n", "reads(R[0 : 32]), args(1))\n", "SA are accessed early"),
        (
            '            intrinsic("tma_wait_read", args(0))\n',
            "",
            r"SC\[0\] is written while it is",
        ),
        (
            '"tma_wait_read", args(0))\n            SC[0] = R[0]',
            '"tma_wait_read", args(1))',
            "a block ends while SC is",
        ),
    ],
)
def test_faults_of_stored_operands(old: str, new: str, found: str) -> None:
    text = stored("bf16")
    assert old in text
    a, b = (small((64, 16), ml_dtypes.bfloat16) for _ in "ab")
    told = fault(text.replace(old, new, 1), a, b)
    assert re.search(found, told), told
    if "fence_proxy" in old:
        last = text.rindex(old)
        assert "SC" in fault(text[:last] + text[last + len(old) :], a, b)
