"""Models through the runtime and the real bindings over the stand-in, their kernels simulated."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.stub.control import Stub
from gpu.stub.models import assert_right, leaves, prepared

from nestwright.codegen.driver.artifact import load
from nestwright.codegen.runtime.cuda import device as devices
from nestwright.codegen.runtime.cuda.arrays import DeviceArray
from nestwright.codegen.runtime.cuda.staging import PIECE
from nestwright.ir.errors import ArgumentError, DeviceError, TargetError

NAMES = ("double", "chain", "twice", "split", "decide", "empty")

OVERLAPPING = "cuda -arch=sm_90 -overlap=1"


def prepare() -> None:
    for name in NAMES:
        prepared(name)
    prepared("chain", OVERLAPPING)


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_right_one_by_one_recorded_and_replayed(stub: Stub, name: str) -> None:
    model = prepared(name)
    exe = model.over(stub)
    for seed in range(4):
        args = model.arguments(seed)
        assert_right(model.module, args, exe(*args))


def test_launches_overlap_where_the_target_says_so(stub: Stub) -> None:
    model = prepared("chain", OVERLAPPING)
    exe = model.over(stub)
    for seed in range(3):
        args = model.arguments(seed)
        assert_right(model.module, args, exe(*args))
    early = stub.calls("cuLaunchKernelEx")
    assert early == sum(f > 0 for _ in range(2) for f in range(len(exe.plan.thunks)))
    assert stub.reports() == []


def test_every_launch_of_a_group_is_made(stub: Stub) -> None:
    model = prepared("twice")
    (code,) = model.bundle.kernels.values()
    assert len(code.launches) == 2  # type: ignore[union-attr]
    model.over(stub)(*model.arguments())
    made = [call.asked.split() for call in stub.log("cuLaunchKernel")]
    assert [m[0] for m in made] == [x.symbol for x in code.launches]  # type: ignore[union-attr]
    assert [tuple(map(int, m[2:5])) for m in made] == [x.grid for x in code.launches]  # type: ignore[union-attr]


def test_large_shared_memory_is_asked_for_before_a_launch(stub: Stub) -> None:
    model, most = prepared("chain"), 200 << 10
    exe, args = model.over(stub, shared=most), model.arguments()
    assert_right(model.module, args, exe(*args))
    asked = stub.log("cuFuncSetAttribute")
    assert asked and all(c.asked.endswith(f" 8 = {most}") for c in asked)


def test_a_second_call_is_recorded_and_a_third_replayed(stub: Stub) -> None:
    model = prepared("chain")
    exe, args = model.over(stub), model.arguments()
    counts = []
    for _ in range(4):
        exe(*args)
        names = ("cuLaunchKernel", "cuStreamBeginCapture", "cuGraphInstantiate", "cuGraphLaunch")
        counts.append(tuple(stub.calls(name) for name in names))
    launches = counts[0][0]
    graphs = stub.calls("cuGraphInstantiateWithFlags")
    assert counts[0] == (launches, 0, 0, 0) and launches > 1
    assert [c[0] for c in counts] == [launches, *[2 * launches] * 3]
    assert [c[1] for c in counts] == [0, 1, 1, 1]
    assert [c[3] for c in counts] == [0, 1, 2, 3]
    assert counts[-1][2] + graphs == 1


def test_device_arrays_stay_there_and_nothing_waits(stub: Stub) -> None:
    model = prepared("double")
    exe = model.over(stub)
    (x,) = model.arguments()
    on_device = exe.put(x)
    exe(on_device)
    stub.clear()
    once = exe(on_device)
    asked = {call.function for call in stub.log()}
    assert not asked & {"cuStreamQuery", "cuEventQuery", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"}
    assert isinstance(once, DeviceArray)
    np.testing.assert_array_equal(exe(once).numpy(), 4 * x)


def test_out_on_the_device_and_on_its_own_argument(stub: Stub) -> None:
    model = prepared("double")
    exe = model.over(stub)
    (x,) = model.arguments()
    a = exe.put(x)
    for times in 2, 4, 8:
        assert exe(a, out=a) is a
        np.testing.assert_array_equal(a.numpy(), times * x)
    host = np.empty_like(x)
    assert exe(x, out=host) is host
    np.testing.assert_array_equal(host, 2 * x)
    with pytest.raises(ArgumentError):
        exe(a, out=exe.put(np.zeros((3, 3), np.float32)))


@pytest.mark.parametrize("start", [0, 1, 2, 7, -1])
def test_decisions_are_the_hosts(stub: Stub, start: int) -> None:
    model = prepared("decide")
    exe = model.over(stub)
    for seed in range(3):
        args = [np.int32(start), model.arguments(seed)[1]]
        assert_right(model.module, args, exe(*args))


def test_large_arrays_go_in_pieces(stub: Stub) -> None:
    exe = prepared("double").over(stub)
    for size in PIECE // 4, 3 * PIECE // 4 + 7:
        values = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(exe.put(values).numpy(), values)
    assert len(stub.log("cuMemcpyHtoDAsync")) >= 5


def test_times_are_those_of_events(stub: Stub) -> None:
    model = prepared("chain")
    exe, args = model.over(stub), model.arguments()
    times = exe.profile(*args).rows
    assert len(times) == len(model.bundle.plan.thunks) and all(t.seconds > 0 for t in times)
    program: Any = exe.loaded()
    assert program.seconds(lambda: exe(*args)) > 0
    arrays = [exe.put(a) for a in args]
    results = [exe.put(np.zeros_like(r)) for r in exe(*args)]
    submit = program.repeated([(arrays, results)] * 3)
    one, three = program.seconds(lambda: exe(*arrays, out=tuple(results))), program.seconds(submit)
    assert three > 2 * one
    assert_right(model.module, args, tuple(r.numpy() for r in results))


def test_a_saved_model_runs_from_its_file(stub: Stub, tmp_path: Path) -> None:
    model = prepared("chain")
    model.over(stub).save(Path(tmp_path) / "a.nw")
    args = model.arguments()
    assert_right(model.module, args, load(Path(tmp_path) / "a.nw")(*args))


def test_calls_from_many_threads(stub: Stub) -> None:
    model = prepared("chain")
    exe = model.over(stub)
    wrong: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            for _ in range(4):
                args = model.arguments(seed)
                assert_right(model.module, args, exe(*args))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong


def test_what_is_let_go_is_given_back(stub: Stub) -> None:
    model = prepared("chain")
    device: Any = None
    before = None
    for _ in range(4):
        exe = model.over(stub)
        args = [exe.put(a) for a in model.arguments()]
        for _ in range(3):
            results = exe(*args)
        assert all(isinstance(r, DeviceArray) for r in leaves(results))
        device = results[0].device
        del exe, args, results
        gc.collect()
        device.release_kept()
        found = stub.used, *(stub.live(k) for k in ("stream", "event", "module", "graph"))
        found = *found, stub.live("executable graph")
        assert before in (None, found)
        before = found
    assert before is not None and before[0] == 0 and before[3:] == (0, 0, 0)


def test_memory_that_is_kept_goes_back_before_there_is_too_little(stub: Stub) -> None:
    exe = prepared("double").over(stub)
    exe.put(np.zeros(10, np.float32))
    stub.memory(stub.used + (1 << 20))
    for size in 1 << 20, 1 << 19, 1 << 20:
        exe.put(np.zeros(size // 4, np.float32))
    with pytest.raises(MemoryError, match="has no room"):
        exe.put(np.zeros(1 << 19, np.float32))
    exe.put(np.zeros(1 << 18, np.float32))


def test_a_forked_process_is_refused(stub: Stub) -> None:
    model = prepared("double")
    exe, args = model.over(stub), model.arguments()
    exe(*args)
    number = os.fork()
    if not number:
        try:
            exe(*args)
        except DeviceError as error:
            os._exit(7 if "fork" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 7


def test_code_of_another_architecture_is_refused(stub: Stub) -> None:
    model = prepared("double", "cuda -arch=sm_90a")
    exe = model.over(stub)
    stub.capability(100)
    with pytest.raises(TargetError, match="sm_100"):
        exe(*model.arguments())


def test_the_device_is_described(stub: Stub) -> None:
    found = devices.device()
    assert (found.capability, found.l2, found.ordinal) == (90, 50 << 20, 0)
    assert repr(found) == "<Device 0: Stub H100, sm_90>"
