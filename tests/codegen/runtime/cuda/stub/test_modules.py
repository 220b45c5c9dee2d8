"""Modules and launches of the stand-in: what it reads in PTX and cubins, and what it refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from gpu.stub.calls import ended, failed, good, started
from gpu.stub.control import Launched, Stub
from gpu.stub.models import prepared

from nestwright.codegen.plan.code.device import DeviceCode

cu = pytest.importorskip("cuda.bindings.driver")

PTX = """.version {version}
.target sm_{sm}
.address_size 64
// .entry comment( .param .u64 x ) {{ }}
.visible .entry first(
    .param .u64 .ptr .align 16 first_0,
    .param .u32 first_1,
    .param .align 8 .b8 first_2[24]
)
.maxntid 128, 2, 1
{{
    .shared .align 4 .b8 room[{shared}];
    .shared .align 4 .f32 one;
    {{ ret; }}
}}
.visible .entry second()
{{ ret; }}
"""
DYNAMIC = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def ptx(version: str = "8.0", sm: int = 90, shared: int = 32) -> bytes:
    return PTX.format(version=version, sm=sm, shared=shared).encode() + b"\0"


def prepare() -> None:
    prepared("split")


def loaded(image: bytes, log: bytearray | None = None) -> tuple[Any, ...]:
    """Load PTX with a buffer for the compiler's errors."""
    log = bytearray(512) if log is None else log
    options = [
        cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
        cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ]
    return tuple(cu.cuModuleLoadDataEx(image, 2, options, [log, len(log)]))


def test_ptx_says_what_a_launch_needs(stub: Stub) -> None:
    (stream,) = started(0)
    seen: list[tuple[Launched, bytes]] = []
    stub.kernel("first", lambda launch: seen.append((launch, b"")))
    function = good(cu.cuModuleGetFunction(good(loaded(ptx())), b"first"))
    words = np.array([77, 88, 1, 2, 3], np.uint64)
    places = np.array([words.ctypes.data + 8 * n for n in (0, 1, 2)], np.uint64)
    good(cu.cuLaunchKernel(function, 3, 2, 1, 64, 2, 1, 1024, stream, places.ctypes.data, 0))
    words[:] = 0  # the driver has read them
    assert not seen
    good(cu.cuStreamSynchronize(stream))
    ((launch, _),) = seen
    assert (launch.grid, launch.block, launch.shared) == ((3, 2, 1), (64, 2, 1), 1024)
    assert launch.words[0] == 77 and launch.words[1] == 88 and launch.words[2] == 1
    shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    assert good(cu.cuFuncGetAttribute(shared, function)) == 36
    assert "first(3) shared 36" in stub.log("cuModuleLoadDataEx")[0].asked
    ended()


def test_a_cubin_says_the_same_as_its_ptx(stub: Stub) -> None:
    started()
    found = 0
    for code in prepared("split").bundle.kernels.values():
        assert isinstance(code, DeviceCode)
        if not code.cubin:
            continue  # no ptxas here
        stub.clear()
        good(cu.cuModuleLoadData(code.cubin))
        good(loaded(code.ptx.encode() + b"\0"))
        first, second = (stub.log(f)[0].asked for f in ("cuModuleLoadData", "cuModuleLoadDataEx"))
        for launch in code.launches:
            for asked in first, second:
                assert f"{launch.symbol}(" in asked
        kinds = [sorted(w for w in text.split() if w.endswith(")")) for text in (first, second)]
        assert kinds[0] == kinds[1]
        found += 1
    ended()
    stub.clear()
    assert found or not any(c.cubin for c in prepared("split").bundle.kernels.values())


def test_images_that_are_refused(stub: Stub) -> None:
    started()
    for image, status, told in (
        (ptx("9.1"), "UNSUPPORTED_PTX_VERSION", "unsupported .version 9.1"),
        (ptx(sm=100), "INVALID_PTX", "code for sm_100"),
        (ptx()[:200] + b"\0", "INVALID_PTX", "has no end"),
        (b".version 8.0\n\0", "INVALID_PTX", "missing .target"),
        (b"nothing\0", "INVALID_IMAGE", ""),
    ):
        log = bytearray(512)
        assert failed(loaded(image, log)) == status
        assert told.encode() in log
    short = bytearray(9)
    assert failed(loaded(ptx("9.1"), short)) == "UNSUPPORTED_PTX_VERSION"
    assert short == b"ptxas fa\0"
    module = good(loaded(ptx()))
    assert failed(cu.cuModuleGetFunction(module, b"third")) == "NOT_FOUND"
    ended()


