"""Simulated barriers with phases: what they order, and what is found where they are wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.ir.arrays import Array
from nestwright.ir.errors import SimulationError
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

CHECKED = "cuda-sim -arch=sm_90a"

RING = """
@func(outputs=1)
def ring(X: f32[512], Y: f32[512]):
    for t in thread("threadIdx.x", 96):
        S = alloc(f32[128], scope="shared")
        full = alloc(u64[2], scope="shared")
        empty = alloc(u64[2], scope="shared")
        if t == 0:
            for i in range(2):
                intrinsic("mbarrier_init", writes(full[i]), args(32))
                intrinsic("mbarrier_init", writes(empty[i]), args(64))
            intrinsic("fence_mbarrier_init")
        intrinsic("barrier")
        if t < 64:
            for k in range(8):
                p = alloc(s32[1], scope="register")
                p[0] = cast(s32, k // 2 % 2)
                intrinsic("mbarrier_wait", reads(full[k % 2], p[0]))
                Y[k * 64 + t] = S[k % 2 * 64 + 63 - t]
                intrinsic("mbarrier_arrive", writes(empty[k % 2]))
        else:
            for k in range(8):
                p = alloc(s32[1], scope="register")
                p[0] = cast(s32, (k // 2 + 1) % 2)
                intrinsic("mbarrier_wait", reads(empty[k % 2], p[0]))
                for h in range(2):
                    S[k % 2 * 64 + h * 32 + t - 64] = X[k * 64 + h * 32 + t - 64]
                intrinsic("mbarrier_arrive", writes(full[k % 2]))
"""
"""One warp fills two places in turn, two warps read them."""

NAMED = """
@func(outputs=1)
def halves(X: f32[128], Y: f32[128]):
    for t in thread("threadIdx.x", 128):
        S = alloc(f32[128], scope="shared")
        S[t] = X[t]
        if t < 64:
            intrinsic("named_barrier", args(1, 64))
            Y[t] = S[63 - t]
        else:
            intrinsic("named_barrier", args(2, 64))
            Y[t] = S[191 - t]
"""

PASSED = """
@func(outputs=1)
def passed(X: f32[32], Y: f32[32]):
    for t in thread("threadIdx.x", 64):
        S = alloc(f32[32], scope="shared")
        if t < 32:
            S[t] = X[t]
            intrinsic("named_barrier_arrive", args(3, 64))
        else:
            intrinsic("named_barrier", args(3, 64))
            Y[t - 32] = S[63 - t]
"""


def kernel(text: str, spec: str = CHECKED) -> Kernel:
    func = parse(text)
    verify(func)
    return Kernel(compile_flat(func, Target.parse(spec)))


def swapped(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def fault(text: str, x: Array) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        kernel(text)(x)
    return caught.value


@pytest.mark.parametrize("spec", [CHECKED, f"{CHECKED} -check=0"])
def test_a_ring_of_two_places(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(512, dtype=np.float32)
    ring, expected = kernel(RING, spec), x.reshape(8, 64)[:, ::-1].ravel()
    for seed in "0123":
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_array_equal(ring(x), expected)
    (got,) = run(parse(RING), [x], seed=1, check_races=True)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("args(32)", "args(31)", r"race on S|full\[0\] gets too many|phase \d of full|read before"),
        ("args(32)", "args(33)", r"deadlock.* phase 0 of full\[0\]: 32 of 33 arrivals are there"),
        ("args(64)", "args(63)", r"race on S\[\d+\]|empty\[0\] gets too many"),
        ("args(64)", "args(32)", r"race on S\[\d+\].* writes what"),
        ("args(64)", "args(65)", r"and 63 more wait for .* full\[0\].*thread 64 .* at empty\[0\]"),
        ("(k // 2 + 1) % 2", "k // 2 % 2", r"deadlock: .* phase 0 of full\[0\]"),
        ("s32, k // 2 % 2", "s32, (k // 2 + 1) % 2", r"race on S|read before anything is written"),
        ('        intrinsic("barrier")\n', "", r"is read before anything is written there"),
        (
            'intrinsic("mbarrier_init", writes(empty[i]), args(64))',
            "empty[i] = u64(0)",
            "empty.*is used",
        ),
        (
            'intrinsic("mbarrier_init", writes(empty[i]), args(64))',
            'intrinsic("mbarrier_init", writes(full[i]), args(64))',
            r"full\[0\] is initialized again",
        ),
    ],
)
def test_faults_of_a_ring(old: str, new: str, found: str) -> None:
    """The interpreter finds them, too."""
    text, x = swapped(RING, old, new), np.ones(512, np.float32)
    assert re.search(found, str(fault(text, x)))
    with pytest.raises(UndefinedError):
        run(parse(text), [x], seed=0, check_races=True)


def test_the_place_of_an_mbarrier_is_for_nothing_else() -> None:
    """Until it is invalidated, which nothing does."""
    text = """
@func(outputs=1)
def place(X: f32[32], Y: f32[32]):
    for t in thread("threadIdx.x", 32):
        bar = alloc(u64[2], scope="shared")
        if t == 0:
            for i in range(2):
                intrinsic("mbarrier_init", writes(bar[i]), args(1))
            bar[1] = u64(0)
        Y[t] = X[t]
"""
    assert "bar[1] is gone as its block ends" in str(fault(text, np.ones(32, np.float32)))


@pytest.mark.parametrize("text", [NAMED, PASSED])
def test_named_barriers(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(128 if text is NAMED else 32, dtype=np.float32)
    simulated = kernel(text, "cuda-sim -arch=sm_75")
    expected = x.reshape(-1, 64)[:, ::-1].ravel() if text is NAMED else x[::-1]
    for seed in "012":
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_array_equal(simulated(x), expected)
    (got,) = run(parse(text), [x], seed=1, check_races=True)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("text", "old", "new", "found"),
    [
        (NAMED, "args(2, 64)", "args(1, 64)", r"race on S|read before anything"),
        (NAMED, "args(2, 64)", "args(2, 96)", r"named barrier 2: 64 of 96 arrivals"),
        (PASSED, "S[t] = X[t]", "S[t // 2] = X[t]", r"race on S|read before anything"),
        (
            PASSED,
            '_arrive", args(3, 64)',
            '_arrive", args(3, 96)',
            r"disagree about named barrier 3",
        ),
        (PASSED, '_arrive", args(3, 64)', '_arrive", args(4, 64)', r"named barrier 3: 32 of 64"),
    ],
)
def test_faults_of_named_barriers(text: str, old: str, new: str, found: str) -> None:
    x = np.ones(128 if text is NAMED else 32, np.float32)
    assert re.search(found, str(fault(swapped(text, old, new), x)))
