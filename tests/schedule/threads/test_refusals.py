"""What threads may not do: each refusal names the reason, shows the nest, says what would work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nestwright.te as te
from nestwright.autotune.build import build
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.limits import check_limits, require_limits

GPU = Target.parse("cuda-sim -arch=sm_80").gpu
Ask = Callable[[Schedule], object]


def chain(n: int = 64) -> Func:
    """P, then Q from one element of it, then R from three."""
    a = te.placeholder((n,), name="A")
    p = te.compute((n,), lambda i: a[i] + 1.0, name="P")
    q = te.compute((n,), lambda i: p[i] * 2.0, name="Q")
    r = te.compute((n - 2,), lambda i: q[i] + q[i + 1] + q[i + 2], name="R")
    return te.create_func([a, r], name="chain")


def product() -> Func:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis(8, "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_func([a, b, c], name="product")


def largest() -> Func:
    """An argmax by which the first of several comes out on the left."""
    a = te.placeholder((3, 12), name="A")
    k = te.reduce_axis(12, "k")
    first = te.reduce(
        lambda p, q: (te.maximum(p[0], q[0]), te.select(p[0] >= q[0], p[1], q[1])),
        (float("-inf"), 0),
    )
    v = te.compute_many((3,), lambda i: first((a[i, k], te.cast(k, "s32")), axis=k), ("V", "W"))
    return te.create_func([a, *v], name="largest")


def large(n: int = 100_000) -> Func:
    a = te.placeholder((n, 4), name="A")
    return te.create_func([a, te.compute((n, 4), lambda i, j: -a[i, j], name="B")], name="large")


LAST = """\
@func(outputs=1)
def last(A: f32[4, 6], L: f32[4]):
    for i in range(4):
        for k in range(6):
            with block("L"):
                vi, vk = spatial(4, i), reduce(6, k)
                reads(L[vi], A[vi, vk])
                writes(L[vi])
                with init():
                    L[vi] = f32(0.0)
                L[vi] = A[vi, vk] - L[vi]
"""

SCATTER = """\
@func(outputs=1)
def scatter(A: f32[4], I: s32[4], S: f32[4]):
    for i in range(4):
        with block("S", opaque=1):
            vi = reduce(4, i)
            reads(A[vi], I[vi], S[0 : 4])
            writes(S[0 : 4])
            S[I[vi]] = S[I[vi]] + A[vi]
