"""Flat GPU code run thread by thread: what threads do together, and races that are planted."""

from __future__ import annotations

import re
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify

BARRIER = 'intrinsic("barrier")'


def outputs(text: str, args: Sequence[Array], seeds: int = 3) -> list[Array]:
    """The outputs, the same in every order of threads and without races."""
    func = parse(text)
    verify(func)
    first = run(func, args)
    for seed in range(seeds):
        for a, b in zip(first, run(func, args, seed=seed, check_races=True), strict=True):
            np.testing.assert_array_equal(a, b)
    return first


def race(text: str, args: Sequence[Array]) -> str:
    """What is wrong, whatever the order of threads."""
    func = parse(text)
    verify(func)
    for seed in range(3):
        with pytest.raises(UndefinedError) as e:
            run(func, args, seed=seed, check_races=True)
    return str(e.value)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


REVERSE = """\
@func(outputs=1)
def reverse(A: f32[128], C: f32[128]):
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 64):
            S = alloc(f32[64], scope="shared")
            S[t] = A[b * 64 + t]
            {between}
            C[b * 64 + t] = S[63 - t]
"""


def test_threads_exchange_at_a_barrier() -> None:
    a = numbers(128)
    (c,) = outputs(REVERSE.format(between=BARRIER), [a])
    np.testing.assert_array_equal(c, a.reshape(2, 64)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("between", ["pass", 'intrinsic("warp_barrier")'])
def test_a_missing_barrier_is_named(between: str) -> None:
    message = race(REVERSE.format(between=between), [numbers(128)])
    assert "race on element" in message and "of S" in message
    assert "`S[t] = A[b * 64 + t]`" in message and "`C[b * 64 + t] = S[63 - t]`" in message
    assert "there is no barrier in between" in message
    one, other = re.findall(r"thread (\d+)", message)
    assert int(one) + int(other) == 63


def test_a_missing_barrier_shows_in_the_values_too() -> None:
    text = REVERSE.replace(
        "S[t] = A", "S[t] = f32(0.0)\n            intrinsic('barrier')\n            S[t] = A"
    )
    a = numbers(128)
    right, wrong = (run(parse(text.format(between=x)), [a])[0] for x in (BARRIER, "pass"))
    assert not np.array_equal(right, wrong)


def test_a_barrier_that_some_threads_miss() -> None:
    text = REVERSE.format(between=BARRIER) + f"            if t < 40:\n                {BARRIER}\n"
    message = race(text, [numbers(128)])
    assert 'not all of 64 threads reach `intrinsic("barrier")`' in message
    assert "has ended" in message


def test_threads_at_different_barriers() -> None:
    branches = ("if t < 40:", f"    {BARRIER}", "else:", f"    {BARRIER}")
    text = REVERSE.format(between=f"\n{' ' * 12}".join(branches))
    assert 'waits in `intrinsic("barrier")` elsewhere' in race(text, [numbers(128)])


def test_within_a_warp_its_barrier_is_enough() -> None:
    text = REVERSE.replace("63 - t", "t // 32 * 32 + 31 - t % 32")
    a = numbers(128)
    (c,) = outputs(text.format(between='intrinsic("warp_barrier")'), [a])
    np.testing.assert_array_equal(c, a.reshape(4, 32)[:, ::-1].reshape(-1))


LOOPED = """\
@func(outputs=1)
def rounds(A: f32[3, 32], C: f32[3, 32]):
    for t in thread("threadIdx.x", 32):
        S = alloc(f32[32], scope="shared")
        for i in range(3):
            S[t] = A[i, t]
            intrinsic("barrier")
            C[i, t] = S[31 - t]
            {last}
"""


def test_a_race_with_the_next_iteration() -> None:
    a = numbers(3, 32)
    (c,) = outputs(LOOPED.format(last=BARRIER), [a])
    np.testing.assert_array_equal(c, a[:, ::-1])
    message = race(LOOPED.format(last="pass"), [a])
    assert "of S" in message and "writes it in `S[t] = A[i, t]`" in message
    assert "reads it in `C[i, t] = S[31 - t]`" in message


TWO_ARRAYS = """\
@func(outputs=1)
def two(A: f32[32], C: f32[32]):
    for t in thread("threadIdx.x", 32):
        R = alloc(f32[1], scope="register")
        with alloc(f32[32], scope="shared") as S:
            S[t] = A[t]
            intrinsic("barrier")
            R[0] = S[31 - t]
        {between}
        T = alloc(f32[32], scope="shared")
        T[t] = R[0]
        C[t] = T[t]
"""


def test_shared_arrays_that_overlap() -> None:
    outputs(TWO_ARRAYS.format(between=BARRIER), [numbers(32)])
    assert "element" in race(TWO_ARRAYS.format(between="pass"), [numbers(32)])


GLOBAL = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    W = alloc(f32[64])
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 32):
            W[{place}] = A[b * 32 + t]
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 32):
            C[b * 32 + t] = W[63 - b * 32 - t]
