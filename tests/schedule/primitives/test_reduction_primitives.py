"""The primitives of reductions, before and after, as text: decomposed, merged, factored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nestwright.ir.loop.printer import show
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace

Make = Callable[[str], Schedule]


def whole(sch: Schedule) -> str:
    """The text of the function without its head."""
    return show(sch.func).split(":\n", 1)[1]


def test_decompose_reduction(schedule: Make) -> None:
    sch = schedule("matmul")
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    sch.vectorize(j)
    assert sch.decompose_reduction("C", k).name == "C_init"
    assert whole(sch).startswith("""\
    C = alloc(f32[6, 8])
    for i in range(6):
        for j_2 in vectorize(8):
            with block("C_init"):
                vi, vj = spatial(6, i), spatial(8, j_2)
                reads()
                writes(C[vi, vj])
                C[vi, vj] = f32(0.0)
        for k in range(4):
            for j in vectorize(8):
                with block("C"):
                    vi, vj, vk = spatial(6, i), spatial(8, j), reduce(4, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def test_merge(schedule: Make) -> None:
    sch = schedule("siblings")
    rows = [sch.get_loops(b)[0] for b in "CDE"]
    sch.merge(rows[0], rows[1])
    sch.merge(rows[0], rows[2])
    assert sch.get_loops("E")[0] == rows[0]
    sch.merge(sch.get_loops("C")[1], sch.get_loops("D")[1])


def test_several_loops_merge_in_one_step(schedule: Make) -> None:
    """They become what merges of two make; a step with two has no third argument in a trace."""
    pairs, sch = schedule("siblings"), schedule("siblings")
    rows = [pairs.get_loops(b)[0] for b in "CDE"]
    pairs.merge(rows[0], rows[1])
    pairs.merge(rows[0], rows[2])
    assert len(pairs.trace.steps[-1].arguments) == 2
    sch.merge(*(sch.get_loops(b)[0] for b in "CDE"))
    assert show(sch.func) == show(pairs.func)
    again = Trace.from_json(sch.trace.to_json()).replay(sch.origin)
    assert show(again.func) == show(sch.func)
    sch = schedule("siblings")
    with pytest.raises(ScheduleError, match="merge it first"):
        sch.merge(*(sch.get_loops(b)[0] for b in "CED"))


def test_merge_refuses_what_would_change_results(schedule: Make, programs: dict[str, str]) -> None:
    sch = schedule("siblings")
    c, d, e = (sch.get_loops(b) for b in "CDE")
    with pytest.raises(ScheduleError, match="merge it first"):
        sch.merge(c[0], e[0])
    with pytest.raises(ScheduleError, match="does not follow"):
        sch.merge(d[0], c[0])
    with pytest.raises(ScheduleError, match="they run 6 and 3 times"):
        sch.merge(c[0], sch.split(d[0], [3, 2])[0])
    sch = schedule(
        programs["stencil"].replace("[10]", "[8]").replace("(10", "(8").replace(" + 2]", "]")
    )
    sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    sch = schedule("stencil")
    (b,) = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="they run 10 and 8 times"):
        sch.merge(b, sch.get_loops("C")[0])
    sch = schedule(
        programs["stencil"]
        .replace("[10]", "[8]")
        .replace("(10", "(8")
        .replace("_1 + 2]", "_1 - 0]")
        .replace("[vi_1 - 0]", "[7 - vi_1]")
    )
    with pytest.raises(ScheduleError, match="in other iterations"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])


TWICE = """
@func(outputs=1)
def twice(A: f32[6, 4], D: f32[6]):
    T = alloc(f32[6, 4])
    for i in range(6):
        for j in range(4):
            with block("B"):
                vi, vj = spatial(6, i), spatial(4, j)
                reads(A[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[vi, vj] + f32(1.0)
    for i_1 in range(6):
        with block("C", opaque=1):
            vi_1 = spatial(6, i_1)
            reads(A[vi_1, 0])
            writes(T[vi_1, 0 : 4])
            for k in range(4):
                T[vi_1, k] = A[vi_1, 0]
    for i_2 in range(6):
        with block("D"):
            vi_2 = spatial(6, i_2)
            reads(T[vi_2, 3])
            writes(D[vi_2])
            D[vi_2] = T[vi_2, 3]
"""


def test_merge_of_two_that_write_one_buffer(schedule: Make) -> None:
    """Each row has its own elements; an opaque block counts as writing what it surely does."""
    sch = schedule(TWICE)
    b, c, d = (sch.get_loops(x)[0] for x in "BCD")
    sch.merge(b, c)
    sch.merge(b, d)
    sch = schedule(TWICE.replace("range(4):\n                T", "range(3):\n                T"))
    b, c, d = (sch.get_loops(x)[0] for x in "BCD")
    with pytest.raises(ScheduleError, match="may write less of `T` than it declares"):
        sch.merge(c, d)
    sch = schedule(TWICE.replace("T[vi_1, ", "T[5 - vi_1, "))
    b, c, d = (sch.get_loops(x)[0] for x in "BCD")
    with pytest.raises(ScheduleError, match="may access the same element of `T`"):
        sch.merge(b, c)


def test_rfactor(schedule: Make) -> None:
    sch = schedule("matmul")
    k = sch.get_loops("C")[2]
    _, lane = sch.split(k, [None, 3])
    assert sch.rfactor(lane, 0).name == "C_rf"
    assert whole(sch).startswith("""\
    C = alloc(f32[6, 8])
    C_rf = alloc(f32[3, 6, 8])
    for i in range(6):
        for j in range(8):
            for k_tile in range(2):
                for k_in in range(3):
                    with block("C_rf"):
                        vi, vj, vk_in, vk_tile = spatial(6, i), spatial(8, j), spatial(3, k_in), reduce(2, k_tile)
                        where(k_tile * 3 + k_in < 4)
                        reads(C_rf[vk_in, vi, vj], A[vi, vk_tile * 3 + vk_in], B[vk_tile * 3 + vk_in, vj])
                        writes(C_rf[vk_in, vi, vj])
                        with init():
                            C_rf[vk_in, vi, vj] = f32(0.0)
                        C_rf[vk_in, vi, vj] = C_rf[vk_in, vi, vj] + A[vi, vk_tile * 3 + vk_in] * B[vk_tile * 3 + vk_in, vj]
            for k_in_1 in range(3):
                with block("C"):
                    vi, vj, vk_in = spatial(6, i), spatial(8, j), reduce(3, k_in_1)
                    reads(C[vi, vj], C_rf[vk_in, vi, vj])
""")  # noqa: E501


def test_rfactor_of_a_whole_reduction_has_no_init(schedule: Make) -> None:
    sch = schedule("matmul")
    sch.rfactor(sch.get_loops("C")[2], -1)
    assert "C_rf = alloc(f32[6, 8, 4])" in whole(sch)
    assert "C_rf[vi, vj, vk] = A[vi, vk] * B[vk, vj]" in whole(sch)


def test_rfactor_beside_a_consumer_in_a_unit_loop_is_refused(schedule: Make) -> None:
    """Found by the random campaign: the consumer would read C before it is summed up."""
    sch = schedule("matmul")
    i, _, k = sch.get_loops("C")
    _, outer, _, _ = sch.tile(i, k, 2, 4)
    sch.reverse_compute_at("D", outer)
    with pytest.raises(ScheduleError, match="holds from an earlier iteration"):
        sch.rfactor(outer)
