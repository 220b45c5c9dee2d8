"""What threads may not do: each refusal names the reason, shows the nest, says what would work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

from .programs import chain, large, largest, product, together

Ask = Callable[[Schedule], object]


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
    """Each block of threads makes a part of an output that overlaps with its neighbor's."""
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