"""


def unknown_index(sch: Schedule) -> None:
    sch.bind(sch.get_loops("P")[0], "threadIdx.w")


def bound_twice(sch: Schedule) -> None:
    (i,) = sch.get_loops("P")
    sch.bind(i, "threadIdx.x")
    sch.bind(i, "threadIdx.y")


def split_bound(sch: Schedule) -> None:
    (i,) = sch.get_loops("P")
    sch.bind(i, "threadIdx.x")
    sch.split(i, [None, 4])


def vectorize_bound(sch: Schedule) -> None:
    (i,) = sch.get_loops("P")
    sch.bind(i, "threadIdx.x")
    sch.vectorize(i)


def parallel_around(sch: Schedule) -> None:
    o, i = sch.split(sch.get_loops("P")[0], [None, 4])
    sch.bind(i, "threadIdx.x")
    sch.parallel(o)


def grid_inside_serial(sch: Schedule) -> None:
    sch.bind(sch.get_loops("C")[1], "blockIdx.x")


def grid_inside_threads(sch: Schedule) -> None:
    i, j, _ = sch.get_loops("C")
    sch.bind(i, "threadIdx.x")
    sch.bind(j, "blockIdx.x")


def grid_twice(sch: Schedule) -> None:
    i, j, _ = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "blockIdx.x")


def reordered_grid(sch: Schedule) -> None:
    i, j, _ = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.reorder(j, i)


def grid_beside(sch: Schedule) -> None:
    """A copy for the blocks of one index, and only some of its users in those of another."""
    copy = sch.cache_read("C", 1, "shared")
    i, j, _ = sch.get_loops("C")
    sch.bind(i, "blockIdx.y")
    sch.compute_at(copy, i)
    sch.bind(j, "blockIdx.x")


def beside_grid(sch: Schedule) -> None:
    copy = sch.cache_read("C", 1, "shared")
    i, j, _ = sch.get_loops("C")
    sch.bind(i, "blockIdx.y")
    sch.bind(j, "blockIdx.x")
    sch.compute_at(copy, i)


def too_deep(sch: Schedule) -> None:
    _, i = sch.split(sch.get_loops("B")[0], [None, 128])
    sch.bind(i, "threadIdx.z")


def too_many(sch: Schedule) -> None:
    _, i = sch.split(sch.get_loops("B")[0], [None, 512])
    sch.bind(i, "threadIdx.x")
    sch.bind(sch.get_loops("B")[2], "threadIdx.y")


def too_wide(sch: Schedule) -> None:
    sch.bind(sch.get_loops("B")[0], "blockIdx.y")


def opaque(sch: Schedule) -> None:
    sch.bind(sch.get_loops("S")[0], "threadIdx.x")


def pipelined(sch: Schedule) -> None:
    (i,) = sch.get_loops("P")
    sch.annotate(i, "pipeline", 2)
    sch.bind(i, "threadIdx.x")


def reduction_over_y(sch: Schedule) -> None:
    sch.bind(sch.get_loops("C")[2], "threadIdx.y")


def reduction_over_grid(sch: Schedule) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    sch.bind(k, "blockIdx.x")


def no_combination(sch: Schedule) -> None:
    sch.bind(sch.get_loops("L")[1], "threadIdx.x")


def out_of_order(sch: Schedule) -> None:
    _, k = sch.split(sch.get_loops("V")[1], [None, 4])
    sch.bind(k, "threadIdx.x")


def no_init(sch: Schedule) -> None:
    i, _, k = sch.get_loops("C")
    sch.decompose_reduction("C", i)
    sch.bind(k, "threadIdx.x")


def decompose_shared(sch: Schedule) -> None:
    i, _, k = sch.get_loops("C")
    sch.bind(k, "threadIdx.x")
    sch.decompose_reduction("C", i)


def rfactor_shared(sch: Schedule) -> None:
    k0, k1 = sch.split(sch.get_loops("C")[2], [None, 4])
    sch.bind(k1, "threadIdx.x")
    sch.rfactor(k0)


def threads_inside_reduction(sch: Schedule) -> None:
    i, j, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i, k0, j, k1)
    sch.bind(j, "threadIdx.y")
    sch.bind(k1, "threadIdx.x")


def depends_on_outer(sch: Schedule) -> None:
    i, j, _ = sch.get_loops("C")
    sch.bind(i, "threadIdx.x")
    sch.bind(j, "threadIdx.x")


def together(sch: Schedule, scope: str, at: int = 0) -> None:
    """Q in a nest with R, one thread per element of R."""
    o, i = sch.split(sch.get_loops("R")[0], [None, 16])
    sch.compute_at("Q", (o, i)[at])
    sch.set_scope("Q", 0, scope)
    sch.bind(o, "blockIdx.x")
    sch.bind(i, "threadIdx.x")


def more_inside(sch: Schedule) -> None:
    """Copies for all threads, by more threads than there are."""
    o, i = sch.split(sch.get_loops("R")[0], [None, 16])
    sch.bind(o, "blockIdx.x")
    sch.bind(i, "threadIdx.x")
    sch.set_scope("Q", 0, "shared")
    sch.compute_at("Q", i)
    sch.bind(sch.get_loops("Q")[2], "threadIdx.x")


def registers_of_others(sch: Schedule) -> None:
    together(sch, "register")
    sch.bind(sch.get_loops("Q")[1], "threadIdx.x")


def blocks_share_registers(sch: Schedule) -> None:
    sch.compute_at("Q", sch.split(sch.get_loops("R")[0], [1, 62])[0])
    sch.set_scope("Q", 0, "register")
    sch.bind(sch.get_loops("Q")[1], "threadIdx.x")


def set_scope_across(sch: Schedule) -> None:
    together(sch, "shared")
    sch.bind(sch.get_loops("Q")[1], "threadIdx.x")
    sch.set_scope("Q", 0, "register")


def overlapping(sch: Schedule) -> None:
    """Each thread makes what it alone needs, three elements: in shared memory they overlap."""
    together(sch, "shared", at=1)


def overlapping_blocks(sch: Schedule) -> None:
    """Each block of threads makes a part of an output that overlaps with its neighbour's."""
    o, i = sch.split(sch.get_loops("R")[0], [None, 16])
    sch.compute_at("Q", o)
    sch.bind(o, "blockIdx.x")
    sch.bind(i, "threadIdx.x")
    sch.bind(sch.get_loops("Q")[1], "threadIdx.x")


def align_global(sch: Schedule) -> None:
    sch.storage_align("C", 0, 0, 8, 1)


