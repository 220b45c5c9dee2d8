"""Simulated GPU kernels by hand, in their flat form: what they compute, what is found in them."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.errors import ArgumentError, SimulationError, UnsupportedError
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

CHECKED = "cuda-sim -arch=sm_80"
UNCHECKED = f"{CHECKED} -check=0"


def kernel(text: str, spec: str = CHECKED) -> Kernel:
    func = parse(text)
    verify(func)
    return Kernel(compile_flat(func, Target.parse(spec)))


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


SCALE = """
@func(outputs=1)
def scale(X: f32[{size}], Y: f32[{size}]):
    for b in thread("blockIdx.x", {blocks}):
        for t in thread("threadIdx.x", 96):
            i = let(s64, b * 96 + t)
            if i < {size}:
                Y[i] = X[i] * f32(2.0)
"""

TRANSPOSE = """
@func(outputs=1)
def transpose(X: f32[4096], Y: f32[4096]):
    for by in thread("blockIdx.y", 2):
        for bx in thread("blockIdx.x", 2):
            for ty in thread("threadIdx.y", 8):
                for tx in thread("threadIdx.x", 32):
                    T = alloc(f32[1056], scope="shared")
                    for r in range(4):
                        T[(r * 8 + ty) * 33 + tx] = X[(by * 32 + r * 8 + ty) * 64 + bx * 32 + tx]
                    intrinsic("barrier")
                    for r in range(4):
                        Y[(bx * 32 + r * 8 + ty) * 64 + by * 32 + tx] = T[tx * 33 + r * 8 + ty]
"""


def without(text: str, line: str) -> str:
    rows = text.split("\n")
    assert any(line in row for row in rows)
    return "\n".join(row for row in rows if line not in row)


@pytest.mark.parametrize("spec", [CHECKED, UNCHECKED])
def test_elements_one_thread_each(spec: str) -> None:
    x = numbers(1000)
    run = kernel(SCALE.format(size=1000, blocks=11), spec)
    np.testing.assert_array_equal(run(x), 2 * x)


@pytest.mark.parametrize("spec", [CHECKED, UNCHECKED])
def test_transpose_through_shared_memory(spec: str) -> None:
    x = numbers(64, 64)
    y = kernel(TRANSPOSE, spec)(x.ravel())
    np.testing.assert_array_equal(y, x.T.ravel())


def test_a_missing_barrier_is_found_and_named() -> None:
    run = kernel(without(TRANSPOSE, "barrier"))
    with pytest.raises(SimulationError) as caught:
        run(numbers(4096))
    text = str(caught.value)
    assert caught.value.exit_status == 3
    assert "kernel transpose, seed 0" in text
    assert "T[" in text
    assert "thread (" in text
    assert "race" in text or "before anything is written" in text


def test_a_missing_barrier_before_the_next_round_is_found() -> None:
    text = """
@func(outputs=1)
def rounds(X: f32[256], Y: f32[256]):
    for t in thread("threadIdx.x", 64):
        T = alloc(f32[64], scope="shared")
        for k in range(4):
            T[t] = X[k * 64 + t]
            intrinsic("barrier")
            Y[k * 64 + t] = T[63 - t]
            intrinsic("barrier")
"""
    x = numbers(256)
    np.testing.assert_array_equal(kernel(text)(x), x.reshape(4, 64)[:, ::-1].ravel())
    lines = text.rstrip().split("\n")
    assert "barrier" in lines[-1]
    with pytest.raises(SimulationError, match=r"race on T\[\d+\]: thread \d+ of block 0 "):
        kernel("\n".join(lines[:-1]))(x)


def test_blocks_that_meet_in_global_memory_race() -> None:
    text = """
@func(outputs=1)
def clash(X: f32[64], Y: f32[64]):
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 32):
            Y[b * 16 % 64 + t] = X[t]
"""
    with pytest.raises(SimulationError) as caught:
        kernel(text.replace("16 % 64", "10"))(numbers(64))
    assert "race on Y[" in caught.value.what
    assert "only an arrival orders blocks of a launch" in caught.value.hint


def test_threads_that_add_up_in_one_place_race() -> None:
    text = """
@func(outputs=1)
def total(X: f32[64], Y: f32[1]):
    for t in thread("threadIdx.x", 64):
        Y[0] = Y[0] + X[t]
"""
    with pytest.raises(SimulationError, match=r"race on Y\[0\]") as caught:
        kernel(text)(numbers(64))
    assert "a barrier is missing between" in caught.value.hint


def test_launches_are_ordered() -> None:
    text = """
