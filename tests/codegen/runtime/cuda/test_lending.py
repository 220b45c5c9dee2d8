"""Arrays that change hands on a GPU: when their memory serves again, and how they are told of."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nestwright.codegen.runtime.cuda import device as device_module
from nestwright.codegen.runtime.cuda.arrays import DeviceArray
from nestwright.codegen.runtime.cuda.device import Device
from nestwright.codegen.runtime.dlpack import capsules, elements
from nestwright.ir.dtypes import BY_NAME, f32, to_numpy
from nestwright.ir.errors import ArgumentError, DeviceError, OutOfMemoryError

from .models import ADD, aligned

if TYPE_CHECKING:
    from ...conftest import FakeApi


class Consumer:
    """Another library that took an array over from a capsule: it drops it by the deleter."""

    def __init__(self, capsule: object) -> None:
        name = b"dltensor_versioned" if "dltensor_versioned" in repr(capsule) else b"dltensor"
        self.place = capsules._get(id(capsule), name)
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self.used = b"used_" + name  # a capsule does not copy its name
        rename(capsule, self.used)
        kind = capsules._ManagedVersioned if name.endswith(b"versioned") else capsules._Managed
        self.managed = ctypes.cast(self.place, ctypes.POINTER(kind)).contents

    def drop(self) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.place)


def taken(array: DeviceArray, **how: Any) -> Consumer:
    return Consumer(array.__dlpack__(**how))


def by_capsule(array: DeviceArray) -> Any:
    return taken(array, stream=77).drop


def by_interface(array: DeviceArray) -> Any:
    held = [array.__cuda_array_interface__, array]
    return held.clear


# ---- memory that others have read ----------------------------------------------------------


@pytest.mark.parametrize("lend", [by_capsule, by_interface])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_memory_that_was_lent_serves_again_when_its_reader_is_done(
    fake: FakeApi, lend: Any, elsewhere: bool
) -> None:
    exe = fake.executable(ADD)
    x = np.ones(64, np.float32)
    array = exe.put(x)
    address, drop = array.address, lend(array)
    del array
    fake.busy = True
    if elsewhere:
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
    else:
        drop()
    others = [exe.put(x) for _ in range(3)]
    assert address not in [o.address for o in others]
    assert address in fake.memory and not fake.count()["cuMemFree"]
    fake.busy = False
    exe.loaded().synchronize()  # type: ignore[attr-defined]
    assert exe.put(x).address == address
    assert fake.count()["cuMemFree"] == 0


def test_memory_that_nobody_else_saw_serves_at_once(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    fake.busy = True
    array = exe.put(np.ones(64, np.float32))
    address = array.address
    del array
    assert exe.put(np.ones(64, np.float32)).address == address
    assert not fake.count()["cuCtxRecordEvent"]


def test_a_driver_without_such_events_waits_before_it_serves_again(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    array = exe.put(np.ones(64, np.float32))
    drop = taken(array).drop
    del array
    drop()
    fake.fail("cuCtxRecordEvent", "NOT_FOUND")
    exe.put(np.ones(64, np.float32))
    assert fake.count()["cuMemFree"] == 1


def test_where_the_event_is_refused_for_now_it_is_tried_again(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    x = np.ones(64, np.float32)
    array = exe.put(x)
    address, drop = array.address, taken(array).drop
    del array
    drop()
    for _ in range(2):  # as the device is taken, and as memory is asked for
        fake.fail("cuCtxRecordEvent", "STREAM_CAPTURE_UNSUPPORTED")
    held = [exe.put(x)]
    assert held[0].address != address and address in fake.memory
    exe.loaded().synchronize()  # type: ignore[attr-defined]
    exe.loaded().synchronize()  # type: ignore[attr-defined]
    assert exe.put(x).address == address


def test_short_memory_takes_back_what_was_lent(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    array = exe.put(np.zeros(1 << 20, np.float32))
    drop = taken(array).drop
    del array
    drop()
    fake.busy = True
    exe.loaded().synchronize()  # type: ignore[attr-defined]
    fake.total = fake.used + (1 << 10)
    assert exe.put(np.zeros((1 << 20) - (1 << 12), np.float32)).nbytes
    with pytest.raises(OutOfMemoryError, match="has no room for array"):
        exe.put(np.zeros(1 << 24, np.float32))


def test_deleters_are_safe_after_a_fault_and_in_a_forked_process(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = fake.executable(ADD)
    arrays = [exe.put(np.ones(64, np.float32)) for _ in range(2)]
    drops = [taken(a).drop for a in arrays]
    arrays.clear()
    with monkeypatch.context() as patch:
        patch.setattr(device_module.os, "getpid", lambda: -1)
        calls = len(fake.calls)
        drops[0]()
        with pytest.raises(DeviceError, match="does not survive a fork"):
            exe.put(np.ones(64, np.float32))
        assert len(fake.calls) == calls
    fake.fault()
    with pytest.raises(DeviceError):
        exe.loaded().synchronize()  # type: ignore[attr-defined]
    calls = len(fake.calls)
    drops[1]()
    with pytest.raises(DeviceError, match="cannot be used any more"):
        exe.put(np.ones(64, np.float32))
    assert len(fake.calls) == calls


# ---- what is kept, and what finalizers do --------------------------------------------------


def test_large_results_come_back_without_a_wait(fake: FakeApi) -> None:
    """Beyond the bound, each size costs one turn to learn of."""
    fake.total = 1 << 22
    exe = fake.executable(ADD)
    put, sizes = exe.put, (700 << 10, 800 << 10)
    for turn in range(6):
        arrays = [put(np.zeros(n, np.uint8)) for n in sizes]
        arrays.clear()
        if turn == 2:
            freed = fake.count()["cuMemFree"]
    assert fake.count()["cuMemFree"] == freed


def test_what_waits_is_bounded_by_the_devices_memory(fake: FakeApi) -> None:
    fake.total = 1 << 24
    exe = fake.executable(ADD)
    exe.loaded()
    before = fake.used
    for n in range(64):
        exe.put(np.zeros((64 + n) << 10, np.uint8))
    exe.loaded().synchronize()  # type: ignore[attr-defined]
    assert fake.used - before <= (1 << 24) // 8
    assert fake.count()["cuMemFree"] > 30


def test_finalizers_take_no_lock_and_call_no_driver(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    args = exe.random_arguments()
    for _ in range(3):
        exe(*args)
    kept: list[Any] = [exe, exe.put(args[0])]
    device: Device = exe.loaded().device  # type: ignore[attr-defined]
    del exe
    done = threading.Event()

    def drop() -> None:
        kept.clear()
        gc.collect()
        done.set()

    with device:  # as in a long wait
        calls = len(fake.calls)
        thread = threading.Thread(target=drop, daemon=True)
        thread.start()
        assert done.wait(60), "a finalizer waits for the device"
        assert len(fake.calls) == calls
    thread.join()
    device.release_kept()
    assert not fake.memory and not fake.modules


# ---- capsules with versions ----------------------------------------------------------------


def version(consumer: Consumer) -> tuple[int, int]:
    return consumer.managed.major, consumer.managed.minor


def test_who_reads_versioned_capsules_gets_one(fake: FakeApi) -> None:
    array = fake.executable(ADD).put(np.arange(6, dtype=np.float32).reshape(2, 3))
    for asked in ((1, 0), (1, 7), (2, 0)):
        new = taken(array, max_version=asked)
        assert version(new) == (1, 0) and new.managed.flags == 0
        assert new.managed.tensor.data == array.address and new.managed.tensor.strides[0] == 3
        new.drop()
    for how in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        old = taken(array, **how)
        assert isinstance(old.managed, capsules._Managed)
        old.drop()
    before = len(capsules._lent)
    capsule = array.__dlpack__(max_version=(1, 0))
    assert len(capsules._lent) == before + 1
    del capsule
    assert len(capsules._lent) == before


def test_copies_and_devices_are_as_asked(fake: FakeApi) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = fake.executable(ADD).put(values)
    copy = taken(array, max_version=(1, 0), copy=True)
    assert copy.managed.flags == capsules._IS_COPIED
    assert copy.managed.tensor.data != array.address
    array.device.synchronize()
    assert ctypes.string_at(copy.managed.tensor.data, 24) == values.tobytes()
    assert taken(array, dl_device=(2, 0), copy=False).managed.tensor.data == array.address
    host = taken(array, dl_device=(1, 0), max_version=(1, 0))
    assert host.managed.tensor.device_type == elements.CPU
    assert ctypes.string_at(host.managed.tensor.data, 24) == values.tobytes()
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"on device \(2, 0\), not on \(2, 1\)"):
        array.__dlpack__(dl_device=(2, 1))


@pytest.mark.parametrize("name", ["bf16", "f8e5m2", "c64", "pred", "s64"])
def test_the_host_gets_every_type(fake: FakeApi, name: str) -> None:
    values = np.ones(6, to_numpy(BY_NAME[name]))
    array = fake.executable(ADD).put(values)
    found = capsules.read(array.__dlpack__(dl_device=(1, 0)))
    assert found.dtype == BY_NAME[name]
    assert ctypes.string_at(found.address, values.nbytes) == values.tobytes()


class Lender:
    """An array of a library that knows versioned capsules only."""

    def __init__(self, array: Any, flags: int = 0, major: int = 1) -> None:
        self.array, self.flags, self.major = array, flags, major

    def __dlpack_device__(self) -> tuple[int, int]:
        return elements.CUDA, 0

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int] | None = None) -> object:
        if max_version is None:
            raise BufferError("versions only")
        before = set(capsules._lent)
        made = capsules.capsule(
            self.array.ctypes.data, f32, self.array.shape, 0, self.array, versioned=True
        )
        (place,) = set(capsules._lent) - before
        managed: Any = capsules._lent[place].managed
        managed.flags, managed.major = self.flags, self.major
        return made


def test_versioned_capsules_are_taken(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    x, y = (aligned(a) for a in exe.random_arguments())
    out = aligned(np.zeros(64, np.float32))
    np.testing.assert_allclose(exe(Lender(x), Lender(y)).numpy(), x + y, rtol=1e-6)
    target = Lender(out)
    assert exe(Lender(x, flags=capsules._READ_ONLY), Lender(y), out=target) is target
    exe.loaded().synchronize()  # type: ignore[attr-defined]
    np.testing.assert_allclose(out, x + y, rtol=1e-6)
    with pytest.raises(ArgumentError, match=r"of version 2\.0, not 1\.x"):
        exe(Lender(x, major=2), Lender(y))


def test_results_do_not_go_where_nobody_may_write(fake: FakeApi) -> None:
    exe = fake.executable(ADD)
    x, y = (aligned(a) for a in exe.random_arguments())
    facts = {"shape": (64,), "typestr": "<f4", "data": (x.ctypes.data, True), "version": 3}

    class Fixed:
        __cuda_array_interface__ = facts

    for target in (Lender(x, flags=capsules._READ_ONLY), Fixed()):
        with pytest.raises(ArgumentError, match="out: an array that may only be read"):
            exe(x, y, out=target)
    assert exe(Fixed(), y).numpy() is not None