def align_last(sch: Schedule) -> None:
    sch.cache_read("C", 1, "shared")
    sch.storage_align("A_cache", 0, 1, 8, 1)


def align_offset(sch: Schedule) -> None:
    sch.cache_read("C", 1, "shared")
    sch.storage_align("A_cache", 0, 0, 8, 8)


def swizzle_three(sch: Schedule) -> None:
    sch.cache_read("C", 1, "shared")
    sch.swizzle("A_cache", 0, 3)


def swizzle_aligned(sch: Schedule) -> None:
    sch.cache_read("C", 1, "shared")
    sch.storage_align("A_cache", 0, 0, 8, 4)
    sch.swizzle("A_cache", 0, 4)


def layout_swizzled(sch: Schedule) -> None:
    sch.cache_read("C", 1, "shared")
    sch.swizzle("A_cache", 0, 4)
    sch.transform_layout("A_cache", 0, [1, 0])


def pipeline_stages(sch: Schedule) -> None:
    sch.annotate(sch.get_loops("C")[2], "pipeline", 9)


def pipeline_threads(sch: Schedule) -> None:
    i, _, _ = sch.get_loops("C")
    sch.bind(i, "threadIdx.x")
    sch.annotate(i, "pipeline", 2)


def async_sum(sch: Schedule) -> None:
    sch.annotate("C", "async", 1)


def min_blocks_inside(sch: Schedule) -> None:
    sch.annotate(sch.get_loops("C")[0], "min_blocks", 2)


def cluster_of_threads(sch: Schedule) -> None:
    i, _, _ = sch.get_loops("C")
    sch.bind(i, "threadIdx.x")
    sch.annotate(i, "cluster", 1)


def resident_inside(sch: Schedule) -> None:
    sch.annotate(sch.get_loops("C")[0], "resident", 2)


CASES: list[tuple[Callable[[], Func], Ask]] = [
    *(
        (chain, f)
        for f in (
            unknown_index,
            bound_twice,
            split_bound,
            vectorize_bound,
            parallel_around,
            pipelined,
            more_inside,
            registers_of_others,
            blocks_share_registers,
            set_scope_across,
            overlapping,
            overlapping_blocks,
        )
    ),
    *(
        (product, f)
        for f in (
            grid_inside_serial,
            grid_inside_threads,
            grid_twice,
            reordered_grid,
            grid_beside,
            beside_grid,
            reduction_over_y,
            reduction_over_grid,
            no_init,
            decompose_shared,
            rfactor_shared,
            threads_inside_reduction,
            depends_on_outer,
            align_global,
            align_last,
            align_offset,
            swizzle_three,
            swizzle_aligned,
            layout_swizzled,
            pipeline_stages,
            pipeline_threads,
            async_sum,
            min_blocks_inside,
            resident_inside,
            cluster_of_threads,
        )
    ),
    *((large, f) for f in (too_deep, too_many, too_wide)),
    (largest, out_of_order),
    (lambda: parse(LAST), no_combination),
    (lambda: parse(SCATTER), opaque),
]


@pytest.mark.parametrize(("make", "ask"), CASES, ids=[f.__name__ for _, f in CASES])
def test_refused(make: Callable[[], Func], ask: Ask, golden: Any) -> None:
    sch = Schedule(make())
    with pytest.raises(ScheduleError) as e:
        ask(sch)
    golden.check(f"{e.value}\n")


# What a schedule lacks before it can run.


def unfinished(sch: Schedule, ask: Ask) -> str:
    ask(sch)
    reasons = check_limits(sch.func, GPU)
    with pytest.raises(ScheduleError, match="sm_80"):
        require_limits(sch.func, GPU)
    return "\n".join(r.why for r in reasons)


def test_shared_memory_lasts_for_a_launch() -> None:
    def ask(sch: Schedule) -> None:
        sch.set_scope("Q", 0, "shared")

    assert "does not last from one launch to the next" in unfinished(Schedule(chain()), ask)


def test_a_copy_is_shared_out() -> None:
    def ask(sch: Schedule) -> None:
        o, i = sch.split(sch.get_loops("R")[0], [None, 16])
        sch.bind(o, "blockIdx.x")
        sch.bind(i, "threadIdx.x")
        sch.set_scope("Q", 0, "shared")
        sch.compute_at("Q", i)

    sch = Schedule(chain())
    assert "every thread of threadIdx.x executes all of block `Q`" in unfinished(sch, ask)
    _, x = sch.split(sch.get_loops("Q")[2], [None, 16])
    sch.bind(x, "threadIdx.x")
    assert check_limits(sch.func, GPU) == []


