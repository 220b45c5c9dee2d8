"""What users see when the driver or its bindings fail, at any call; over a stand-in driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.cuda import device as device_module
from nestwright.codegen.runtime.cuda import driver as driver_module
from nestwright.codegen.runtime.cuda.driver import STICKY, Driver, DriverError
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir import gpus
from nestwright.ir.errors import (
    DeviceError,
    NestwrightError,
    NestwrightWarning,
    OutOfMemoryError,
    TargetError,
    UnsupportedError,
    VerifyError,
)

from ...conftest import Handle, Status
from .models import ADD, CHAIN, Foreign, assert_right

if TYPE_CHECKING:
    from ...conftest import FakeApi

CHOOSE = """HloModule choose
left { x = f32[8] parameter(0)
  ROOT r = f32[8] add(x, x) }
right { x = f32[8] parameter(0)
  ROOT r = f32[8] multiply(x, x) }
ENTRY main {
  n = s32[] parameter(0)
  x = f32[8] parameter(1)
  ROOT r = f32[8] conditional(n, x, x), branch_computations={left, right}
}
"""


def with_machine_code(exe: Executable) -> Executable:
    codes = {s: replace(c, cubin=b"cubin") for s, c in exe.bundle.kernels.items()}  # type: ignore[type-var]
    return Executable(replace(exe.bundle, kernels=codes), lambda: exe.module)


# ---- machine code, PTX, shared memory -------------------------------------------------------


@pytest.mark.parametrize(
    "status", ["NO_BINARY_FOR_GPU", "UNSUPPORTED_PTX_VERSION", "INVALID_VALUE", "OUT_OF_MEMORY"]
)
def test_machine_code_that_is_refused_gives_way_to_ptx(fake: FakeApi, status: str) -> None:
    exe = with_machine_code(fake.executable(ADD))
    args = exe.random_arguments()
    for _ in range(1 + (status == "OUT_OF_MEMORY")):  # again without the memory that waits
        fake.fail("cuModuleLoadData", status)
    (symbol,) = kernels(exe.plan)
    with pytest.warns(NestwrightWarning, match=f"kernel {symbol}: .* compiles its PTX: .*{status}"):
        assert_right(exe, args, exe(*args))
    assert fake.count()["cuModuleLoadDataEx"] == 1


def test_where_the_ptx_is_refused_too_both_are_told(fake: FakeApi) -> None:
    exe = with_machine_code(fake.executable(ADD))
    args = exe.random_arguments()
    fake.fail("cuModuleLoadData", "UNSUPPORTED_PTX_VERSION")
    fake.log = "ptxas fatal: line 3: what is this?"
    told = r"INVALID_PTX.*line 3: what is this.*refused too: cuModuleLoadData: .*PTX_VERSION"
    with pytest.raises(VerifyError, match=told):
        exe(*args)
    fake.log = ""
    fake.fail("cuModuleLoadData", "INVALID_VALUE")
    fake.fail("cuModuleLoadDataEx", "NOT_FOUND")
    with pytest.raises(UnsupportedError, match=r"LoadDataEx: .*NOT_FOUND.*LoadData: .*INVALID_VAL"):
        exe(*args)


def test_a_lost_context_is_no_reason_to_try_the_ptx(fake: FakeApi) -> None:
    exe = with_machine_code(fake.executable(ADD))
    fake.fail("cuModuleLoadData", "ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match="earlier work on Imaginary GPU failed"):
        exe(*exe.random_arguments())
    assert not fake.count()["cuModuleLoadDataEx"]


@pytest.mark.parametrize(
    ("static", "dynamic", "asked"),
    [
        (0, 48 << 10, False),
        (128, 48 << 10, True),
        (128, (48 << 10) - 128, False),
        (8, 1 << 17, True),
    ],
)
def test_static_shared_memory_counts(fake: FakeApi, static: int, dynamic: int, asked: bool) -> None:
    exe = fake.executable(ADD, shared_bytes=dynamic)
    fake.static = static
    args = exe.random_arguments()
    assert_right(exe, args, exe(*args))
    calls = [args for name, args in fake.calls if name == "cuFuncSetAttribute"]
    assert [c[2] for c in calls] == ([dynamic] if asked else [])


def test_a_block_that_cannot_fit_is_refused_when_loaded(fake: FakeApi) -> None:
    exe = fake.executable(ADD, shared_bytes=227 << 10)
    fake.static = 128
    (symbol,) = kernels(exe.plan)
    with pytest.raises(UnsupportedError, match=f"kernel {symbol} .*232448 bytes .* and 128 for"):
        exe(*exe.random_arguments())
    assert not fake.launched


# ---- faults ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["UNKNOWN", "EXTERNAL_DEVICE", "CONTAINED", "ILLEGAL_STATE"])
def test_after_a_sticky_status_later_calls_say_so(fake: FakeApi, status: str) -> None:
    exe = fake.executable(ADD)
    args = exe.random_arguments()
    exe(*args)
    fake.fail("cuStreamQuery", status)
    with pytest.raises(DeviceError, match=f"kernel .* failed: .*{status}.*in progress: add"):
        exe(*args)
    calls = len(fake.calls)
    for again in (exe, fake.executable(CHAIN)):
        with pytest.raises(DeviceError, match=f"cannot be used any more in this.*{status}"):
            again(*again.random_arguments())
    assert len(fake.calls) == calls, "the driver was left alone"


def test_a_fault_that_another_models_call_meets_is_not_told_as_its_own(fake: FakeApi) -> None:
    first, second = fake.executable(ADD), fake.executable(ADD.replace("add", "other", 1))
    given = [[exe.put(a) for a in exe.random_arguments()] for exe in (first, second)]
    held = first(*given[0])
    fake.fail("cuMemAlloc", "ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError) as caught:
        second(*given[1])
    assert str(caught.value).startswith("earlier work on Imaginary GPU failed: cuMemAlloc: CUDA_")
    assert "in progress: add" in str(caught.value)
    assert held.nbytes


def test_a_wait_names_all_that_was_under_way(fake: FakeApi) -> None:
    first, second = fake.executable(ADD), fake.executable(ADD.replace("add", "other", 1))
    first(*[first.put(a) for a in first.random_arguments()])
    fake.fault()
    fake.broken, broken = None, fake.broken
    second.loaded()
    fake.fail("cuStreamQuery", broken.name.removeprefix("CUDA_ERROR_"))  # type: ignore[union-attr]
    with pytest.raises(DeviceError, match="one of add, other failed"):
        second(*second.random_arguments())


# ---- what keeps a driver from being used ----------------------------------------------------


class Broken:
    """Bindings whose functions raise."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return Broken(self.error) if name.startswith("CU") else name
        raise self.error


