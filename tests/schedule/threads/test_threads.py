"""Schedules for threads: what bind, shared memory and shared reductions make; that it is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import nestwright.te as te
from nestwright.ir.arrays import Array
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func, Kind, Scope
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal
from nestwright.ir.target import Target
from nestwright.schedule.combiner import combiner_of
from nestwright.schedule.cursor import nest
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.launches import launch_of, top_of
from nestwright.schedule.limits import check_limits, shared_bytes

Machine = Callable[[Func, Sequence[Array], int], list[Array]]
GPU = Target.parse("cuda-sim -arch=sm_80").gpu


def doubled(n: int = 10) -> Func:
    a = te.placeholder((n,), name="A")
    return te.create_func([a, te.compute((n,), lambda i: a[i] * 2.0, name="B")], name="doubled")


def product(m: int = 7, n: int = 6, k: int = 5) -> Func:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_func([a, b, c], name="product")


def rows(m: int = 4, n: int = 10) -> Func:
    """As softmax has them: two reductions and two maps, exact in floats."""
    a = te.placeholder((m, n), name="A")
    k, x = te.reduce_axis(n, "k"), te.reduce_axis(n, "m")
    top = te.compute((m,), lambda i: te.max(a[i, k], axis=k), name="Top")
    e = te.compute((m, n), lambda i, j: a[i, j] - top[i], name="E")
    s = te.compute((m,), lambda i: te.sum(e[i, x] * e[i, x], axis=x), name="S")
    r = te.compute((m, n), lambda i, j: e[i, j] + s[i], name="R")
    return te.create_func([a, r], name="rows")


def argmax(commutes: bool) -> Func:
    """The largest of each row and where it is: of several, the first, said or by the order."""
    a = te.placeholder((3, 12), name="A")
    k = te.reduce_axis(12, "k")

    def first(p: Sequence[te.Value], q: Sequence[te.Value]) -> tuple[te.Value, te.Value]:
        better = p[0] >= q[0]
        if commutes:
            better = (p[0] > q[0]) | (te.equal(p[0], q[0]) & (p[1] < q[1]))
        return te.select(better, p[0], q[0]), te.select(better, p[1], q[1])

    how = te.reduce(first, (float("-inf"), 0))
    tensors = te.compute_many((3,), lambda i: how((a[i, k], te.cast(k, "s32")), axis=k), ("V", "W"))
    return te.create_func([a, *tensors], name="argmax")


def check(sch: Schedule, func: Func, run_threads: Machine, finished: bool = True) -> None:
    """The schedule means what the function means, run in order and by threads, and replays."""
    rng = np.random.default_rng(3)
    shapes = [b.shape for b in func.params[: len(func.params) - func.outputs]]
    args = [rng.integers(-3, 4, s).astype(np.float32) for s in shapes]
    verify(sch.func)
    want = run(func, args)
    missing = [r.why for r in check_limits(sch.func, GPU)]
    assert bool(missing) is not finished, missing
    results = run(sch.func, args, check_races=finished), run_threads(sch.func, args, 5)
    for got in results:
        for x, y in zip(want, got, strict=True):
            np.testing.assert_array_equal(y, x)
    plain = json.loads(json.dumps(sch.trace.to_json()))
    assert equal(Trace.from_json(plain).replay(func).func, sch.func)


def shared_of(sch: Schedule) -> list[int]:
    tops = {id(top_of(p)[-1]): top_of(p) for p in nest(sch.func).blocks.values()}
    found = [(launch_of(sch.func, top), top) for top in tops.values()]
    return [shared_bytes(launch, top[-1]) for launch, top in found if launch is not None]


def test_a_grid_of_threads(run_threads: Machine) -> None:
    func = doubled()
    sch = Schedule(func)
    (i,) = sch.get_loops("B")
    block, thread = sch.split(i, [None, 4])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    assert sch.loop(thread).kind is Kind.THREAD and sch.loop(thread).thread == "threadIdx.x"
    assert sch.get_loops("B") == [block, thread] and sch.extent(thread) == 4
    assert sch.trace.show().endswith('sch.bind(l1, "blockIdx.x")\nsch.bind(l2, "threadIdx.x")\n')
    check(sch, func, run_threads)


def tiled(scope: str = "shared", depth: int = 5) -> Schedule:
    """A product in tiles of 4x4 by 2x2 threads, the operands staged for each step of k."""
    sch = Schedule(product(k=depth))
    store = sch.cache_write("C", 0, "register")
    copies = [sch.cache_read("C", n, scope) for n in (1, 2)]
    i, j, k = sch.get_loops("C")
    i0, i1, i2 = sch.split(i, [None, 2, 2])
    j0, j1, j2 = sch.split(j, [None, 2, 2])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    for loop, index in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.y")):
        sch.bind(loop, index)
    sch.bind(j1, "threadIdx.x")
    sch.reverse_compute_at(store, j1)
    for copy in copies:
        sch.compute_at(copy, k0)
    return sch


def share_copies(sch: Schedule) -> None:
    for copy in ("A_cache", "B_cache"):
        _, y, x = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, 2, 2])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")


def test_a_copy_for_all_threads(run_threads: Machine) -> None:
    """compute_at covers what all threads of a block need; they then share the copy's iterations."""
    sch = tiled()
    assert [sch.extent(x) for x in sch.get_loops("A_cache")[-2:]] == [4, 2]
    assert [sch.extent(x) for x in sch.get_loops("B_cache")[-2:]] == [2, 4]
    check(sch, product(), run_threads, finished=False)
    share_copies(sch)
    assert shared_of(sch) == [256]
    check(sch, product(), run_threads)