@func(outputs=1, workspace_bytes=256)
def two(X: f32[64], Y: f32[64]):
    with alloc(f32[64]) as W:
        for b in thread("blockIdx.x", 2):
            for t in thread("threadIdx.x", 32):
                W[b * 32 + t] = X[b * 32 + t] + f32(1.0)
        for t in thread("threadIdx.x", 64):
            Y[t] = W[63 - t]
"""
    x = numbers(64)
    np.testing.assert_array_equal(kernel(text)(x), (x + 1)[::-1])


def test_shared_memory_that_nobody_wrote() -> None:
    text = """
@func(outputs=1)
def unwritten(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        T = alloc(f32[64], scope="shared")
        if t < 63:
            T[t] = X[t]
        intrinsic("barrier")
        Y[t] = T[63 - t]
"""
    with pytest.raises(SimulationError, match=r"T\[63\] is read before anything is written"):
        kernel(text)(numbers(64))
    assert np.isnan(kernel(text, UNCHECKED)(numbers(64))[0])  # what is there, is poison


def test_what_another_buffer_left_in_the_same_place() -> None:
    text = """
@func(outputs=1)
def left(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        with alloc(f32[64], scope="shared") as T:
            T[t] = X[t]
            intrinsic("barrier")
            Y[t] = T[t]
        with alloc(f32[64], scope="shared") as U:
            Y[t] = U[t]
"""
    with pytest.raises(SimulationError, match=r"U\[\d+\] is read before anything is written"):
        kernel(text)(numbers(64))


def test_more_threads_than_can_be_watched() -> None:
    text = SCALE.format(size=96, blocks=2**25)
    with pytest.raises(UnsupportedError, match="that is too many to check"):
        kernel(text)
    assert compile_flat(parse(text), Target.parse(UNCHECKED)).code


@pytest.mark.parametrize("place", ["X", "Y", "T"])
def test_out_of_bounds(place: str) -> None:
    at = {name: "t + 1" if name == place else "t" for name in "XYT"}
    text = f"""
@func(outputs=1)
def beyond(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        T = alloc(f32[64], scope="shared")
        T[{at["T"]}] = X[{at["X"]}]
        intrinsic("barrier")
        Y[{at["Y"]}] = f32(1.0)
"""
    run = Kernel(compile_flat(parse(text), Target.parse(CHECKED)))
    with pytest.raises(SimulationError, match=rf"{place}\[64\] is out of bounds: thread 63 of"):
        run(numbers(64))


def test_a_barrier_in_a_divergent_branch() -> None:
    text = """
@func(outputs=1)
def apart(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        if t < 40:
            intrinsic("barrier")
        Y[t] = X[t]
"""
    with pytest.raises(SimulationError) as caught:
        kernel(text)(numbers(64))
    assert caught.value.what == "not all threads reach barrier"
    assert caught.value.why == "thread 0 of block 0 waits, thread 40 of block 0 has ended"


def test_threads_at_different_barriers_do_not_meet() -> None:
    text = """
@func(outputs=1)
def apart(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        if t < 32:
            intrinsic("barrier")
        else:
            intrinsic("warp_barrier")
            intrinsic("barrier")
        Y[t] = X[t]
"""
    with pytest.raises(SimulationError, match="thread 32 of block 0 waits at barrier"):
        kernel(text)(numbers(64))


def test_a_warp_barrier_orders_its_warp_alone() -> None:
    text = """
@func(outputs=1)
def pairs(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        T = alloc(f32[64], scope="shared")
        T[t] = X[t]
        intrinsic("warp_barrier")
        Y[t] = T[{other}]
"""
    x = numbers(64)
    inside = "t // 32 * 32 + (31 - t % 32)"
    np.testing.assert_array_equal(
        kernel(text.format(other=inside))(x), x.reshape(2, 32)[:, ::-1].ravel()
    )
    with pytest.raises(SimulationError, match=r"T\["):
        kernel(text.format(other="63 - t"))(x)


COPIES = """
@func(outputs=1)
def staged(X: f32[1024], Y: f32[1024]):
    for t in thread("threadIdx.x", 32):
        T = alloc(f32[256], scope="shared")
        intrinsic("copy_async", writes(T[t * 4:t * 4 + 4]), reads(X[t * 4:t * 4 + 4]), args(16))
        intrinsic("commit_async")
        for k in range(8):
            if k < 7:
                intrinsic("copy_async", \
writes(T[(k + 1) % 2 * 128 + t * 4:(k + 1) % 2 * 128 + t * 4 + 4]), \
reads(X[(k + 1) * 128 + t * 4:(k + 1) * 128 + t * 4 + 4]), args(16))
            intrinsic("commit_async")
            intrinsic("wait_async", args(1))
            intrinsic("barrier")
            for j in range(4):
                Y[k * 128 + t * 4 + j] = T[k % 2 * 128 + 127 - (t * 4 + j)]
            intrinsic("barrier")
"""


@pytest.mark.parametrize("spec", [CHECKED, UNCHECKED])
def test_asynchronous_copies_in_two_stages(spec: str) -> None:
    x = numbers(1024)
    expected = x.reshape(8, 128)[:, ::-1].ravel()
    np.testing.assert_array_equal(kernel(COPIES, spec)(x), expected)


def test_a_missing_wait_shows() -> None:
    x = numbers(1024)
    run = kernel(without(COPIES, "wait_async"))
    with pytest.raises(SimulationError) as caught:
        run(x)
    assert "while an asynchronous copy to it is in progress" in caught.value.what
    assert "wait_async" in caught.value.hint
    wrong = kernel(without(COPIES, "wait_async"), UNCHECKED)(x)
    assert np.isnan(wrong).all()


def test_a_wait_for_too_few_groups_shows() -> None:
    with pytest.raises(SimulationError, match="asynchronous copy"):
        kernel(COPIES.replace("args(1)", "args(2)"))(numbers(1024))


def test_a_copy_that_is_not_aligned() -> None:
    text = """
@func(outputs=1)
def askew(X: f32[256], Y: f32[32]):
    for t in thread("threadIdx.x", 32):
        T = alloc(f32[128], scope="shared")
        intrinsic("copy_async", writes(T[t * 4:t * 4 + 4]), reads(X[t * 4 + 1:t * 4 + 5]), args(16))
        Y[t] = f32(0.0)
"""
    with pytest.raises(SimulationError, match=r"X\[\d+\] is not aligned"):
        kernel(text)(numbers(256))


def test_vectors_from_arrays_that_are_not_aligned() -> None:
    text = """
@func(outputs=1)
def vectors(X: f32[256], Y: f32[256]):
    for t in thread("threadIdx.x", 64):
        for v in vectorize(4):
            Y[t * 4 + v] = X[t * 4 + v] + f32(1.0)
"""
    run, x = kernel(text), numbers(257)[1:]
    assert "store <4 x float>" in emit(parse(text), Target.parse(CHECKED))
    np.testing.assert_array_equal(run(x), x + 1)


def test_a_copy_that_is_filled_with_zeros() -> None:
    text = """
@func(outputs=1)
def filled(X: f32[126], Y: f32[128]):
    for t in thread("threadIdx.x", 32):
        T = alloc(f32[128], scope="shared")
        N = alloc(s32[1], scope="register")
        N[0] = cast(s32, select(t < 31, 16, 8))
        intrinsic("copy_async_zfill", writes(T[t * 4:t * 4 + 4]), \
reads(X[t * 4:t * 4 + 4], N[0:1]), args(16))
        intrinsic("commit_async")
        intrinsic("wait_async", args(0))
        intrinsic("warp_barrier")
        for j in range(4):
            Y[t * 4 + j] = T[t * 4 + j]
"""
    x = numbers(126)
    run = Kernel(compile_flat(parse(text), Target.parse(CHECKED)))
    np.testing.assert_array_equal(run(x), np.append(x, [0, 0]))


REDUCE = """
@func(outputs=2)
def reduce(X: f32[{size}], Y: f32[{size}], Z: s32[{size}]):
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", {threads}):
            V = alloc(f32[1], scope="register")
            S = alloc(f32[1], scope="register")
            W = alloc(s32[1], scope="register")
            at = let(s64, b * {threads} + t)
            V[0] = X[at]
            S[0] = X[at]
            W[0] = cast(s32, t)
            all_reduce({group}, V, W, lambda u, i, v, j: \
(select(u >= v, u, v), select(u >= v, i, j)))
            all_reduce({group}, S, lambda u, v: u + v)
            Y[at] = S[0]
            Z[at] = W[0]
"""


@pytest.mark.parametrize("threads", [4, 32, 64, 96, 128, 256, 1024])
def test_reductions_across_threads(threads: int) -> None:
    x = numbers(2, threads)
    run = kernel(REDUCE.format(size=2 * threads, threads=threads, group=threads))
    y, z = (a.reshape(2, threads) for a in run(x.ravel()))
    np.testing.assert_array_equal(z, np.argmax(x, 1)[:, None].repeat(threads, 1))
    np.testing.assert_allclose(y[:, 0], x.sum(1), rtol=1e-4, atol=1e-4)
    assert (y == y[:, :1]).all()


def test_reductions_in_groups_of_a_row() -> None:
    x = numbers(2, 8, 8)
    y, _ = kernel(REDUCE.format(size=128, threads=64, group=8))(x.ravel())
    np.testing.assert_allclose(y.reshape(2, 8, 8)[..., 3], x.sum(2), rtol=1e-5, atol=1e-6)


def test_a_reduction_that_the_hardware_has_not() -> None:
    with pytest.raises(UnsupportedError, match="a reduction across 12 of 24 threads"):
        kernel(REDUCE.format(size=48, threads=24, group=12))


def test_many_seeds_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x, size = numbers(2, 256), 256
    reduce = kernel(REDUCE.format(size=2 * size, threads=size, group=size))
    staged, wide = kernel(COPIES), numbers(1024)
    found = set()
    for seed in range(20):
        monkeypatch.setenv(SEED, str(seed))
        found.add((*(a.tobytes() for a in reduce(x.ravel())), staged(wide).tobytes()))
    assert len(found) == 1


def test_a_seed_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    run = kernel(SCALE.format(size=96, blocks=1))
    monkeypatch.setenv(SEED, "first")
    with pytest.raises(ArgumentError, match="must be an integer"):
        run(numbers(96))


def test_a_fault_is_forgotten_by_the_next_run() -> None:
    bad, good = kernel(without(TRANSPOSE, "barrier")), kernel(TRANSPOSE)
    x = numbers(4096)
    for _ in range(2):
        with pytest.raises(SimulationError):
            bad(x)
        np.testing.assert_array_equal(good(x), x.reshape(64, 64).T.ravel())


def test_too_many_threads_are_refused() -> None:
    text = SCALE.format(size=96, blocks=1).replace('"threadIdx.x", 96', '"threadIdx.x", 2048')
    with pytest.raises(UnsupportedError, match="2048 threads in a block of scale"):
        compile_flat(parse(text), Target.parse(CHECKED))


def test_too_much_shared_memory_is_refused() -> None:
    text = TRANSPOSE.replace("f32[1056]", "f32[105600]")
    with pytest.raises(UnsupportedError, match="422400 bytes of shared memory in a block"):
        kernel(text)


def test_what_the_architecture_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="intrinsic copy_async for sm_75: it needs sm_80"):
        kernel(COPIES, "cuda-sim -arch=sm_75")


def test_large_buffers_of_one_thread() -> None:
    text = """
@func(outputs=1)
def own(X: f32[64], Y: f32[64]):
    for b in thread("blockIdx.x", 64):
        T = alloc(f32[65536], scope="register")
        for i in range(65536):
            T[i] = X[b] + cast(f32, i)
        Y[b] = T[65535]
"""
    x = numbers(64)
    np.testing.assert_allclose(kernel(text)(x), x + 65535)


def test_what_a_loop_around_an_exchange_stores_is_there_after_it() -> None:
    text = """
@func(outputs=1)
def sums(X: f32[128], Y: f32[4]):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 32):
            S = alloc(f32[4], scope="register")
            for i in range(4):
                r = alloc(f32[1], scope="register")
                r[0] = X[i * 32 + t]
                all_reduce(32, r, lambda x, y: x + y)
                S[i] = r[0]
            for j in range(4):
                if t == 0:
                    Y[j] = S[j]
"""
    x = numbers(128)
    np.testing.assert_allclose(kernel(text)(x), x.reshape(4, 32).sum(axis=1), rtol=1e-6)


def test_numbers_of_64_bits_that_threads_combine_are_no_indices() -> None:
    text = """
@func(outputs=1)
def sums(X: s64[96], Y: s64[3]):
    for b in thread("blockIdx.x", 3):
        for t in thread("threadIdx.x", 32):
            r = alloc(s64[1], scope="register")
            r[0] = X[b * 32 + t]
            all_reduce(32, r, lambda x, y: x + y)
            if t == 0:
                Y[b] = r[0]
"""
    x = np.arange(96) << 40
    np.testing.assert_array_equal(kernel(text)(x), x.reshape(3, 32).sum(axis=1))
