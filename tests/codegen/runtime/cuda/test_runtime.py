"""The runtime for GPUs over a stand-in for the driver: what is called, in which order, on what.

The kernels are the processor's own code of the same groups, so that whole models run through the
plan, the graphs and the decisions of the host, and their results are compared.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.cuda import device as device_module
from nestwright.codegen.runtime.cuda import dlpack, strided
from nestwright.codegen.runtime.cuda.arrays import DeviceArray
from nestwright.codegen.runtime.cuda.device import SYNC
from nestwright.codegen.runtime.cuda.driver import Driver, DriverError
from nestwright.codegen.runtime.cuda.staging import PIECE
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.cuda import ptxas
from nestwright.ir.dtypes import bf16, f32, pred
from nestwright.ir.errors import (
    ArgumentError,
    DeviceError,
    TargetError,
    UnsupportedError,
    VerifyError,
)
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.target import Target

ADD = """HloModule add
ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT z = f32[64] add(x, y)
}
"""
CHAIN = """HloModule chain
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[32,48] parameter(0)
  w = f32[48,16] parameter(1)
  d = f32[32,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[32,16] tanh(d)
  zero = f32[] constant(0)
  s = f32[32] reduce(e, zero), dimensions={1}, to_apply=add
  ROOT t = (f32[32,16], f32[32]) tuple(e, s)
}
"""
COUNT = """HloModule count
body { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  w = f32[8] add(v, v)
  ROOT r = (s32[], f32[8]) tuple(n, w) }
more { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT r = pred[] compare(i, ten), direction=LT }
ENTRY main {
  i = s32[] parameter(0)
  v = f32[8] parameter(1)
  s = (s32[], f32[8]) tuple(i, v)
  ROOT r = (s32[], f32[8]) while(s), condition=more, body=body
}
"""
CHOOSE = """HloModule choose
left { x = f32[8] parameter(0)
  ROOT r = f32[8] add(x, x) }
middle { x = f32[8] parameter(0)
  ROOT r = f32[8] negate(x) }
right { x = f32[8] parameter(0)
  ROOT r = f32[8] multiply(x, x) }
ENTRY main {
  n = s32[] parameter(0)
  x = f32[8] parameter(1)
  ROOT r = f32[8] conditional(n, x, x, x), branch_computations={left, middle, right}
}
"""


def arguments(exe: Executable, seed: int = 0) -> list[Any]:
    return exe.random_arguments(seed)


def assert_right(exe: Executable, args: list[Any], result: Any) -> None:
    expected = evaluate(exe.module, args)
    for got, want in zip(_leaves(result), _leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


def _leaves(x: Any) -> list[Any]:
    return [y for part in x for y in _leaves(part)] if isinstance(x, tuple) else [x]


class Foreign:
    """An array of another library, in the stand-in's device memory, through the array interface."""

    def __init__(self, array: Any, stream: int | None = None) -> None:
        self.array = array
        facts = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": facts["data"],
            "strides": facts["strides"], "version": 3, "stream": stream,
        }  # fmt: skip


class Lender:
    """An array of another library through DLPack."""

    def __init__(self, array: Any, dtype: Any = f32, ordinal: int = 0) -> None:
        self.array, self.dtype, self.ordinal = array, dtype, ordinal
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.ordinal

    def __dlpack__(self, stream: int) -> object:
        self.streams.append(stream)
        address = self.array.ctypes.data
        return dlpack.capsule(address, self.dtype, self.array.shape, self.ordinal, self.array)


def aligned(values: Any, offset: int = 0) -> Any:
    """The values in memory that begins ``offset`` bytes after a multiple of 64."""
    values = np.ascontiguousarray(values)
    room = np.zeros(values.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    made = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


# ---- calls ----------------------------------------------------------------------------------


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
        homes["param", 0].address, homes["param", 1].address, homes["result", 0].address
    ]  # fmt: skip
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


SUM = """HloModule total
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[70000] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=add
}
"""


@pytest.mark.parametrize("text", [ADD, CHAIN, COUNT, CHOOSE, SUM])
def test_models_built_for_a_gpu_run_as_their_plan_says(fake: Any, text: str) -> None:
    exe = fake.simulated(text)
    for seed in range(3):
        args = arguments(exe, seed)
        assert_right(exe, args, exe(*args))
    (first,) = {c.launches for c in exe.bundle.kernels.values()} if text is SUM else [()]
    if text is SUM:  # several launches on the same arguments, the workspace last
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


