"""Memory of the stand-in: what a driver refuses is refused, and what it would not see is told."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from gpu.stub.calls import ended, failed, good, started
from gpu.stub.control import Stub

cu = pytest.importorskip("cuda.bindings.driver")


def the_report(stub: Stub) -> str:
    """The only report, which is then forgotten."""
    (told,) = stub.reports()
    stub.clear()
    return told


def test_nothing_works_before_init_or_without_a_context(stub: Stub) -> None:
    assert failed(cu.cuDeviceGetCount()) == "NOT_INITIALIZED"
    good(cu.cuInit(0))
    assert good(cu.cuDeviceGetCount()) == 1
    assert failed(cu.cuMemAlloc(256)) == "INVALID_CONTEXT"
    assert failed(cu.cuCtxPopCurrent()) == "INVALID_CONTEXT"
    assert "without a current context" in the_report(stub)


def test_fresh_memory_is_nan_in_every_float_type(stub: Stub) -> None:
    started()
    for allocated in cu.cuMemAlloc(64), cu.cuMemHostAlloc(64, 0):
        address = int(good(allocated))
        assert address % 256 == 0
        found = bytes((ctypes.c_uint8 * 64).from_address(address))
        for kind in "f2", "f4", "f8":
            assert np.isnan(np.frombuffer(found, kind)).all()
    ended()


@pytest.mark.parametrize("side", ["before", "behind"])
def test_a_write_outside_of_memory_is_found(stub: Stub, side: str) -> None:
    started()
    address = int(good(cu.cuMemAlloc(100)))
    ctypes.memset(address - 3 if side == "before" else address + 100, 7, 3)
    assert f"written as far as 3 bytes {side}" in the_report(stub)
    good(cu.cuMemFree(address))
    ended()


def test_a_write_into_freed_memory_is_found(stub: Stub) -> None:
    started()
    address = int(good(cu.cuMemAlloc(1000)))
    good(cu.cuMemFree(address))
    ctypes.memset(address + 10, 7, 1)
    assert "written at byte 10 of freed device memory" in the_report(stub)
    ended()


def test_freed_memory_is_looked_at_when_it_is_given_back(stub: Stub) -> None:
    started()
    first, second = (int(good(cu.cuMemAlloc(40 << 20))) for _ in range(2))
    good(cu.cuMemFree(first))
    ctypes.memset(first + 10, 7, 1)
    good(cu.cuMemFree(second))  # more than is watched: the first one ends
    assert "written at byte 10 of freed device memory" in the_report(stub)
    ended()


def test_freeing_waits_for_the_device(stub: Stub) -> None:
    (stream,) = started(0)
    kept, freed = (int(good(cu.cuMemAlloc(1))) for _ in range(2))
    good(cu.cuMemsetD8Async(kept, 1, 1, stream))
    good(cu.cuMemsetD8Async(freed, 1, 1, stream))
    good(cu.cuMemFree(freed))
    assert ctypes.c_uint8.from_address(kept).value == 1
    ended()


def test_what_is_freed_must_be_there(stub: Stub) -> None:
    started()
    address = int(good(cu.cuMemAlloc(1000)))
    for wrong in address + 256, 4096:
        assert failed(cu.cuMemFree(wrong)) == "INVALID_VALUE"
        assert "where no device memory begins" in the_report(stub)
    good(cu.cuMemFree(address))
    assert failed(cu.cuMemFree(address)) == "INVALID_VALUE"
    assert "freed before" in the_report(stub)
    ended()


def test_copies_stay_inside_of_memory(stub: Stub) -> None:
    (stream,) = started(0)
    target, source = (int(good(cu.cuMemAlloc(1000))) for _ in range(2))
    host = np.zeros(2000, np.uint8)
    place, room = host.ctypes.data, "byte 0 of memory of 1000 bytes"
    for function, args, told in (
        (cu.cuMemcpyHtoDAsync, (target, place, 1001), room),
        (cu.cuMemcpyDtoHAsync, (place, target, 1001), room),
        (cu.cuMemcpyDtoDAsync, (target + 1, source, 1000), "byte 1 of memory of 1000 bytes"),
        (cu.cuMemsetD8Async, (target, 0, 1001), room),
        (cu.cuMemcpyHtoDAsync, (place, target, 8), "no memory of the device"),
        (cu.cuMemcpyDtoHAsync, (target, source, 8), "no memory of the host"),
    ):
        assert failed(function(*args, stream)) == "INVALID_VALUE"
        assert told in the_report(stub)
    good(cu.cuMemFree(source))
    assert failed(cu.cuMemcpyDtoDAsync(target, source, 8, stream)) == "INVALID_VALUE"
    assert "which was freed" in the_report(stub)
    ended()


def test_memory_ends_and_comes_back(stub: Stub) -> None:
    started()
    stub.memory(1 << 20)
    first = int(good(cu.cuMemAlloc(1 << 19)))
    assert failed(cu.cuMemAlloc((1 << 19) + 1)) == "OUT_OF_MEMORY"
    status, free, total = cu.cuMemGetInfo()
    assert (int(status), free, total) == (0, 1 << 19, 1 << 20)
    good(cu.cuMemFree(first))
    good(cu.cuMemFree(good(cu.cuMemAlloc(1 << 20))))
    assert stub.used == 0
    ended()


def test_fills_are_done_late_and_copies_of_pageable_memory_at_once(stub: Stub) -> None:
    (stream,) = started(0)
    address = int(good(cu.cuMemAlloc(16)))
    there = (ctypes.c_uint8 * 16).from_address(address)
    assert failed(cu.cuMemsetD32Async(address + 2, 0, 1, stream)) == "INVALID_VALUE"
    good(cu.cuMemsetD32Async(address, 0x01020304, 4, stream))
    assert bytes(there) == b"\xff" * 16
    source, target = np.arange(16, dtype=np.uint8), np.zeros(16, np.uint8)
    good(cu.cuMemcpyHtoDAsync(address + 8, source.ctypes.data, 8, stream))
    source[:] = 99  # too late: the driver has read it
    good(cu.cuMemcpyDtoHAsync(target.ctypes.data, address, 16, stream))
    assert list(target) == [4, 3, 2, 1, 4, 3, 2, 1, *range(8)]
    ended()


def test_page_locked_memory_is_read_when_the_copy_is_done(stub: Stub) -> None:
    (stream,) = started(0)
    address, host = int(good(cu.cuMemAlloc(4))), int(good(cu.cuMemHostAlloc(4, 0)))
    ctypes.memset(host, 1, 4)
    good(cu.cuMemcpyHtoDAsync(address, host, 4, stream))
    ctypes.memset(host, 2, 4)  # whoever does not wait, changes what is copied
    good(cu.cuStreamSynchronize(stream))
    assert bytes((ctypes.c_uint8 * 4).from_address(address)) == b"\x02" * 4
    ended()


def test_pointers_are_told_apart(stub: Stub) -> None:
    started()
    kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    address, host = int(good(cu.cuMemAlloc(4))), int(good(cu.cuMemHostAlloc(4, 0)))
    assert [int(good(cu.cuPointerGetAttribute(kind, a))) for a in (address, host)] == [2, 1]
    good(cu.cuMemFree(address))
    for wrong in 4096, address:
        assert failed(cu.cuPointerGetAttribute(kind, wrong)) == "INVALID_VALUE"
    ended()
