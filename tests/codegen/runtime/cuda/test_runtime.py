"""The runtime for GPUs over a stand-in for the driver: what is called, in which order, on what.

The kernels are the processor's own code of the same groups, so that whole models run through the
plan, the graphs and the decisions of the host, and their results are compared.
"""

import gc
import threading
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.cuda import device as device_module
from nestwright.codegen.runtime.cuda.driver import Driver, DriverError
from nestwright.codegen.runtime.cuda.staging import PIECE
from nestwright.codegen.runtime.cuda.steps import chosen
from nestwright.ir.errors import (
    ArgumentError,
    DeviceError,
    UnsupportedError,
)
from nestwright.ir.hlo.interp.evaluate import evaluate

from .models import ADD, CHAIN, CHOOSE, COUNT, arguments, assert_right


@pytest.mark.parametrize("text", [ADD, CHAIN])
def test_straight_models_are_right_one_by_one_and_as_a_graph(fake: Any, text: str) -> None:
    exe = fake.executable(text)
    for seed in range(4):
        args = arguments(exe, seed)
        assert_right(exe, args, exe(*args))
    several = len(exe.plan.thunks) > 1
    assert fake.count()["cuGraphLaunch"] == (3 if several else 0)
    assert fake.count()["cuStreamEndCapture"] == several


def test_a_kernel_gets_its_launch_and_its_pointers(fake: Any) -> None:
    exe = fake.executable(ADD, grid=(5, 2, 3), block=(64, 2, 1), shared_bytes=1 << 10)
    exe(*arguments(exe))
    ((symbol, shape, words),) = [x for x in fake.launched if x[0].startswith("nw_")]
    (thunk,) = kernels(exe.plan).values()
    assert symbol == thunk.symbol
    assert shape == (5, 2, 3, 64, 2, 1, 1 << 10)
    program: Any = exe.loaded()
    homes = program._homes
    assert words == [
        homes["param", 0].address,
        homes["param", 1].address,
        homes["result", 0].address,
    ]
    assert all(w % 256 == 0 for w in words)


def test_large_shared_memory_is_asked_for(fake: Any) -> None:
    exe = fake.executable(ADD, shared_bytes=100 << 10)
    exe(*arguments(exe))
    (call,) = [args for name, args in fake.calls if name == "cuFuncSetAttribute"]
    assert call[1:] == ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100 << 10)
    assert not fake.count()["cuModuleLoadData"]


def test_loops_wait_once_a_turn(fake: Any) -> None:
    exe = fake.executable(COUNT)
    for start in (3, 10, 0):
        args = [np.int32(start), np.arange(8, dtype=np.float32)]
        before = fake.waits
        result = exe(*args)
        assert result[0] == 10 and (result[1] == args[1] * 2 ** (10 - start)).all()
        turns = 10 - start
        assert fake.waits - before == turns + 2, "the first test, turns, results"
    assert fake.count()["cuGraphLaunch"] > 10


@pytest.mark.parametrize("n", [-1, 0, 1, 2, 7])
def test_branches_are_chosen_as_the_interpreter_does(fake: Any, n: int) -> None:
    exe = fake.executable(CHOOSE)
    args = [np.int32(n), np.arange(8, dtype=np.float32)]
    for _ in range(3):
        assert_right(exe, args, exe(*args))


def test_arrays_larger_than_the_staging_memory_arrive_whole(fake: Any) -> None:
    count = 3 * PIECE // 4 + 5
    exe = fake.executable(ADD.replace("[64]", f"[{count}]"))
    x = np.arange(count, dtype=np.float32)
    y = np.full(count, 2, np.float32)
    assert (exe(x, y) == x + y).all()
    assert (exe(y, y) == 4).all()


def test_what_was_passed_may_change_as_soon_as_the_call_returns(fake: Any) -> None:
    exe = fake.executable(ADD)
    x = np.ones(64, np.float32)
    gpu = exe.loaded().put(x)  # type: ignore[attr-defined]
    made = exe(x, gpu)
    x[:] = 100
    assert (made.numpy() == 2).all()


def test_host_arrays_for_results(fake: Any) -> None:
    exe = fake.executable(ADD)
    args = arguments(exe)
    room = np.zeros((64, 2), np.float32)
    for out in (np.zeros(64, np.float32), room[:, 1]):
        assert exe(*args, out=out) is out
        assert_right(exe, args, out)
    with pytest.raises(ArgumentError, match="out"):
        exe(*args, out=np.zeros(3, np.float32))


TWO = """HloModule two
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[70000] parameter(0)
  zero = f32[] constant(0)
  count = f32[] constant(70000)
  s = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  mean = f32[] divide(s, count)
  m = f32[70000] broadcast(mean), dimensions={}
  d = f32[70000] subtract(x, m)
  q = f32[70000] multiply(d, d)
  ROOT r = f32[] reduce(q, zero), dimensions={0}, to_apply=add
}
"""


@pytest.mark.parametrize("text", [ADD, CHAIN, COUNT, CHOOSE, TWO])
def test_models_built_for_a_gpu_run_as_their_plan_says(fake: Any, text: str) -> None:
    exe = fake.simulated(text)
    for seed in range(3):
        args = arguments(exe, seed)
        assert_right(exe, args, exe(*args))
    (first,) = {c.launches for c in exe.bundle.kernels.values()} if text is TWO else [()]
    if text is TWO:  # several launches on the same arguments, the workspace last
        words = [w for s, _, w in fake.launched if s in {x.symbol for x in first}]
        assert len(first) == 2 and words[0] == words[1] and len(words[0]) == 3
        assert words[0][2] == exe.loaded().arena.address  # type: ignore[attr-defined]


