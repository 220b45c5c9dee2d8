"""The thread pool runs every index once: launches, nesting, forks and threads at the same time."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from nestwright.codegen.runtime import jit
from nestwright.codegen.runtime.process import runtime
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.codegen.targets.cpu.threads import pool
from nestwright.ir.target import Target

BODIES = """
declare void @nw_parallel(ptr, ptr, i64)
declare ptr @nw_scratch(i64)

; counts[i] += 1 for every i of the chunk, by way of two pieces of scratch memory; more if they are
; not at a multiple of 64 bytes
define void @count(ptr %counts, i64 %begin, i64 %end) {
entry:
  br label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %after, %next ]
  %a = call ptr @nw_scratch(i64 100)
  %b = call ptr @nw_scratch(i64 70000)
  store i64 1, ptr %a
  store i64 5, ptr %b
  %place = getelementptr i64, ptr %counts, i64 %i
  %old = load i64, ptr %place
  %one = load i64, ptr %a
  %address = ptrtoint ptr %b to i64
  %apart = and i64 %address, 63
  %more_than_old = add i64 %old, %apart
  %new = add i64 %more_than_old, %one
  store i64 %new, ptr %place
  %after = add i64 %i, 1
  %more = icmp slt i64 %after, %end
  br i1 %more, label %next, label %done
done:
  ret void
}

; 16 counts for every i, in a parallel loop inside the parallel loop, over a piece of scratch
define void @nest(ptr %counts, i64 %begin, i64 %end) {
entry:
  br label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %after, %next ]
  %mine = call ptr @nw_scratch(i64 64)
  store i64 %i, ptr %mine
  %row = mul i64 %i, 16
  %place = getelementptr i64, ptr %counts, i64 %row
  call void @nw_parallel(ptr @count, ptr %place, i64 16)
  %still = load i64, ptr %mine
  %kept = icmp eq i64 %still, %i
  %after = add i64 %i, 1
  %more = icmp slt i64 %after, %end
  %go = and i1 %more, %kept
  br i1 %go, label %next, label %done
done:
  ret void
}

define void @flat(ptr %counts, i64 %n, i64 %times) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %next ]
  call void @nw_parallel(ptr @count, ptr %counts, i64 %n)
  %after = add i64 %i, 1
  %more = icmp slt i64 %after, %times
  br i1 %more, label %next, label %done
done:
  ret void
}

define void @nested(ptr %counts, i64 %n, i64 %times) {
  call void @nw_parallel(ptr @nest, ptr %counts, i64 %n)
  ret void
}

; counts[0] += end - begin if eight large pieces keep what they hold while parallel loops inside
; take and give back others
define void @stack(ptr %counts, i64 %begin, i64 %end) {
entry:
  %pieces = alloca [8 x ptr], align 8
  %inner = call ptr @nw_scratch(i64 128)
  br label %take
take:
  %k = phi i64 [ 0, %entry ], [ %k_after, %take ]
  %piece = call ptr @nw_scratch(i64 300000)
  %last = getelementptr i8, ptr %piece, i64 299992
  store i64 %k, ptr %piece
  store i64 %k, ptr %last
  %place = getelementptr ptr, ptr %pieces, i64 %k
  store ptr %piece, ptr %place
  call void @nw_parallel(ptr @count, ptr %inner, i64 16)
  %k_after = add i64 %k, 1
  %k_more = icmp slt i64 %k_after, 8
  br i1 %k_more, label %take, label %look
look:
  %n = phi i64 [ 0, %take ], [ %n_after, %look ]
  %sum = phi i64 [ 0, %take ], [ %sum_after, %look ]
  %at = getelementptr ptr, ptr %pieces, i64 %n
  %held = load ptr, ptr %at
  %held_last = getelementptr i8, ptr %held, i64 299992
  %first_value = load i64, ptr %held
  %last_value = load i64, ptr %held_last
  %first_apart = xor i64 %first_value, %n
  %last_apart = xor i64 %last_value, %n
  %apart = or i64 %first_apart, %last_apart
  %sum_after = or i64 %sum, %apart
  %n_after = add i64 %n, 1
  %n_more = icmp slt i64 %n_after, 8
  br i1 %n_more, label %look, label %judge
judge:
  %kept = icmp eq i64 %sum_after, 0
  %one = zext i1 %kept to i64
  %span = sub i64 %end, %begin
  %good = mul i64 %one, %span
  %before = atomicrmw add ptr %counts, i64 %good seq_cst
  ret void
}

define void @stacked(ptr %counts, i64 %n, i64 %times) {
  call void @nw_parallel(ptr @stack, ptr %counts, i64 2)
  ret void
}

declare i32 @sched_yield()

