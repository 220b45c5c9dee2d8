"""What a schedule for threads lacks before it can run: each reason is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nestwright.te as te
from nestwright.autotune.build import build
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.limits import check_limits, require_limits

from .programs import chain, largest, product, together

GPU = Target.parse("cuda-sim -arch=sm_80").gpu
Ask = Callable[[Schedule], object]


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