WRONG = [
    RuntimeError("Failed to dlopen libcuda.so.1"),
    RuntimeError('Function "cuGetProcAddress_v2" not found'),
    ValueError("12345 is not a valid CUresult"),
]


@pytest.mark.parametrize("error", WRONG, ids=str)
def test_what_the_bindings_raise_is_told(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    bindings = SimpleNamespace(driver=Broken(error))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(gpus, "capability", gpus.capability.__wrapped__)
    for ask in (driver_module.driver.__wrapped__, gpus.capability):
        with pytest.raises(TargetError) as caught:
            ask()
        assert caught.value.why.startswith("cuInit: ")
        assert f"{type(error).__name__}: {error}" in caught.value.why


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'cuda'", name="cuda"), "not installed, or older"),
        (ImportError("libfoo.so: undefined symbol: bar"), "libfoo.so: undefined symbol: bar"),
        (OSError("a file is damaged"), "OSError: a file is damaged"),
    ],
)
def test_what_importing_raises_is_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    class Finder:
        def find_spec(self, name: str, *unused: object) -> None:
            if name.startswith("cuda"):
                raise error

    for name in [n for n in sys.modules if n.split(".")[0] == "cuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    for ask in (driver_module.driver.__wrapped__, gpus.capability.__wrapped__):
        with pytest.raises(TargetError) as caught:
            ask()
        assert told in caught.value.why


@pytest.mark.parametrize("kind", [ValueError, KeyError])
@pytest.mark.parametrize(
    ("number", "name"), [(721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"), (12345, "status 12345")]
)
def test_a_status_that_the_bindings_do_not_know_may_be_sticky(
    kind: type[Exception], number: int, name: str
) -> None:
    error = kind(number) if kind is KeyError else kind(f"{number} is not a valid CUresult")
    with pytest.raises(DriverError, match=name) as caught:
        Driver(Broken(error)).call("cuInit", 0)
    assert caught.value.number == number and caught.value.sticky == (number in STICKY)


# ---- recording ------------------------------------------------------------------------------


def spoil(fake: FakeApi, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Another library ends the validity of the next recording, at its launch of this number."""
    real, seen = fake.cuLaunchKernel, 0

    def launch(*args: Any) -> Any:
        nonlocal seen
        stream: Handle = args[8]
        if stream.value.recording is not None:
            seen += 1
            stream.value.invalid = stream.value.invalid or seen == at
        return real(*args)

    monkeypatch.setitem(fake.__dict__, "cuLaunchKernel", launch)


def test_an_invalid_recording_names_the_operation_and_the_run_goes_on(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = fake.executable(CHAIN)
    args = exe.random_arguments()
    exe(*args)
    second = list(kernels(exe.plan))[1]
    with monkeypatch.context() as patch:
        spoil(fake, patch, 2)
        told = f"chain: nothing can be recorded: .*when kernel {second} of group .* was recorded"
        with pytest.warns(NestwrightWarning, match=told):
            assert_right(exe, args, exe(*args))
    assert not any(s.recording for s in fake.streams)
    for _ in range(2):
        assert_right(exe, args, exe(*args))
    assert fake.count()["cuGraphLaunch"] == 2


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("cuStreamBeginCapture", "recording began: cuStreamBeginCapture"),
        ("cuStreamIsCapturing", r"kernel \w+ of group \S+ was recorded: cuStreamIsCapturing"),
        ("cuStreamEndCapture", "recording ended: cuStreamEndCapture"),
        ("cuGraphInstantiate", "a graph was made of it: cuGraphInstantiate"),
    ],
)
def test_recording_may_fail_anywhere(fake: FakeApi, function: str, told: str) -> None:
    exe = fake.executable(CHAIN)
    args = exe.random_arguments()
    exe(*args)
    fake.fail(function, "STREAM_CAPTURE_UNSUPPORTED")
    with pytest.warns(NestwrightWarning, match=f"{told}: CUDA_ERROR_STREAM_CAPTURE_UNSUPP"):
        assert_right(exe, args, exe(*args))
    assert all(s.recording is None for s in fake.streams)
    assert_right(exe, args, exe(*args))
    assert fake.count()["cuGraphLaunch"] == 1


def test_a_recording_that_always_fails_is_given_up(fake: FakeApi) -> None:
    exe = fake.executable(CHAIN)
    args = exe.random_arguments()
    exe(*args)
    for _ in range(3):
        fake.fail("cuGraphInstantiate", "INVALID_VALUE")
        with pytest.warns(NestwrightWarning, match="it runs one by one"):
            assert_right(exe, args, exe(*args))
    assert_right(exe, args, exe(*args))
    assert fake.count()["cuStreamBeginCapture"] == 3 and not fake.count()["cuGraphLaunch"]


def test_a_recorder_that_does_not_end_its_recording_is_replaced(fake: FakeApi) -> None:
    exe = fake.executable(CHAIN)
    args = exe.random_arguments()
    exe(*args)
    before = exe.loaded().device.recorder  # type: ignore[attr-defined]
    for _ in range(2):
        fake.fail("cuStreamEndCapture", "INVALID_VALUE")
    with pytest.warns(NestwrightWarning, match="recording ended"):
        assert_right(exe, args, exe(*args))
    assert exe.loaded().device.recorder is not before  # type: ignore[attr-defined]
    assert_right(exe, args, exe(*args))
    assert fake.count()["cuGraphLaunch"] == 1


# ---- every call may fail --------------------------------------------------------------------


@pytest.fixture(scope="module")
def built() -> tuple[FakeApi, list[Executable]]:
    """Models, and a stand-in that has their kernels."""
    from ...conftest import FakeApi

    api = FakeApi()
    made = [with_machine_code(api.executable(CHAIN)), api.executable(CHOOSE)]
    api.kernels |= {f"nw_gather_{w}": None for w in (1, 2, 4, 8)}  # type: ignore[dict-item]
    return api, made


def fresh(built: tuple[FakeApi, list[Executable]], patch: pytest.MonkeyPatch) -> FakeApi:
    """A stand-in with the same kernels, whose device nobody has asked for."""
    from ...conftest import FakeApi

    api = FakeApi(kernels=built[0].kernels)
    patch.setattr(device_module, "driver", lambda: Driver(api))
    patch.setattr(device_module, "_devices", {})
    return api


def all_that_the_runtime_does(models: list[Executable]) -> None:
    """One turn of everything: it raises what a user would see."""
    chain, choose = (Executable(exe.bundle, lambda e=exe: e.module) for exe in models)  # type: ignore[misc]
    args = chain.random_arguments()
    for _ in range(3):
        assert_right(chain, args, chain(*args))
    put = [chain.put(a) for a in args]
    made = chain(*put)
    made[0].__dlpack__(stream=2)
    made[0].__dlpack__(copy=True)
    assert_right(chain, args, tuple(m.numpy() for m in made))
    chain(Foreign(np.array(args[0].T).T, stream=1), put[1], out=made)
    chain.profile(*args, rounds=1)
    del made
    for n in (0, 1):
        given = [np.int32(n), np.arange(8, dtype=np.float32)]
        assert_right(choose, given, choose(*given))
    device = chain.loaded().device  # type: ignore[attr-defined]
    del chain, choose, put
    device.synchronize()
    device.release_kept()


def failing_at(api: FakeApi, number: int, failure: Callable[[str], Any]) -> None:
    """Let the call of this number fail."""
    real = api.calls

    class Calls(list[Any]):
        def append(self, call: Any) -> None:
            super().append(call)
            name, _ = call
            if len(self) == number and name != "cuGetErrorString":
                failure(name)

    api.calls = Calls(real)


@pytest.mark.parametrize("kind", ["INVALID_VALUE", "OUT_OF_MEMORY", "UNKNOWN", "raises"])
@pytest.mark.filterwarnings("ignore::nestwright.ir.errors.NestwrightWarning")
def test_whatever_call_fails_the_error_is_ours(
    built: tuple[FakeApi, list[Executable]], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """At the first call of each function, of one kind after each other one, in turn; then, unless
    the context is lost, the same works."""
    api = fresh(built, monkeypatch)
    all_that_the_runtime_does(built[1])
    names, told = ["", *(name for name, _ in api.calls)], 0
    pairs = {pair: n for n, pair in reversed([*enumerate(pairwise(names), 1)])}
    assert len(pairs) > 60
    alone = {name: n for (_, name), n in sorted(pairs.items(), key=lambda x: -x[1])}
    for number in sorted((pairs if kind == "INVALID_VALUE" else alone).values()):
        api = fresh(built, monkeypatch)
        failed: list[str] = []

        def failure(name: str, api: FakeApi = api, failed: list[str] = failed) -> None:
            failed.append(name)
            if kind == "raises":
                raise RuntimeError(f'Function "{name}" not found')
            api.failing.setdefault(name, []).insert(0, Status[f"CUDA_ERROR_{kind}"])

        failing_at(api, number, failure)
        try:
            all_that_the_runtime_does(built[1])
        except NestwrightError as error:
            told += 1
            assert failed[0] in str(error), f"{failed[0]}: {error}"
            if kind == "OUT_OF_MEMORY":
                assert isinstance(error, OutOfMemoryError | TargetError)
            if kind == "UNKNOWN":
                assert isinstance(error, DeviceError | TargetError)
        assert not api.contexts or failed == ["cuCtxPopCurrent"], f"left current: {failed}"
        api.contexts.clear()
        if kind != "UNKNOWN":
            all_that_the_runtime_does(built[1])
    assert told > (30 if kind == "INVALID_VALUE" else 12)
    assert os.environ.get(device_module.SYNC) is None