"""


def test_launches_follow_each_other() -> None:
    a = numbers(64)
    (c,) = outputs(GLOBAL.format(place="b * 32 + t"), [a])
    np.testing.assert_array_equal(c, a[::-1])


def test_launches_with_memory_in_common() -> None:
    a = numbers(64)
    text = GLOBAL.format(place="b * 32 + t").split("\n")
    body = [f"    {line}" if line.strip() else line for line in text[3:]]
    (c,) = outputs("\n".join([*text[:2], "    with alloc(f32[64]) as W:", *body]), [a])
    np.testing.assert_array_equal(c, a[::-1])


def test_blocks_that_meet_in_memory() -> None:
    message = race(GLOBAL.format(place="t + b * 31"), [numbers(64)])
    assert "race on element 31 of W" in message and "of block [" in message
    assert "only an arrival orders blocks of one launch" in message


REDUCE = """\
@func(outputs=2)
def reduce(A: f32[3, 64], M: f32[3, {groups}], P: s32[3, {groups}]):
    for b in thread("blockIdx.x", 3):
        for y in thread("threadIdx.y", 2):
            for t in thread("threadIdx.x", 32):
                V = alloc(f32[1], scope="register")
                N = alloc(s32[1], scope="register")
                V[0] = A[b, y * 32 + t]
                N[0] = cast(s32, y * 32 + t)
                all_reduce({threads}, V, N, lambda a, i, c, j: \
(select(a >= c, a, c), select(a >= c, i, j)))
                if t % {threads} == {threads} - 1:
                    M[b, y * {rows} + t // {threads}] = V[0]
                    P[b, y * {rows} + t // {threads}] = N[0]
"""


@pytest.mark.parametrize("threads", [32, 8, 1])
def test_reductions_across_threads(threads: int) -> None:
    a = numbers(3, 64)
    text = REDUCE.format(threads=threads, groups=64 // threads, rows=32 // threads)
    best, place = outputs(text, [a])
    parts = a.reshape(3, 64 // threads, threads)
    np.testing.assert_array_equal(best, parts.max(2))
    first = np.arange(64 // threads) * threads
    np.testing.assert_array_equal(place, parts.argmax(2) + first)


COPIES = """\
@func(outputs=1)
def copies(A: f32[64], C: f32[64]):
    for t in thread("threadIdx.x", 8):
        S = alloc(f32[64], scope="shared")
        N = alloc(s32[1], scope="register")
        N[0] = s32(8)
        intrinsic("copy_async", writes(S[t * 8 : t * 8 + 4]), reads(A[t * 8 : t * 8 + 4]), args(16))
        intrinsic("commit_async")
        intrinsic("copy_async_zfill", writes(S[t * 8 + 4 : t * 8 + 8]), \
reads(A[t * 8 + 4 : t * 8 + 8], N[0 : 1]), args(16))
        intrinsic("commit_async")
        intrinsic("wait_async", args({left}))
        {between}
        for i in range(8):
            C[t * 8 + i] = S[(7 - t) * 8 + i]
"""


def test_asynchronous_copies_land_at_their_wait() -> None:
    a = numbers(64)
    (c,) = outputs(COPIES.format(left=0, between=BARRIER), [a])
    want = a.reshape(8, 8)[::-1].copy()
    want[:, 6:] = 0
    np.testing.assert_array_equal(c.reshape(8, 8), want)


def test_a_copy_that_is_not_waited_for() -> None:
    message = race(COPIES.format(left=1, between=BARRIER), [numbers(64)])
    assert 'copies to it in `intrinsic("copy_async_zfill"' in message
    assert "nothing waits for the copy" in message


def test_a_wait_is_no_barrier() -> None:
    assert "race on element" in race(COPIES.format(left=0, between="pass"), [numbers(64)])


PRODUCT = """\
@func(outputs=1)
def product(A: {t}[16, 16], B: {t}[16, 8], C: f32[16, 8]):
    for t in thread("threadIdx.x", {threads}):
        SA = alloc({t}[256], scope="shared")
        SB = alloc({t}[128], scope="shared")
        RA = alloc(u32[4], scope="register")
        RB = alloc(u32[2], scope="register")
        RC = alloc(f32[4], scope="register")
        for i in range(8):
            SA[t * 8 + i] = A[t // 2, t % 2 * 8 + i]
        for i in range(4):
            SB[t * 4 + i] = B[t // 2, t % 2 * 4 + i]
            RC[i] = f32(0.0)
        {between}
        intrinsic("ldmatrix.x4", writes(RA[0 : 4]), \
reads(SA[t % 16 * 16 + t // 16 * 8 : t % 16 * 16 + t // 16 * 8 + 8]))
        intrinsic("ldmatrix.x2.trans", writes(RB[0 : 2]), reads(SB[t % 16 * 8 : t % 16 * 8 + 8]))
        intrinsic("mma.m16n8k16.{t}.f32", writes(RC[0 : 4]), reads(RC[0 : 4], RA[0 : 4], RB[0 : 2]))
        for i in range(4):
            C[t // 4 + i // 2 * 8, t % 4 * 2 + i % 2] = RC[i]
"""


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_warp_multiplies(dtype: str) -> None:
    numpy = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    a, b = numbers(16, 16).astype(numpy), numbers(16, 8).astype(numpy)
    text = PRODUCT.format(t=dtype, threads=32, between='intrinsic("warp_barrier")')
    (c,) = outputs(text, [a, b])
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-6, atol=1e-6)
    message = race(PRODUCT.format(t=dtype, threads=32, between="pass"), [a, b])
    assert "ldmatrix" in message and "race on element" in message


def test_a_part_of_a_warp_cannot_multiply() -> None:
    a, b = (numbers(16, n).astype(np.float16) for n in (16, 8))
    text = PRODUCT.format(t="f16", threads=16, between="pass")
    with pytest.raises(UndefinedError, match="a matrix operation needs whole warps"):
        run(parse(text), [a, b])


def test_what_single_threads_do_needs_a_launch() -> None:
    text = '@func(outputs=1)\ndef f(C: f32[1]):\n    C[0] = f32(0.0)\n    intrinsic("barrier")\n'
    with pytest.raises(UndefinedError, match="intrinsic barrier is outside of a GPU launch"):
        run(parse(text), [])
