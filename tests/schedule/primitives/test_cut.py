"""Nests in parts: loops that are cut, blocks that are computed again for one of their readers."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.loops import largest

from nestwright import te
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace

M, N, K = 7, 5, 3


def product() -> Func:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis(K, "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((M, N), lambda y, x: te.maximum(c[y, x], 0.0), name="D")
    return te.create_func([a, b, d], name="product")


def check(sch: Schedule) -> None:
    """The schedule means what the product does, and its trace gives it again."""
    verify(sch.func)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((M, K), (K, N)))
    (found,) = run(sch.func, [a, b], seed=0)
    np.testing.assert_array_equal(found, np.maximum(a @ b, 0))
    again = Trace.from_json(sch.trace.to_json()).replay(product())
    assert show(again.func) == show(sch.func)


@pytest.mark.parametrize(("axis", "at"), [(0, 1), (0, 6), (1, 3)])
def test_cut_results_and_what_they_are_made_of(axis: int, at: int) -> None:
    """Each part then has sums of its own, as large as it needs them."""
    sch = Schedule(product())
    sch.cut(sch.get_loops("D")[axis], at)
    check(sch)
    again = sch.duplicate("C", "D_rest")
    check(sch)
    sch.compute_at("C", sch.get_loops("D")[axis])
    sch.compute_at(again, sch.get_loops("D_rest")[axis])
    check(sch)


def test_cut_of_a_reduction() -> None:
    sch = Schedule(product())
    sch.cut(sch.get_loops("C")[0], 4)
    check(sch)
    with pytest.raises(ScheduleError, match="is not one spatial axis of block `C`"):
        sch.cut(sch.get_loops("C")[2], 1)


def test_cut_needs_iterations_on_both_sides() -> None:
    sch = Schedule(product())
    for at in (0, N):
        with pytest.raises(ScheduleError, match="cut it at 1 to 4"):
            sch.cut(sch.get_loops("D")[1], at)


def test_cut_comes_before_other_shapes() -> None:
    sch = Schedule(product())
    outer, inner = sch.split(sch.get_loops("D")[0], [None, 2])
    for loop in (outer, inner):
        with pytest.raises(ScheduleError, match="cut a loop before it is split or fused"):
            sch.cut(loop, 1)


def test_values_with_names_are_named_again() -> None:
    """The largest of each row and its place are computed under names."""
    sch = Schedule(largest())
    sch.duplicate("V", "G")
    verify(sch.func)
    a = np.array([[1, 3, 2, 3, 0, -1, 2], [5, 5, 5, 5, 5, 5, 5], [0, -2, 1, 4, 4, 9, 3]], "f4")
    np.testing.assert_array_equal(run(sch.func, [a])[0], [6, 10, 18])
    sch.cut(sch.get_loops("V")[0], 2)
    verify(sch.func)


def test_sums_that_nobody_reads_are_in_order_too() -> None:
    sch = Schedule(product())
    sch.duplicate("C", "D")
    with pytest.raises(ScheduleError, match="update the same elements of `C`"):
        sch.parallel(sch.get_loops("C")[2])


def test_who_may_have_a_block_again() -> None:
    sch = Schedule(product())
    with pytest.raises(ScheduleError, match="`C` does not read what `C` writes"):
        sch.duplicate("C", "C")
    with pytest.raises(ScheduleError, match="an output of the function"):
        sch.duplicate("D", "C")
    sch.compute_at("C", sch.get_loops("D")[0])
    with pytest.raises(ScheduleError, match="has no nest of its own"):
        sch.duplicate("C", "D")
