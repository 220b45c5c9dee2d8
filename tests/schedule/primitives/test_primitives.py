"""Each primitive, before and after, as text; every test ends with the trace's round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fuzz.loops import largest

from nestwright import te
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import equal
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

Make = Callable[[str], Schedule]


def whole(sch: Schedule) -> str:
    """The text of the function without its head."""
    return show(sch.func).split(":\n", 1)[1]


def test_split_even(schedule: Make) -> None:
    sch = schedule("chain")
    (i,) = sch.get_loops("B")
    assert [sch.extent(x) for x in sch.split(i, [None, 3])] == [2, 3]
    assert whole(sch).startswith("""\
    B = alloc(f32[6])
    for i_tile in range(2):
        for i_in in range(3):
            with block("B"):
                vi = spatial(6, i_tile * 3 + i_in)
                reads(A[vi])
""")


def test_split_with_a_tail(schedule: Make) -> None:
    sch = schedule("chain")
    (i,) = sch.get_loops("B")
    sch.split(i, [2, None, 2])
    assert whole(sch).startswith("""\
    B = alloc(f32[6])
    for i_tile in range(2):
        for i_tile_1 in range(2):
            for i_in in range(2):
                with block("B"):
                    vi = spatial(6, (i_tile * 2 + i_tile_1) * 2 + i_in)
                    where((i_tile * 2 + i_tile_1) * 2 + i_in < 6)
