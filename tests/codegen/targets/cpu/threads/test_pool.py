"""The thread pool runs every index once: launches, nesting, forks and threads at the same time."""

from __future__ import annotations

import ctypes
import os
import re
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

; counts[i] += 1 for every i of the chunk, by way of two pieces of scratch memory
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
  %new = add i64 %old, %one
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


def test_nested_launches_run_and_keep_their_scratch(library: jit.JitLibrary, threads: int) -> None:
    nested = launcher(library, "nested")
    counts = np.zeros(40 * 16, np.int64)
    for _ in range(100):
        nested(counts, 40, 1)
    assert (counts == 100).all()


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