; counts[0] += 1, and counts[1] += 1 once there are two at the same time, for which it waits long
define void @meet(ptr %counts, i64 %begin, i64 %end) {
entry:
  %before = atomicrmw add ptr %counts, i64 1 seq_cst
  br label %look
look:
  %tries = phi i64 [ 0, %entry ], [ %more, %wait ]
  %here = load atomic i64, ptr %counts seq_cst, align 8
  %both = icmp sge i64 %here, 2
  br i1 %both, label %met, label %wait
wait:
  %status = call i32 @sched_yield()
  %more = add i64 %tries, 1
  %patient = icmp slt i64 %more, 5000000
  br i1 %patient, label %look, label %done
met:
  %place = getelementptr i64, ptr %counts, i64 1
  %others = atomicrmw add ptr %place, i64 1 seq_cst
  br label %done
done:
  ret void
}

declare i1 @nw_poll()

; The caller's part ends once a worker's has begun, which polls for long and notes what it heard
define void @hear(ptr %counts, i64 %begin, i64 %end) {
entry:
  %begun = icmp sgt i64 %begin, 0
  br i1 %begun, label %worker, label %caller
caller:
  %looks = phi i64 [ 0, %entry ], [ %next, %caller ]
  %status = call i32 @sched_yield()
  %next = add i64 %looks, 1
  %there = load atomic i64, ptr %counts seq_cst, align 8
  %alone = icmp eq i64 %there, 0
  %waits = icmp slt i64 %next, 5000000
  %stay = and i1 %alone, %waits
  br i1 %stay, label %caller, label %done
worker:
  store atomic i64 1, ptr %counts seq_cst, align 8
  br label %poll
poll:
  %tries = phi i64 [ 0, %worker ], [ %more, %again ]
  %heard = call i1 @nw_poll()
  br i1 %heard, label %end_heard, label %again
again:
  %more = add i64 %tries, 1
  %patient = icmp slt i64 %more, 200000000
  br i1 %patient, label %poll, label %done
end_heard:
  %place = getelementptr i64, ptr %counts, i64 1
  store i64 1, ptr %place
  br label %done
done:
  ret void
}

define void @hearing(ptr %counts, i64 %n, i64 %times) {
  call void @nw_parallel(ptr @hear, ptr %counts, i64 2)
  ret void
}