def test_a_copy_for_one_thread(run_threads: Machine) -> None:
    """Registers are each thread's own: it copies what it needs itself."""
    sch = tiled("register")
    assert [sch.extent(x) for x in sch.get_loops("A_cache")[-2:]] == [2, 2]
    check(sch, product(), run_threads)


def test_a_copy_for_a_warp() -> None:
    """A warp's tiles serve the threads of threadIdx.x only."""
    sch = tiled("warp")
    assert [sch.extent(x) for x in sch.get_loops("A_cache")[-2:]] == [2, 2]
    assert [sch.extent(x) for x in sch.get_loops("B_cache")[-2:]] == [2, 4]


def test_a_copy_ahead(run_threads: Machine) -> None:
    """Pipelining and asynchronous copies are notes; each stage has its place in shared memory."""
    sch = tiled(depth=16)
    share_copies(sch)
    k = sch.get_loops("C")[4]
    sch.annotate(k, "pipeline", 8)
    assert shared_of(sch) == [2 * 128]  # without asynchronous copies there are two
    sch.annotate("A_cache", "async", 1)
    assert shared_of(sch) == [2 * 256]
    sch.annotate(k, "pipeline", 4)
    sch.annotate(sch.get_loops("C")[1], "min_blocks", 2)
    assert shared_of(sch) == [2 * 128]
    check(sch, product(k=16), run_threads)


def test_banks() -> None:
    sch = tiled()
    sch.storage_align("A_cache", 0, -2, 8, 1)
    sch.swizzle("B_cache", 0, 4)
    a, b = (sch.block(n).writes[0].buffer for n in ("A_cache", "B_cache"))
    assert a.align == (0, 8, 1) and b.swizzle == 4
    assert {r.buffer for r in sch.block("C").reads} >= {a, b}
    assert 'f32[7, 5], scope="shared", align=(0, 8, 1)' in show(sch.func)
    sch.swizzle("B_cache", 0, 0)
    sch.set_scope("A_cache", 0, "register")
    assert sch.block("A_cache").writes[0].buffer.align is None
    assert sch.block("B_cache").writes[0].buffer.swizzle == 0


def test_alignment_costs_memory() -> None:
    sch = tiled()
    assert shared_of(sch) == [128 + 128]
    sch.storage_align("A_cache", 0, 0, 64, 40)  # four rows, 40 elements apart
    assert shared_of(sch) == [4 * 40 * 4 + 128]