# ---- arrays on the device -------------------------------------------------------------------


def test_device_arrays_in_device_arrays_out(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    args = arguments(exe)
    put = [exe.loaded().put(a) for a in args]  # type: ignore[attr-defined]
    before = fake.count()["cuMemcpyHtoDAsync"]
    results = exe(*put)
    assert all(isinstance(r, DeviceArray) for r in results)
    assert fake.count()["cuMemcpyHtoDAsync"] == before, "nothing is copied to the device again"
    assert_right(exe, args, tuple(r.numpy() for r in results))
    one = results[1]
    assert (one.shape, one.ndim, one.size, one.nbytes, len(one)) == ((32,), 1, 32, 128, 32)
    assert one.dtype == np.float32 and "f32[32]" in repr(one)
    assert (np.asarray(one) == one.numpy()).all()
    assert_right(exe, args, exe(put[0], args[1]))


def test_results_are_ordered_before_they_are_read(fake: Any) -> None:
    exe = fake.executable(ADD)
    put = [exe.loaded().put(a) for a in arguments(exe)]  # type: ignore[attr-defined]
    waits = fake.waits
    once = exe(*put)
    twice = exe(once, once)
    assert fake.waits == waits, "nothing waits until a value is read"
    assert (twice.numpy() == 2 * once.numpy()).all()


def test_other_libraries_arrays_are_taken_where_they_stand(fake: Any) -> None:
    exe = fake.executable(ADD)
    x, y = (aligned(a) for a in arguments(exe))
    lender = Lender(y)
    made = exe(Foreign(x, stream=1), lender)
    assert_right(exe, [x, y], made.numpy())
    assert fake.launched[-1][2][:2] == [x.ctypes.data, y.ctypes.data]
    device = exe.loaded().device  # type: ignore[attr-defined]
    assert lender.streams == [int(device.stream)]
    assert ("cuStreamWaitEvent" in fake.count()) and fake.count()["cuMemcpyHtoDAsync"] == 0


def test_what_is_lent_is_held_until_the_work_is_done(fake: Any) -> None:
    exe = fake.executable(ADD)
    program: Any = exe.loaded()
    x, y = (Foreign(aligned(a)) for a in arguments(exe))
    made = exe(x, y)
    held = [lent for _, lent in program.device._held]
    assert held == [[x, y]]
    made.numpy()
    exe(*arguments(exe))
    assert not program.device._held


def test_strided_and_misaligned_arrays_are_copied_on_the_device(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    fake.kernels |= {f"nw_gather_{w}": gathering(w) for w in (1, 2, 4, 8)}
    x, w = arguments(exe)
    across = Foreign(aligned(x.T).T)
    askew = Foreign(aligned(w, offset=4))
    made = exe(across, askew)
    assert_right(exe, [x, w], tuple(r.numpy() for r in made))
    assert [n for n, _, _ in fake.launched if "gather" in n] == ["nw_gather_4"] * 2
    odd = Foreign(aligned(w, offset=6))
    assert_right(exe, [x, w], tuple(r.numpy() for r in exe(across, odd)))
    assert fake.launched[-1 - len(kernels(exe.plan))][0] == "nw_gather_1"


def gathering(width: int) -> Any:
    """What the kernel of this width does, in Python."""

    def gather(target: int, source: int, count: int, *rest: int) -> None:
        shape, strides = rest[: strided.RANK], [s - (s >> 63 << 64) for s in rest[strided.RANK :]]
        assert int(np.prod(shape)) == count
        for number, index in enumerate(np.ndindex(*shape)):
            place = source + width * sum(i * s for i, s in zip(index, strides, strict=True))
            ctypes.memmove(target + width * number, place, width)

    gather.words = 3 + 2 * strided.RANK  # type: ignore[attr-defined]
    return gather


def test_dimensions_merge() -> None:
    assert strided.merged((4, 1, 5, 6), (30, 99, 6, 1)) == ((120,), (1,))
    assert strided.merged((4, 5, 6), (5, 1, 20)) == ((20, 6), (1, 20))
    assert strided.merged((3, 2), (-2, -1)) == ((6,), (-1,))


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_the_strided_copy_assembles(arch: str) -> None:
    usage = ptxas.assemble(strided.module(), arch).kernels
    assert set(usage) == {f"nw_gather_{w}" for w in (1, 2, 4, 8)}
    assert all(u.registers <= 32 and not u.spill_stores for u in usage.values())


def test_device_arrays_for_results(fake: Any) -> None:
    exe = fake.executable(ADD)
    args = arguments(exe)
    out = exe.loaded().put(np.zeros(64, np.float32))  # type: ignore[attr-defined]
    assert exe(*args, out=out) is out
    assert_right(exe, args, out.numpy())
    assert fake.launched[-1][2][2] == out.address
    assert exe(out, out, out=out) is out
    assert fake.launched[-1][2][2] != out.address, "a result never stands on an argument"
    np.testing.assert_allclose(out.numpy(), 2 * (args[0] + args[1]), rtol=1e-6)
    with pytest.raises(ArgumentError, match="row-major"):
        exe(*args, out=Foreign(aligned(args[0], offset=4)))


def test_the_array_interface_and_dlpack_of_ours(fake: Any) -> None:
    exe = fake.executable(ADD)
    array = exe.loaded().put(np.arange(6, dtype=np.float32).reshape(2, 3))  # type: ignore[attr-defined]
    facts = array.__cuda_array_interface__
    assert facts["data"] == (array.address, False) and facts["typestr"] == "<f4"
    assert facts["shape"] == (2, 3) and facts["stream"] == int(array.device.stream)
    assert array.__dlpack_device__() == (2, 0)
    found = dlpack.read(array.__dlpack__(stream=2))
    assert (found.address, found.dtype, found.shape) == (array.address, f32, (2, 3))
    assert fake.count()["cuStreamWaitEvent"] == 1
    assert (np.from_dlpack(HostView(array)) == array.numpy()).all()


class HostView:
    """Asks for an array's DLPack on the host, as ``np.from_dlpack(x, device="cpu")`` does."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(self, **unused: object) -> object:
        return self.array.__dlpack__(dl_device=(dlpack.CPU, 0))


@pytest.mark.parametrize(("dtype", "code"), [(f32, "f32"), (bf16, "bf16"), (pred, "pred")])
def test_capsules_keep_their_owner_until_they_are_gone(dtype: Any, code: str) -> None:
    before = len(dlpack._lent)
    owner = aligned(np.zeros(8, np.float32))
    capsule = dlpack.capsule(owner.ctypes.data, dtype, (2, 3), 0, owner)
    assert len(dlpack._lent) == before + 1
    found = dlpack.read(capsule)
    assert found.dtype == dtype and found.shape == (2, 3) and found.address == owner.ctypes.data
    del capsule, found
    assert len(dlpack._lent) == before
    with pytest.raises(ValueError, match="no DLPack"):
        dlpack.read(object())


def test_arrays_that_do_not_fit_are_refused(fake: Any) -> None:
    exe = fake.executable(ADD)
    x = aligned(np.zeros(64, np.float32))
    with pytest.raises(ArgumentError, match=r"argument 1 \(y\): expected f32\[64\], got f32\[32\]"):
        exe(Foreign(x), Foreign(x[:32]))
    with pytest.raises(ArgumentError, match=r"got s32\[64\]"):
        exe(Foreign(x.view(np.int32)), x)
    with pytest.raises(ArgumentError, match="GPU 1"):
        exe(x, Lender(x, ordinal=1))
    with pytest.raises(ArgumentError, match="expected 2 arguments"):
        exe(x)
    with pytest.raises(ArgumentError, match="unknown keyword"):
        exe.loaded().call(x, x, wrong=1)


# ---- what goes wrong ------------------------------------------------------------------------


def test_too_little_memory_is_told_with_figures(fake: Any) -> None:
    exe = fake.executable(ADD.replace("[64]", f"[{1 << 20}]"))
    fake.total = 5 << 20
    x = np.zeros(1 << 20, np.float32)
    with pytest.raises(MemoryError, match=r"Imaginary GPU has no room for y of add: it takes"):
        exe(x, x)
    fake.total = 1 << 30
    assert (exe(x, x) == 0).all()


def test_memory_that_waits_is_given_up_before_that(fake: Any) -> None:
    exe = fake.executable(ADD)
    put = exe.loaded().put  # type: ignore[attr-defined]
    big = put(np.zeros(1 << 20, np.float32))
    del big
    fake.total = fake.used + (1 << 10)
    bigger = put(np.zeros((1 << 20) - (1 << 12), np.float32))
    assert bigger.nbytes > 1 << 21


def test_a_launch_that_is_refused_names_its_kernel(fake: Any) -> None:
    exe = fake.executable(ADD)
    fake.fail("cuLaunchKernel", "LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(UnsupportedError, match=r"kernel nw_\w+ of group .* cannot be launched"):
        exe(*arguments(exe))
    args = arguments(exe)
    assert_right(exe, args, exe(*args))


def faulty(fake: Any, exe: Executable) -> str:
    """Make the last kernel fault when it runs."""
    symbol = list(kernels(exe.plan))[-1]
    words = fake.kernels[symbol].words

    def fault(*pointers: int) -> None:
        fake.fault()

    fault.words = words  # type: ignore[attr-defined]
    fake.kernels[symbol] = fault
    return symbol


def test_a_fault_names_the_kernel_and_ends_the_device(fake: Any) -> None:
    exe = fake.executable(ADD)
    args = arguments(exe)
    symbol = faulty(fake, exe)
    with pytest.raises(DeviceError, match=rf"kernel {symbol} of group .* failed.*ILLEGAL_ADDRESS"):
        exe(*args)
    with pytest.raises(DeviceError, match="cannot be used any more in this process"):
        exe(*args)
    with pytest.raises(DeviceError, match="start a new process"):
        fake.executable(ADD)(*args)


def test_of_several_kernels_the_faulty_one_is_named_on_request(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = fake.executable(CHAIN)
    args = arguments(exe)
    exe(*args)
    symbol = faulty(fake, exe)
    monkeypatch.setenv(SYNC, "1")
    program: Any = exe.loaded()
    program._recorder._known.clear()
    with pytest.raises(DeviceError, match=f"kernel {symbol} of group"):
        exe(*args)


def test_without_that_the_error_says_how(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    args = arguments(exe)
    faulty(fake, exe)
    with pytest.raises(DeviceError, match=SYNC):
        exe.loaded().run(args, None)
        exe.loaded().synchronize()  # type: ignore[attr-defined]


def test_a_late_fault_tells_what_was_under_way(fake: Any) -> None:
    exe = fake.executable(ADD)
    put = [exe.put(a) for a in arguments(exe)]
    faulty(fake, exe)
    made = exe(*put)
    with pytest.raises(DeviceError, match=f"under way were add\n.*{SYNC}=1"):
        made.numpy()


def test_ptx_that_the_driver_refuses_is_told_with_its_log(fake: Any) -> None:
    fake.log = "ptxas fatal: line 3: what is this?"
    with pytest.raises(VerifyError, match="line 3: what is this"):
        fake.executable(ADD)(*[np.zeros(64, np.float32)] * 2)


@pytest.mark.parametrize(
    ("arch", "capability", "loads"),
    [
        ("sm_90", 90, "cuModuleLoadData"),
        ("sm_90a", 90, "cuModuleLoadData"),
        ("sm_80", 86, "cuModuleLoadData"),
        ("sm_80", 90, "cuModuleLoadDataEx"),
        ("sm_90", 100, "cuModuleLoadDataEx"),
        ("sm_90a", 100, None),
        ("sm_90", 80, None),
    ],
)
def test_code_loads_where_it_can_run(fake: Any, arch: str, capability: int, loads: Any) -> None:
    exe = fake.executable(ADD)
    codes = {s: replace(c, cubin=b"cubin") for s, c in exe.bundle.kernels.items()}  # type: ignore[type-var]
    target = Target.parse(f"cuda -arch={arch}")
    other = Executable(replace(exe.bundle, target=target, kernels=codes), lambda: exe.module)
    fake.capability = capability
    if loads is None:
        with pytest.raises(TargetError, match=f"built for cuda -arch={arch}.*sm_{capability}"):
            other(*arguments(other))
    else:
        other(*arguments(other))
        first = next(n for n, _ in fake.calls if n.startswith("cuModuleLoad"))
        assert first == loads


# ---- what is shared and what is freed -------------------------------------------------------


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


def test_a_profile_has_a_row_for_each_thunk(fake: Any) -> None:
    for text in (CHAIN, COUNT):
        exe = fake.executable(text)
        rows = exe.profile(*arguments(exe), rounds=2)
        assert [r.name for r in rows] == [t.name for t in exe.plan.thunks]
        assert all(r.seconds > 0 for r in rows) and any(r.bytes for r in rows)
        assert exe.memory_analysis()["temp_size_in_bytes"] == exe.plan.arena_bytes
        assert exe.cost_analysis()["flops"] > 0


# ---- the real bindings ----------------------------------------------------------------------


def test_the_bindings_take_what_they_are_given(fake: Any) -> None:
    """Every call that the stand-in saw, made to the real functions: without a driver they convert
    their arguments, then say that there is none."""
    api = pytest.importorskip("cuda.bindings.driver")
    try:
        api.cuInit(0)
    except RuntimeError:
        pass
    else:
        pytest.skip("there is a driver here, which must not be called like this")
    for text in (CHAIN, COUNT):
        exe = fake.executable(text, shared_bytes=64 << 10)
        for _ in range(3):
            exe(*arguments(exe))
        exe.profile(*arguments(exe))
        exe(*map(exe.loaded().put, arguments(exe)))  # type: ignore[attr-defined]
    put = exe.loaded().put(np.zeros(4, np.float32))  # type: ignore[attr-defined]
    put.__dlpack__(stream=2)
    del exe, put
    program = fake.executable(ADD)
    codes = {s: replace(c, cubin=b"x") for s, c in program.bundle.kernels.items()}  # type: ignore[type-var]
    again = Executable(replace(program.bundle, kernels=codes), lambda: program.module)
    again(*map(Foreign, map(aligned, arguments(again))))
    again.loaded().device.release_kept()  # type: ignore[attr-defined]
    fake.total = 0
    with pytest.raises(MemoryError):
        again.loaded().put(np.zeros(1 << 20))  # type: ignore[attr-defined]
    seen: dict[str, tuple[Any, ...]] = dict(fake.calls)
    assert len(seen) > 30
    for name, args in seen.items():
        with pytest.raises(RuntimeError, match="driver"):
            getattr(api, name)(*(as_real(api, name, i, a) for i, a in enumerate(args)))
    for kind, names in CONSTANTS.items():
        assert all(hasattr(getattr(api, kind), n) for n in names)


CONSTANTS = {
    "CUdevice_attribute": [
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE",
    ],
    "CUjit_option": ["CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"],
    "CUfunction_attribute": ["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"],
    "CUstreamCaptureMode": ["CU_STREAM_CAPTURE_MODE_RELAXED"],
}
HANDLES = {
    "cuStreamQuery": ("CUstream",), "cuEventRecord": ("CUevent", "CUstream"),
    "cuEventQuery": ("CUevent",), "cuEventDestroy": ("CUevent",),
    "cuEventElapsedTime": ("CUevent", "CUevent"),
    "cuStreamWaitEvent": ("CUstream", "CUevent"), "cuCtxPushCurrent": ("CUcontext",),
    "cuModuleGetFunction": ("CUmodule",), "cuModuleUnload": ("CUmodule",),
    "cuFuncSetAttribute": ("CUfunction",), "cuStreamBeginCapture": ("CUstream",),
    "cuStreamEndCapture": ("CUstream",), "cuGraphInstantiate": ("CUgraph",),
    "cuGraphDestroy": ("CUgraph",), "cuGraphLaunch": ("CUgraphExec", "CUstream"),
    "cuGraphExecDestroy": ("CUgraphExec",), "cuLaunchKernel": ("CUfunction",),
}  # fmt: skip


def as_real(api: Any, name: str, index: int, value: Any) -> Any:
    """A recorded argument as the real function would have got it."""
    if isinstance(value, str):
        for kind in CONSTANTS:
            if value.startswith("CU_") and hasattr(getattr(api, kind), value):
                return getattr(getattr(api, kind), value)
    if name == "cuGetErrorString":
        return api.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    if name == "cuModuleLoadDataEx" and index == 2:
        return [as_real(api, name, index, v) for v in value]
    kinds = HANDLES.get(name, ())
    kind = kinds[index] if index < len(kinds) else ""
    if isinstance(value, int) and kind in ("", "CUstream"):
        return value  # other libraries name their streams by numbers
    if isinstance(value, bytes | list) and not kind:
        return value
    return getattr(api, kind or "CUstream")(1)


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
