"""Races in schedules for GPUs: loops over one thread index inside each other, shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify

ROWS = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)

REVERSE = """\
@func(outputs=1)
def reverse(A: f32[4, 32], C: f32[4, 32]):
    S = alloc(f32[32], scope="{scope}")
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 32):
{copy}
            C[b, t] = S[{place}]
"""
COOPERATIVE = """\
            for u in thread("threadIdx.x", 32):
                S[u] = A[b, {value}]"""
ALONE = "            S[t] = A[b, t]"


def reverse(copy: str, place: str = "31 - t", scope: str = "shared") -> np.ndarray[Any, Any]:
    func = parse(REVERSE.format(copy=copy, place=place, scope=scope))
    verify(func)
    (c,) = run(func, [ROWS], check_races=True)
    return c


def test_a_cooperative_copy_is_shared_by_the_threads() -> None:
    np.testing.assert_array_equal(reverse(COOPERATIVE.format(value="u")), ROWS[:, ::-1])


def test_what_a_thread_writes_for_itself() -> None:
    np.testing.assert_array_equal(reverse(ALONE, place="t"), ROWS)


def test_what_the_iterations_of_one_thread_index_exchange() -> None:
    with pytest.raises(UndefinedError, match="thread 21 and thread 10 race on element 21 of S"):
        reverse(ALONE)
    with pytest.raises(UndefinedError) as e:
        reverse(f"{COOPERATIVE.format(value='u')}\n{ALONE}", place="t")
    assert "iterations of the thread loop t (threadIdx.x) race on element 0 of S" in str(e.value)
    assert "iteration 1 writes what iteration 0 wrote" in str(e.value)


def test_a_shared_loop_may_not_hang_on_the_outer_one() -> None:
    with pytest.raises(UndefinedError, match=r"the loops t and u share threadIdx\.x"):
        reverse(COOPERATIVE.format(value="(u + t) % 32"))


def test_shared_memory_is_one_for_all_threads_registers_are_not() -> None:
    copy = "            S[0] = A[b, t]"
    np.testing.assert_array_equal(reverse(copy, place="0", scope="register"), ROWS)
    with pytest.raises(UndefinedError, match="element 0 of S"):
        reverse(copy, place="0")


def test_a_thread_that_writes_into_what_all_read() -> None:
    copy = (
        COOPERATIVE.format(value="u") + "\n            C[b, t] = S[t]\n            S[t] = C[b, t]"
    )
    with pytest.raises(UndefinedError, match="S"):
        reverse(copy, place="31 - t")


def test_copies_by_too_few_indices() -> None:
    """Both rows of threads write the tile: a loop over threadIdx.y is missing in the copy."""
    text = """\
@func(outputs=1)
def f(A: f32[4, 32], C: f32[4, 32]):
    S = alloc(f32[32], scope="shared")
    for b in thread("blockIdx.x", 4):
        for y in thread("threadIdx.y", 2):
            for u in thread("threadIdx.x", 32):
                S[u] = A[b, u]
            for t in thread("threadIdx.x", 16):
                C[b, y * 16 + t] = S[y * 16 + t]
"""
    with pytest.raises(UndefinedError, match=r"thread loop y \(threadIdx\.y\) race on element 0"):
        run(parse(text), [ROWS], check_races=True)


SUM = """\
@func(outputs=1)
def sums(A: f32[4, 32], C: f32[4]):
    T = alloc(f32[4], scope="shared")
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", {threads}):
            with block("sum"):
                i, k = {axes}
                reads(A[i, k], T[i])
                writes(T[i])
                with init():
                    T[i] = f32(0.0)
                T[i] = T[i] + A[i, k]
{use}
"""
USE = """\
for u in thread("threadIdx.x", 1):
    with block("use"):
        j = spatial(4, b)
        reads(T[j])
        writes(C[j])
        C[j] = T[j]
"""


def test_a_reduction_across_threads_is_no_race() -> None:
    use = "".join(f"        {line}\n" for line in USE.splitlines())
    func = parse(SUM.format(threads=32, axes="spatial(4, b), reduce(32, t)", use=use))
    verify(func)
    (c,) = run(func, [ROWS], check_races=True)
    np.testing.assert_allclose(c, ROWS.sum(1), rtol=1e-5)


def test_a_reduction_over_threads_and_lanes_is_no_race() -> None:
    text = SUM.format(threads=8, axes="spatial(4, b), reduce(32, t * 4 + v)", use="")
    text = text.replace("T[i]", "C[i]").replace('T = alloc(f32[4], scope="shared")', "")
    head, block = text.split("            with block")
    block = "".join(f"    {line}\n" for line in f"            with block{block}".splitlines())
    func = parse(f"{head}            for v in vectorize(4):\n{block}")
    (c,) = run(func, [ROWS], check_races=True)
    np.testing.assert_allclose(c, ROWS.sum(1), rtol=1e-5)


def test_a_sum_that_is_used_before_it_is_complete() -> None:
    use = "".join(
        f"            {line}\n" for line in USE.replace("threadIdx.x", "threadIdx.y").splitlines()
    )
    func = parse(SUM.format(threads=32, axes="spatial(4, b), reduce(32, t)", use=use))
    with pytest.raises(UndefinedError, match="reads a sum of all iterations"):
        run(func, [ROWS], check_races=True)


def test_a_sum_of_one_element_by_all_threads_is_a_race() -> None:
    func = parse(SUM.format(threads=4, axes="spatial(4, b), reduce(32, 0)", use=""))
    with pytest.raises(UndefinedError, match="element 0 of T"):
        run(func, [ROWS], check_races=True)