def stages(sch: Schedule, scope: str) -> None:
    """Each row of ``rows`` by 3 threads, in a block of threads for two rows."""
    i, _ = sch.get_loops("R")
    block, row = sch.split(i, [None, 2])
    for name in ("S", "E", "Top"):
        sch.compute_at(name, row)
        sch.set_scope(name, 0, scope if name == "E" else "register")
    sch.bind(block, "blockIdx.x")
    sch.bind(row, "threadIdx.y")
    for name in ("R", "S", "E", "Top"):
        _, x = sch.split(sch.get_loops(name)[-1], [None, 3])
        sch.bind(x, "threadIdx.x")


@pytest.mark.parametrize("scope", ["shared", "register", "global"])
def test_threads_share_rows(scope: str, run_threads: Machine) -> None:
    """Reductions by threads give their result to all; E is where the same thread finds it."""
    sch = Schedule(rows())
    stages(sch, scope)
    check(sch, rows(), run_threads)
    assert shared_of(sch) == [128 if scope == "shared" else 0]


def test_a_shared_result_in_shared_memory(run_threads: Machine) -> None:
    sch = Schedule(rows())
    stages(sch, "shared")
    sch.set_scope("Top", 0, "shared")
    sch.set_scope("S", 0, "shared")
    check(sch, rows(), run_threads)


@pytest.mark.parametrize("commutes", [True, False])
def test_threads_share_an_argmax(commutes: bool, run_threads: Machine) -> None:
    """Pairs whose order counts are shared in runs: the loop over threads is the outer one."""
    func = argmax(commutes)
    sch = Schedule(func)
    i, k = sch.get_loops("V")
    outer, inner = sch.split(k, [None, 4])
    sch.bind(i, "blockIdx.x")
    sch.bind(inner if commutes else outer, "threadIdx.x")
    how = combiner_of(sch.block("V"))
    assert how is not None and how.commutes is commutes
    check(sch, func, run_threads)


def test_threads_share_a_reduction_over_tiles(run_threads: Machine) -> None:
    """Spatial loops inside the reduction, and a guard."""
    func = product(3, 5, 11)
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i, k0, k1, j)
    sch.bind(i, "threadIdx.y")
    sch.bind(k1, "threadIdx.x")
    sch.vectorize(j)
    check(sch, func, run_threads)


def test_through_shared_memory_to_other_threads(run_threads: Machine) -> None:
    """A transpose by one block of threads: who writes is not who reads."""
    a = te.placeholder((4, 4), name="A")
    p = te.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="P")
    q = te.compute((4, 4), lambda i, j: p[j, i] * 2.0, name="Q")
    func = te.create_func([a, q], name="turned")
    sch = Schedule(func)
    i, j = sch.get_loops("Q")
    n, _ = sch.split(sch.fuse(i, j), [1, 16])
    sch.compute_at("P", n)
    sch.set_scope("P", 0, "shared")
    sch.bind(n, "blockIdx.x")
    for name in ("P", "Q"):
        sch.bind(sch.get_loops(name)[-1], "threadIdx.x")
    check(sch, func, run_threads)


def test_stages_of_different_sizes(run_threads: Machine) -> None:
    """Loops over one index may have different extents: the launch has the most of them."""
    sch = Schedule(rows(3, 8))
    i, _ = sch.get_loops("R")
    for name in ("S", "E", "Top"):
        sch.compute_at(name, i)
    sch.bind(i, "blockIdx.x")
    for name, n in (("R", 8), ("E", 2), ("S", 4), ("Top", 8)):
        _, x = sch.split(sch.get_loops(name)[-1], [None, n])
        sch.bind(x, "threadIdx.x")
        sch.set_scope(name, 0, "shared") if name != "R" else None
    check(sch, rows(3, 8), run_threads)
    launch = launch_of(sch.func, top_of(nest(sch.func).blocks["R"]))
    assert launch is not None and launch.sizes == {"blockIdx.x": 3, "threadIdx.x": 8}


def test_scratch_of_a_thread(run_threads: Machine) -> None:
    """A buffer in global memory that one thread alone uses is its own, as registers are."""
    sch = Schedule(rows(5, 4))
    i, _ = sch.get_loops("R")
    for name in ("S", "E", "Top"):
        sch.compute_at(name, i)
    sch.bind(i, "threadIdx.x")
    check(sch, rows(5, 4), run_threads)
    assert sch.block("E").writes[0].buffer.scope is Scope.GLOBAL