def test_too_much_shared_memory() -> None:
    def ask(sch: Schedule) -> None:
        together(sch, "shared")
        sch.bind(sch.get_loops("Q")[1], "threadIdx.x")

    assert check_limits(_after(chain(64), ask), GPU) == []
    a = te.placeholder((4, 50_000), name="A")
    p = te.compute((4, 50_000), lambda i, j: -a[i, j], name="P")
    q = te.compute((4, 50_000), lambda i, j: p[i, 49_999 - j], name="Q")
    sch = Schedule(te.create_func([a, q], name="rows"))
    i, _ = sch.get_loops("Q")
    sch.compute_at("P", i)
    sch.bind(i, "blockIdx.x")
    text = unfinished(sch, lambda s: s.set_scope("P", 0, "shared"))
    assert text == "a thread block needs 200064 bytes of shared memory; sm_80 has 166912"


def _after(func: Func, ask: Ask) -> Func:
    sch = Schedule(func)
    ask(sch)
    return sch.func


def test_all_threads_come_to_a_barrier() -> None:
    """Threads exchange P inside a loop that only some of the launch's threads run."""
    a = te.placeholder((2, 8), name="A")
    p = te.compute((2, 8), lambda i, j: a[i, j] + 1.0, name="P")
    z = te.compute((2, 8), lambda i, j: a[i, j] * 3.0, name="Z")
    q = te.compute((2, 8), lambda i, j: p[i, 7 - j] + z[1 - i, j], name="Q")
    sch = Schedule(te.create_func([a, q], name="turned"))
    i, j = sch.get_loops("Q")
    o, i = sch.split(i, [1, 2])
    for name, at in (("P", i), ("Z", o)):
        sch.compute_at(name, at)
        sch.set_scope(name, 0, "shared")
    for loop, index in ((o, "blockIdx.x"), (i, "threadIdx.y"), (j, "threadIdx.x")):
        sch.bind(loop, index)
    sch.bind(sch.get_loops("P")[2], "threadIdx.x")
    assert [r.why for r in check_limits(sch.func, GPU)] == []
    y, x = sch.split(sch.fuse(*sch.get_loops("Z")[1:]), [4, 4])
    sch.bind(x, "threadIdx.x")
    text = unfinished(sch, lambda s: s.bind(y, "threadIdx.y"))
    assert text == (
        "threads wait for each other inside loop `i_thread`, which only 2 of 4 threads of "
        "threadIdx.y enter"
    )


def test_what_a_block_writes_is_of_one_kind() -> None:
    sch = Schedule(largest())
    sch.cache_write("V", 0, "register")
    o, i = sch.split(sch.get_loops("V_store")[0], [1, 3])
    sch.compute_at("V", o)
    text = unfinished(sch, lambda s: s.bind(i, "threadIdx.x"))
    assert "writes a `V_cache` of its own in block `V`, and there is one `W`" in text


def test_warps_work_by_intrinsics() -> None:
    def ask(sch: Schedule) -> None:
        together(sch, "warp")

    assert "which access it together" in unfinished(Schedule(chain()), ask)


def test_whole_chunks_are_swizzled() -> None:
    def ask(sch: Schedule) -> None:
        copy = sch.cache_read("C", 1, "shared")
        sch.swizzle(copy, 0, 8)
        i, _, _ = sch.get_loops("C")
        sch.compute_at(copy, i)
        sch.bind(i, "blockIdx.x")

    text = unfinished(Schedule(product()), ask)
    assert text == "rows of `A_cache` have 32 bytes; swizzling by 8 takes multiples of 128"


def test_copies_run_ahead() -> None:
    def ask(sch: Schedule) -> None:
        i, _, k = sch.get_loops("C")
        sch.bind(i, "threadIdx.x")
        sch.annotate(k, "pipeline", 2)

    sch = Schedule(product())
    assert unfinished(sch, ask) == "nothing in the pipelined loop `k` can run ahead"
    copy = sch.cache_read("C", 1, "shared")
    sch.compute_at(copy, sch.get_loops("C")[2])
    sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    assert check_limits(sch.func, GPU) == []


@pytest.mark.parametrize("spec", ["cuda -arch=sm_80", "cuda-sim -arch=sm_80"])
def test_building_refuses_what_is_half_done(spec: str) -> None:
    sch = Schedule(chain(64))
    sch.cache_read("R", 0, "shared")
    with pytest.raises(ScheduleError, match="does not last from one launch to the next"):
        build(sch, spec)