define void @meeting(ptr %counts, i64 %n, i64 %times) {
  call void @nw_parallel(ptr @meet, ptr %counts, i64 2)
  ret void
}
"""

Launch = Callable[[np.ndarray, int, int], None]


@pytest.fixture(scope="module")
def library() -> jit.JitLibrary:
    code = cpu.compile(BODIES, Target.parse("cpu"))
    return jit.load([code], runtime().addresses)


def launcher(library: jit.JitLibrary, symbol: str) -> Launch:
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library.address(symbol)
    )
    return lambda counts, n, times: call(counts.ctypes.data, n, times)


@pytest.fixture
def launch(library: jit.JitLibrary) -> Launch:
    return launcher(library, "flat")


def two_meet(library: jit.JitLibrary) -> bool:
    """True if two threads work at the same time."""
    counts = np.zeros(2, np.int64)
    launcher(library, "meeting")(counts, 2, 1)
    return counts.tolist() == [2, 2]


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    runtime().set_threads(request.param)
    yield request.param
    runtime().set_threads(Target.parse("cpu").threads)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 33, 100, 1000])
def test_every_index_runs_once(launch: Launch, threads: int, n: int) -> None:
    counts = np.zeros(1001, np.int64)
    launch(counts, n, 50)
    assert (counts[:n] == 50).all()
    assert (counts[n:] == 0).all()


def test_many_launches(launch: Launch, threads: int) -> None:
    counts = np.zeros(4, np.int64)
    launch(counts, 4, 20_000)
    assert (counts == 20_000).all()


def test_launches_after_sleep(launch: Launch, threads: int) -> None:
    counts = np.zeros(64, np.int64)
    for _ in range(20):
        time.sleep(0.002)
        launch(counts, 64, 1)
    assert (counts == 20).all()


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_workers_that_sleep_are_woken(library: jit.JitLibrary, threads: int) -> None:
    for _ in range(5):
        time.sleep(0.002)
        assert two_meet(library)


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_a_worker_hears_of_a_signal_from_a_caller_that_waits(
    library: jit.JitLibrary, threads: int
) -> None:
    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    counts, tries = np.zeros(2, np.int64), 20
    types = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    call = ctypes.CFUNCTYPE(None, *types)(library.address("hearing"))
    before = signal.signal(signal.SIGALRM, ring)
    try:
        while not counts[0] and (tries := tries - 1):  # the alarm may come before the call
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(TimeoutError):
                runtime().guarded(call, counts.ctypes.data, 2, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert counts.tolist() == [1, 1]


@pytest.mark.parametrize("threads", [4], indirect=True)
def test_workers_beyond_the_threads_do_not_sleep_in_the_place_of_others(
    library: jit.JitLibrary, launch: Launch, threads: int
) -> None:
    launch(np.zeros(64, np.int64), 64, 10)
    runtime().set_threads(2)
    for _ in range(5):
        time.sleep(0.002)
        assert two_meet(library)


def test_nested_launches_run_and_keep_their_scratch(library: jit.JitLibrary, threads: int) -> None:
    nested = launcher(library, "nested")
    counts = np.zeros(40 * 16, np.int64)
    for _ in range(100):
        nested(counts, 40, 1)
    assert (counts == 100).all()


def test_scratch_is_kept_while_loops_inside_take_and_give_back(
    library: jit.JitLibrary, threads: int
) -> None:
    counts = np.zeros(1, np.int64)
    for _ in range(5):
        launcher(library, "stacked")(counts, 2, 1)
    assert counts[0] == 10


def test_segments_of_scratch_are_freed_but_for_the_largest() -> None:
    """By a pool of this test's own, whose allocations are counted."""
    libc, held = ctypes.CDLL(None), set[int]()
    libc.free.argtypes = [ctypes.c_void_p]

    def allocate(slot: int, alignment: int, size: int) -> int:
        status = int(libc.posix_memalign(ctypes.c_void_p(slot), ctypes.c_size_t(alignment), size))
        held.add(ctypes.c_uint64.from_address(slot).value)
        return status

    def free(address: int) -> None:
        held.remove(address)
        libc.free(address)

    size_t = ctypes.c_size_t
    kept = (
        ctypes.PYFUNCTYPE(ctypes.c_int, size_t, size_t, size_t)(allocate),
        ctypes.PYFUNCTYPE(None, size_t)(free),
    )
    places = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in kept]
    target = Target.parse("cpu")
    own = dict(zip(("posix_memalign", "free"), places, strict=True))
    made = jit.load([cpu.compile(pool.module_text(target), target)], runtime().addresses | own)
    scratch = ctypes.PYFUNCTYPE(size_t, size_t)(made.address("nw_scratch"))
    mark = ctypes.PYFUNCTYPE(size_t)(made.address("nw_scratch_mark"))
    release = ctypes.PYFUNCTYPE(None, size_t)(made.address("nw_scratch_release"))
    ctypes.PYFUNCTYPE(None, ctypes.c_int)(made.address("nw_pool_init"))(1)

    assert scratch(100) % 64 == 0 and len(held) == 1
    before = mark()
    second = scratch(300_000)
    assert second % 64 == scratch(900_000) % 64 == 0 and len(held) == 3
    release(before)
    assert len(held) == 2 and scratch(300_000) == second
    largest = scratch(900_000)
    release(0)
    assert len(held) == 1 and scratch(900_000) == largest
    release(0)


def test_python_threads_may_launch_at_once(launch: Launch, threads: int) -> None:
    counts = [np.zeros(64, np.int64) for _ in range(3)]
    workers = [threading.Thread(target=launch, args=(c, 64, 3000)) for c in counts]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert all((c == 3000).all() for c in counts)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_workers_of_its_own(launch: Launch, threads: int) -> None:
    counts = np.zeros(64, np.int64)
    launch(counts, 64, 10)
    for _ in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12+: threads and fork
            child = os.fork()
        if child == 0:
            launch(counts, 64, 10)
            os._exit(0 if (counts == 20).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert (counts == 10).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("threads", [2], indirect=True)
def test_workers_of_a_child_that_is_forked_during_a_launch(
    library: jit.JitLibrary, launch: Launch, threads: int
) -> None:
    counts, ended = np.zeros(1000, np.int64), threading.Event()

    def keep_busy() -> None:
        while not ended.is_set():
            launch(counts, 1000, 100)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                os._exit(0 if two_meet(library) and two_meet(library) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        ended.set()
        busy.join()


def test_without_futex_the_pool_is_serial() -> None:
    text = pool.module_text(Target.parse("llvm -mtriple=aarch64-apple-darwin -mcpu=apple-m1"))
    assert not re.search("call .*@syscall", text)
    assert "pthread_create(" not in text


@pytest.mark.parametrize(
    "triple", ["x86_64-linux-gnu", "aarch64-linux-gnu", "aarch64-apple-darwin"]
)
def test_the_pool_compiles_for_every_system(triple: str) -> None:
    target = Target.parse(f"llvm -mtriple={triple}")
    assert cpu.compile(pool.module_text(target), target)