def test_launches_keep_to_the_limits(stub: Stub) -> None:
    (stream,) = started(0)
    module = good(loaded(ptx(shared=4092)))  # 4096 bytes with the one float
    function = good(cu.cuModuleGetFunction(module, b"first"))
    words = np.zeros(8, np.uint64)
    places = np.full(3, words.ctypes.data, np.uint64)

    def launch(grid: Any = (1, 1, 1), block: Any = (1, 1, 1), shared: int = 0, at: int = -1) -> Any:
        where = places.ctypes.data if at < 0 else at
        return cu.cuLaunchKernel(function, *grid, *block, shared, stream, where, 0)

    good(launch((2147483647, 65535, 65535), (128, 2, 1), 45056))
    for wrong in (
        launch((0, 1, 1)),
        launch((1, 65536, 1)),
        launch((1, 1, 65536)),
        launch(block=(1, 1, 65)),
        launch(block=(1025, 1, 1)),
        launch(block=(257, 1, 1)),
        launch(shared=45057),
    ):
        assert failed(wrong) == "INVALID_VALUE"
    good(cu.cuFuncSetAttribute(function, DYNAMIC, (227 << 10) - 4096))
    good(launch(shared=(227 << 10) - 4096))
    assert failed(cu.cuFuncSetAttribute(function, DYNAMIC, (227 << 10) - 4095)) == "INVALID_VALUE"
    assert failed(launch(at=0)) == "INVALID_VALUE"
    assert "without its 3 parameters" in stub.reports()[0]
    stub.clear()
    ended()


def test_launches_overlap_from_sm_90_on(stub: Stub) -> None:
    (stream,) = started(0)
    early = cu.CUlaunchAttribute()
    early.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream, config.attrs, config.numAttrs = stream, [early], 1
    for capability in 80, 90:
        stub.capability(capability)
        function = good(cu.cuModuleGetFunction(good(loaded(ptx(sm=80))), b"second"))
        answer = cu.cuLaunchKernelEx(config, function, 0, 0)
        assert capability >= 90 or failed(answer) == "NOT_SUPPORTED"
    good(answer)
    ended()


def test_a_kernel_without_its_module_is_of_no_use(stub: Stub) -> None:
    (stream,) = started(0)
    module = good(loaded(ptx()))
    function = good(cu.cuModuleGetFunction(module, b"second"))
    good(cu.cuModuleUnload(module))
    answer = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
    assert failed(answer) == "INVALID_HANDLE"
    assert "after its module was unloaded" in stub.reports()[0]
    stub.clear()
    ended()


def test_unloading_waits_for_the_device(stub: Stub) -> None:
    (stream,) = started(0)
    module = good(loaded(ptx()))
    ran: list[str] = []
    stub.kernel("second", lambda launched: ran.append(launched.name))
    function = good(cu.cuModuleGetFunction(module, b"second"))
    good(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
    assert not ran
    good(cu.cuModuleUnload(module))
    assert ran == ["second"]
    ended()


def test_a_fault_shows_at_the_next_wait_and_stays(stub: Stub) -> None:
    (stream,) = started(0)
    function = good(cu.cuModuleGetFunction(good(loaded(ptx())), b"second"))
    stub.fault("second", nth=2)
    for _ in range(2):
        good(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
    assert failed(cu.cuStreamQuery(stream)) == "NOT_READY"
    assert failed(cu.cuStreamQuery(stream)) == "ILLEGAL_ADDRESS"
    assert failed(cu.cuEventCreate(0)) == "ILLEGAL_ADDRESS"
    good(cu.cuCtxPopCurrent())


def test_an_address_that_is_none_is_a_fault(stub: Stub) -> None:
    (stream,) = started(0)
    stub.kernel("first", lambda launch: None, pointers=1)
    function = good(cu.cuModuleGetFunction(good(loaded(ptx())), b"first"))
    word = ctypes.c_uint64(4096)
    places = np.full(3, ctypes.addressof(word), np.uint64)
    good(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, places.ctypes.data, 0))
    assert failed(cu.cuStreamSynchronize(stream)) == "ILLEGAL_ADDRESS"
    assert "where no memory of the device is" in stub.reports()[0]
    stub.clear()
    good(cu.cuCtxPopCurrent())


def test_calls_fail_when_they_shall(stub: Stub) -> None:
    started()
    stub.fail("cuMemAlloc", 2, nth=2)
    stub.fail("cuEventCreate", 999, times=2)
    good(cu.cuMemAlloc(1))
    assert failed(cu.cuMemAlloc(1)) == "OUT_OF_MEMORY"
    good(cu.cuMemAlloc(1))
    assert [int(cu.cuEventCreate(0)[0]) for _ in range(3)] == [999, 999, 0]
    with pytest.raises(KeyError):
        stub.fail("cuNothing", 1)
    ended()


def test_what_is_not_modeled_is_not_there(stub: Stub) -> None:
    stub.hide("cuStreamGetFlags")
    (stream,) = started(0)
    for call in lambda: cu.cuMipmappedArrayDestroy(0), lambda: cu.cuStreamGetFlags(stream):
        with pytest.raises(RuntimeError, match="not found"):
            call()
    ended()