def test_a_forked_process_is_told(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = fake.executable(ADD)
    args = arguments(exe)
    exe(*args)
    monkeypatch.setattr(device_module.os, "getpid", lambda: -1)
    for again in (exe, fake.executable(ADD)):
        with pytest.raises(DeviceError, match="does not survive a fork"):
            again(*args)


def test_everything_is_given_back(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    device = None
    for _ in range(3):
        put = [exe.loaded().put(a) for a in arguments(exe)]  # type: ignore[attr-defined]
        results = exe(*put)
        exe(*arguments(exe))
        device = exe.loaded().device  # type: ignore[attr-defined]
    assert fake.graphs and fake.modules
    shared = len(fake.pinned) - 1  # the staging memory outlives the program, its decision does not
    del exe, put, results
    device.release_kept()
    assert not fake.memory and not fake.modules and not fake.graphs
    assert len(fake.pinned) == shared


def test_executables_share_one_context(fake: Any) -> None:
    first, second = fake.executable(ADD), fake.executable(CHAIN)
    for exe in (first, second):
        exe(*arguments(exe))
    assert fake.count()["cuDevicePrimaryCtxRetain"] == 1
    assert fake.count()["cuStreamCreate"] == 2


def test_calls_from_several_threads_are_right(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    wrong: list[int] = []

    def work(seed: int) -> None:
        args = arguments(exe, seed)
        expected = evaluate(exe.module, args)
        for _ in range(20):
            if not np.allclose(exe(*args)[0], expected[0], atol=1e-5):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_a_selector_out_of_range_selects_the_last_branch() -> None:
    assert [chosen(3, False, n) for n in (-(2**31), -2, -1, 0, 1, 2, 3)] == [2, 2, 2, 0, 1, 2, 2]
    assert [chosen(2, True, n) for n in (0, 1, 255)] == [1, 0, 0]


def test_new_places_get_new_graphs_and_old_ones_go(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    program: Any = exe.loaded()
    args = arguments(exe)
    sets = [[program.put(a) for a in args] for _ in range(12)]
    outs = [
        tuple(program.put(np.zeros(r.dims, np.float32)) for r in exe.plan.results) for _ in sets
    ]
    for _ in range(2):
        for put, out in zip(sets, outs, strict=True):
            exe(*put, out=out)
            assert_right(exe, args, tuple(o.numpy() for o in out))
    for put, out in zip(sets[:3], outs[:3], strict=True):
        for _ in range(3):
            exe(*put, out=out)
    gc.collect()
    assert 3 <= fake.graphs <= 8


def test_places_in_use_keep_their_graph(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    program: Any = exe.loaded()
    often, *others = [[program.put(a) for a in arguments(exe)] for _ in range(12)]
    out = tuple(program.put(np.zeros(r.dims, np.float32)) for r in exe.plan.results)
    exe(*often, out=out)
    (known,) = program._recorder._known.values()
    (prepared,) = known.prepared.values()
    for other in others:
        exe(*other, out=out)
        exe(*often, out=out)
    assert prepared.graph is not None and prepared in known.prepared.values()
    assert fake.captured == 0 < fake.graphs


def test_a_profile_has_a_row_for_each_thunk(fake: Any) -> None:
    for text in (CHAIN, COUNT):
        exe = fake.executable(text)
        found = exe.profile(*arguments(exe), rounds=2)
        rows = found.rows
        assert found.seconds > 0 and found.rounds == 2 and not found.events
        assert [r.name for r in rows] == [t.name for t in exe.plan.thunks]
        assert all(r.seconds > 0 for r in rows) and any(r.bytes for r in rows)
        assert exe.memory_analysis()["temp_size_in_bytes"] == exe.plan.arena_bytes
        assert exe.cost_analysis()["flops"] > 0


def test_a_driver_error_says_what_failed(fake: Any) -> None:
    fake.fail("cuMemAlloc", "ILLEGAL_ADDRESS")
    with pytest.raises(DriverError, match=r"ILLEGAL_ADDRESS \(told of") as caught:
        Driver(fake).call("cuMemAlloc", 16)
    assert caught.value.function == "cuMemAlloc"


def test_many_calls_in_one_graph(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    program: Any = exe.loaded()
    calls, expected = [], []
    for seed in range(3):
        args = arguments(exe, seed)
        out = [program.put(np.zeros(r.dims, np.float32)) for r in exe.plan.results]
        calls.append(([program.put(a) for a in args], out))
        expected.append(evaluate(exe.module, args))
    again = program.repeated(calls)
    launched = fake.count()["cuGraphLaunch"]
    assert program.seconds(again) > 0
    assert fake.count()["cuGraphLaunch"] == launched + 1
    for (_, out), right in zip(calls, expected, strict=True):
        np.testing.assert_allclose(out[0].numpy(), right[0], atol=1e-5)
    with pytest.raises(UnsupportedError, match="loops or branches"):
        fake.executable(COUNT).loaded().repeated([])  # type: ignore[attr-defined]