""")


def test_fuse(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j = sch.get_loops("D")
    sch.fuse(i, j)
    assert whole(sch).endswith("""\
    for i_1_j_1 in range(48):
        with block("D"):
            vi_1, vj_1 = spatial(6, i_1_j_1 // 8), spatial(8, i_1_j_1 % 8)
            reads(C[vi_1, vj_1])
            writes(D[vi_1, vj_1])
            D[vi_1, vj_1] = max(C[vi_1, vj_1], f32(0.0))
""")


def test_reorder_keeps_the_other_loops_in_place(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i)
    assert whole(sch).startswith("""\
    C = alloc(f32[6, 8])
    for k in range(4):
        for j in range(8):
            for i in range(6):
                with block("C"):
""")
    assert sch.get_loops("C") == [k, j, i]


def test_tile(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j = sch.get_loops("D")
    sch.tile(i, j, 3, 4)
    assert whole(sch).endswith("""\
    for i_1_tile in range(2):
        for j_1_tile in range(2):
            for i_1_in in range(3):
                for j_1_in in range(4):
                    with block("D"):
                        vi_1, vj_1 = spatial(6, i_1_tile * 3 + i_1_in), spatial(8, j_1_tile * 4 + j_1_in)
                        reads(C[vi_1, vj_1])
                        writes(D[vi_1, vj_1])
                        D[vi_1, vj_1] = max(C[vi_1, vj_1], f32(0.0))
""")  # noqa: E501


def test_kinds(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j, k = sch.get_loops("C")
    sch.parallel(i)
    sch.vectorize(j)
    sch.unroll(k)
    assert whole(sch).startswith("""\
    C = alloc(f32[6, 8])
    for i in parallel(6):
        for j in vectorize(8):
            for k in unroll(4):
""")


def test_lanes_of_a_sum(schedule: Make) -> None:
    sch = schedule("matmul")
    k = sch.get_loops("C")[2]
    sch.vectorize(k)
    assert "for k in vectorize(4):" in whole(sch)


def test_compute_at(schedule: Make) -> None:
    sch = schedule("matmul")
    i, _ = sch.get_loops("D")
    sch.compute_at("C", i)
    assert (
        whole(sch)
        == """\
    C = alloc(f32[6, 8])
    for i_1 in range(6):
        for j in range(8):
            for k in range(4):
                with block("C"):
                    vi, vj, vk = spatial(6, i_1), spatial(8, j), reduce(4, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = f32(0.0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        for j_1 in range(8):
            with block("D"):
                vi_1, vj_1 = spatial(6, i_1), spatial(8, j_1)
                reads(C[vi_1, vj_1])
                writes(D[vi_1, vj_1])
                D[vi_1, vj_1] = max(C[vi_1, vj_1], f32(0.0))
"""
    )


def test_compute_at_with_an_overlap_and_a_tail(schedule: Make) -> None:
    sch = schedule("stencil")
    (i,) = sch.get_loops("C")
    outer, _ = sch.split(i, [None, 3])
    sch.compute_at("B", outer)
    assert whole(sch).startswith("""\
    B = alloc(f32[10])
    for i_1_tile in range(3):
        for i_in in range(5):
            with block("B"):
                vi = spatial(10, i_1_tile * 3 + i_in)
                where(i_1_tile * 3 + i_in < 10)
""")


def test_compute_at_keeps_unit_loops_on_request(schedule: Make) -> None:
    sch = schedule("matmul")
    _, j = sch.get_loops("D")
    sch.compute_at("C", j, keep_unit_loops=True)
    assert [sch.extent(x) for x in sch.get_loops("C")] == [6, 8, 1, 1, 4]


def test_reverse_compute_at(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j, _ = sch.get_loops("C")
    outer, _ = sch.split(i, [2, 3])
    sch.reorder(outer, j)
    sch.reverse_compute_at("D", j)
    assert (
        whole(sch)
        == """\
    C = alloc(f32[6, 8])
    for i_tile in range(2):
        for i_in in range(3):
            for j in range(8):
                for k in range(4):
                    with block("C"):
                        vi, vj, vk = spatial(6, i_tile * 3 + i_in), spatial(8, j), reduce(4, k)
                        reads(C[vi, vj], A[vi, vk], B[vk, vj])
                        writes(C[vi, vj])
                        with init():
                            C[vi, vj] = f32(0.0)
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
                with block("D"):
                    vi_1, vj_1 = spatial(6, i_tile * 3 + i_in), spatial(8, j)
                    reads(C[vi_1, vj_1])
                    writes(D[vi_1, vj_1])
                    D[vi_1, vj_1] = max(C[vi_1, vj_1], f32(0.0))
"""
    )


def test_compute_inline(schedule: Make) -> None:
    sch = schedule("stencil")
    sch.compute_inline("B")
    assert (
        whole(sch)
        == """\
    for i_1 in range(8):
        with block("C"):
            vi_1 = spatial(8, i_1)
            reads(A[vi_1], A[vi_1 + 2])
            writes(C[vi_1])
            C[vi_1] = A[vi_1] * f32(2.0) + A[vi_1 + 2] * f32(2.0)
"""
    )


def test_reverse_compute_inline(schedule: Make) -> None:
    sch = schedule("chain")
    sch.reverse_compute_inline("C")
    assert (
        whole(sch)
        == """\
    for i in range(6):
        with block("B"):
            vi = spatial(6, i)
            reads(A[vi])
            writes(C[vi])
            C[vi] = (A[vi] + f32(1.0)) * (A[vi] + f32(1.0))
"""
    )


def test_reverse_compute_inline_over_a_dimension_of_one(schedule: Make) -> None:
    sch = schedule("""\
@func(outputs=1)
def one(A: f32[6], C: f32[6]):
    B = alloc(f32[1, 6])
    for i in range(6):
        with block("B"):
            vi = spatial(6, i)
            reads(A[vi])
            writes(B[0, vi])
            B[0, vi] = A[vi] + f32(1.0)
    for j in range(6):
        with block("C"):
            vj = spatial(6, j)
            reads(B[0, vj])
            writes(C[vj])
            C[vj] = B[0, vj] * f32(2.0)
""")
    sch.reverse_compute_inline("C")
    assert "C[vi] = (A[vi] + f32(1.0)) * f32(2.0)" in whole(sch)


def test_cache_read(schedule: Make) -> None:
    sch = schedule("matmul")
    assert sch.cache_read("C", 2).name == "B_cache"
    i, j, _ = sch.get_loops("C")
    outer, _ = sch.split(j, [2, 4])
    sch.reorder(outer, i)
    sch.compute_at("B_cache", outer)
    assert whole(sch).startswith("""\
    C = alloc(f32[6, 8])
    B_cache = alloc(f32[4, 8])
    for j_tile in range(2):
        for k_1 in range(4):
            for j_in_1 in range(4):
                with block("B_cache"):
                    vk, vj = spatial(4, k_1), spatial(8, j_tile * 4 + j_in_1)
                    reads(B[vk, vj])
                    writes(B_cache[vk, vj])
                    B_cache[vk, vj] = B[vk, vj]
        for i in range(6):
""")


def test_cache_write(schedule: Make) -> None:
    sch = schedule("chain")
    assert sch.cache_write("C", 0, "register").name == "C_store"
    assert whole(sch).endswith("""\
    for i_1 in range(6):
        with block("C"):
            vi_1 = spatial(6, i_1)
            reads(B[vi_1])
            writes(C_cache[vi_1])
            C_cache[vi_1] = B[vi_1] * B[vi_1]
    for i_1_1 in range(6):
        with block("C_store"):
            vi_1 = spatial(6, i_1_1)
            reads(C_cache[vi_1])
            writes(C[vi_1])
            C[vi_1] = C_cache[vi_1]
""")


def test_cache_write_inside_a_shared_loop(schedule: Make) -> None:
    sch = schedule("matmul")
    sch.compute_at("C", sch.get_loops("D")[0])
    sch.cache_write("C", 0)
    assert [sch.extent(x) for x in sch.get_loops("C_store")] == [6, 8]
    assert sch.get_loops("C_store")[0] == sch.get_loops("D")[0]


def test_set_scope(schedule: Make) -> None:
    sch = schedule("chain")
    sch.set_scope("B", 0, "register")
    assert whole(sch).startswith('    B = alloc(f32[6], scope="register")\n')


def test_transform_layout(schedule: Make) -> None:
    sch = schedule("matmul")
    sch.cache_read("C", 2)
    sch.transform_layout("B_cache", 0, [1, 0, 2], [(1, 4)])
    text = whole(sch)
    assert "B_cache = alloc(f32[2, 4, 4])" in text
    assert "B_cache[vj // 4, vk, vj % 4] = B[vk, vj]" in text
    assert "C[vi, vj] + A[vi, vk] * B_cache[vj // 4, vk, vj % 4]" in text


def test_a_copy_that_several_blocks_read(schedule: Make) -> None:
    sch = schedule("siblings")
    rows = [sch.get_loops(b)[0] for b in "CDE"]
    sch.merge(rows[0], rows[1])
    sch.merge(rows[0], rows[2])
    copy = sch.cache_read("C", 0, "global", ["D", "E"])
    assert [b.name for b in sch.get_consumers(copy)] == ["C", "D", "E"]
    sch.compute_at(copy, rows[0])
    with pytest.raises(ScheduleError, match="does not read"):
        sch.cache_read("A_cache", 0, "global", ["D"])


def test_add_unit_loop(schedule: Make) -> None:
    sch = schedule("chain")
    unit = sch.add_unit_loop("C")
    assert sch.get_loops("C")[1] == unit and sch.extent(unit) == 1


def test_annotate_and_unannotate(schedule: Make) -> None:
    sch = schedule("chain")
    (i,) = sch.get_loops("B")
    sch.annotate(i, "grain", 4)
    sch.annotate("C", "hint", "late")
    sch.annotate(i, "gone", 1)
    sch.unannotate(i, "gone")
    assert "for i in range(6, grain=4):" in whole(sch)
    assert "with block('C', hint='late'):" in whole(sch).replace('"', "'")


def test_references_survive(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j, k = sch.get_loops("C")
    sch.split(j, [None, 2])
    sch.cache_write("C", 0)
    sch.parallel(i)
    sch.unroll(k)
    assert [sch.loop(x).kind.value for x in (i, k)] == ["parallel", "unroll"]
    assert [b.name for b in sch.blocks()] == ["C", "C_store", "D"]
    assert [b.name for b in sch.get_producers("D")] == ["C_store"]
    assert [b.name for b in sch.get_consumers("C")] == ["C_store"]


def test_copies_are_independent(schedule: Make) -> None:
    sch = schedule("chain")
    (i,) = sch.get_loops("B")
    other = sch.copy()
    other.split(i, [2, 3])
    assert sch.extent(i) == 6
    assert len(other.trace.steps) == len(sch.trace.steps) + 1


def test_a_matmul_as_for_the_cpu(schedule: Make, programs: dict[str, str], golden: Any) -> None:
    """Packing, a register tile, the epilogue in the tile, an init of its own."""
    sch = schedule(programs["matmul"].replace("8]", "9]").replace("(8", "(9"))
    i, j, k = sch.get_loops("C")
    io, ii = sch.split(i, [None, 4])
    jo, ji = sch.split(j, [None, 4])
    ko, ki = sch.split(k, [None, 2])
    sch.reorder(jo, io, ko, ki, ii, ji)
    packed = sch.cache_read("C", 2)
    sch.compute_at(packed, jo)
    sch.transform_layout(packed, 0, [1, 0, 2], [(1, 4)])
    sch.reverse_compute_at("D", io)
    sch.set_scope("C", 0, "register")
    init = sch.decompose_reduction("C", ko)
    sch.vectorize(ji)
    sch.unroll(ii)
    for block in (init, "D", packed):
        sch.vectorize(sch.get_loops(block)[-1])
    sch.parallel(jo)
    golden.check(show(sch.func) + "\n" + sch.trace.show())


def test_pad_of_nothing() -> None:
    """Places that data give may be anywhere, but extents that are multiples leave them as is."""
    sch = Schedule(largest())
    sch.cache_write("G", 0)
    before = sch.func
    sch.pad("G", [3])
    assert equal(sch.func, before)


def test_pad_of_what_reads_a_padded_buffer() -> None:
    """All that it reads is there, up to the last element, so nothing is selected."""
    a = te.placeholder((6,), name="A")
    p = te.compute((6,), lambda i: a[i] + 1.0, name="P")
    q = te.compute((6,), lambda i: p[i] * 2.0, name="Q")
    sch = Schedule(te.create_func([a, te.compute((6,), lambda i: q[5 - i], name="R")]))
    sch.pad("P", [8])
    sch.pad("Q", [8])
    assert "Q[vi] = P[vi] * f32(2.0)\n" in whole(sch)
    assert "P[vi] = select(vi < 6, A[vi] + f32(1.0), f32(0.0))\n" in whole(sch)


def test_pad(schedule: Make) -> None:
    """What a block would read beyond its inputs is 0; of a padded buffer it reads that."""
    sch = schedule("chain")
    sch.pad("B", [4])
    assert whole(sch).startswith("""\
    B = alloc(f32[8])
    for i in range(8):
        with block("B"):
            vi = spatial(8, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = select(vi < 6, \
""")
    with pytest.raises(ScheduleError, match="takes 1 positive multiples"):
        sch.pad("B", [4, 4])
    with pytest.raises(ScheduleError, match="is a parameter"):
        sch.pad("C", [4])
    sch.split(sch.get_loops("B")[0], [None, 4])
    with pytest.raises(ScheduleError, match="not in a loop for each of its axes"):
        sch.pad("B", [3])
