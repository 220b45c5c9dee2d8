"""Arrays of other libraries over the stand-in: DLPack and the array interface, streams, strides."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from gpu.stub.calls import good
from gpu.stub.control import Stub
from gpu.stub.models import prepared

from nestwright.codegen.runtime.cuda.device import device
from nestwright.codegen.runtime.cuda.strided import gather
from nestwright.codegen.runtime.dlpack import capsules, elements
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import from_numpy
from nestwright.ir.errors import ArgumentError

cu = pytest.importorskip("cuda.bindings.driver")


def prepare() -> None:
    prepared("double")


class Lender:
    """A library of its own, with memory and a stream of its own, that writes an array late."""

    def __init__(
        self, values: Array, strides: tuple[int, ...] | None = None, skew: int = 0
    ) -> None:
        """``strides`` in elements; ``skew`` is how far the array begins behind an aligned place."""
        self.values, self.strides, self.skew = values, strides, skew
        good(cu.cuInit(0))
        self.context = good(cu.cuDevicePrimaryCtxRetain(0))
        good(cu.cuCtxPushCurrent(self.context))
        self.stream = good(cu.cuStreamCreate(1))
        self.source = np.full(self.room, 0, np.uint8)
        self.memory = int(good(cu.cuMemAlloc(self.room)))
        flat = values.reshape(-1)
        if strides is None:
            self.source[skew : skew + values.nbytes] = flat.view(np.uint8)
        else:
            view = self.source[
                skew : skew + (self.room - skew) // values.itemsize * values.itemsize
            ]
            spread = np.lib.stride_tricks.as_strided(
                view.view(values.dtype), values.shape, [s * values.itemsize for s in strides]
            )
            spread[...] = values
        host = int(good(cu.cuMemHostAlloc(self.room, 0)))
        ctypes.memmove(host, self.source.ctypes.data, self.room)
        good(cu.cuMemcpyHtoDAsync(self.memory, host, self.room, self.stream))
        good(cu.cuCtxPopCurrent())
        self.streams: list[Any] = []

    @property
    def room(self) -> int:
        strides = self.strides or (1,)
        extents = self.values.shape if self.strides else (self.values.size,)
        last = sum((e - 1) * s for e, s in zip(extents, strides, strict=True))
        return self.skew + (last + 1) * self.values.itemsize

    def order(self, stream: int) -> None:
        """Have another stream wait for what was written."""
        good(cu.cuCtxPushCurrent(self.context))
        event = good(cu.cuEventCreate(2))
        good(cu.cuEventRecord(event, self.stream))
        good(cu.cuStreamWaitEvent(stream, event, 0))
        good(cu.cuEventDestroy(event))
        good(cu.cuCtxPopCurrent())


class ByCapsule(Lender):
    def __dlpack_device__(self) -> tuple[int, int]:
        return elements.CUDA, 0

    def __dlpack__(self, stream: int | None = None, **unused: Any) -> object:
        self.streams.append(stream)
        assert stream is not None
        self.order(stream)
        dtype = from_numpy(self.values.dtype)
        place = self.memory + self.skew
        return capsules.capsule(place, dtype, self.values.shape, 0, self, self.strides)


class ByInterface(Lender):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        size = self.values.itemsize
        return {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (self.memory + self.skew, False),
            "strides": self.strides and tuple(s * size for s in self.strides),
            "version": 3,
            "stream": int(self.stream),
        }


KINDS = {"capsule": ByCapsule, "interface": ByInterface}
LAYOUTS: dict[str, tuple[tuple[int, ...] | None, int]] = {
    "dense": (None, 0),
    "transposed": ((1, 4), 0),
    "every second": ((12, 2), 0),
    "padded rows": ((10, 1), 0),
    "shifted by an element": (None, 4),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_arrays_of_others_are_taken_after_their_stream(stub: Stub, kind: str, layout: str) -> None:
    model = prepared("double")
    exe = model.over(stub)
    for seed in range(3):
        (x,) = model.arguments(seed)
        strides, skew = LAYOUTS[layout]
        result = exe(KINDS[kind](x, strides, skew))
        np.testing.assert_array_equal(result.numpy(), 2 * x)
    assert bool(stub.log("cuLaunchKernel")) and (
        any("nw_gather_4" in c.asked for c in stub.log("cuLaunchKernel")) == (layout != "dense")
    )


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "c16"])
def test_every_width_of_a_strided_array(stub: Stub, dtype: str) -> None:
    made = _strided_sums(stub, np.arange(24).reshape(4, 6).astype(dtype))
    np.testing.assert_array_equal(made, np.arange(24).reshape(4, 6).astype(dtype))


def _strided_sums(stub: Stub, values: Array) -> Array:
    """What the runtime's own copy makes of a strided array."""
    prepared("double").kernels.attach(stub)
    lender, on = ByInterface(values, (1, 4)), device()
    result = np.empty_like(values)
    with on:
        on.follow(int(lender.stream))
        memory = on.allocate(values.nbytes)
        place = lender.memory
        gather(on, memory.address, place, values.itemsize, values.shape, (1, 4))
        on.synchronize()
        ctypes.memmove(result.ctypes.data, memory.address, values.nbytes)
    return result


def test_results_are_handed_out_after_what_makes_them(stub: Stub) -> None:
    model = prepared("double")
    exe = model.over(stub)
    (x,) = model.arguments()
    result = exe(exe.put(x))
    taker = Lender(x)
    capsule = result.__dlpack__(stream=int(taker.stream))
    found = capsules.read(capsule)
    assert found.shape == x.shape and found.address == result.address
    np.testing.assert_array_equal(_read(taker, found.address, x), 2 * x)
    facts = exe(exe.put(x)).__cuda_array_interface__
    assert facts["shape"] == x.shape and facts["stream"] == int(result.device.stream)


def _read(taker: Lender, address: int, like: Array) -> Array:
    """What another library finds when it copies on its own stream and waits for that alone."""
    good(cu.cuCtxPushCurrent(taker.context))
    host = int(good(cu.cuMemHostAlloc(like.nbytes, 0)))
    good(cu.cuMemcpyDtoHAsync(host, address, like.nbytes, taker.stream))
    good(cu.cuStreamSynchronize(taker.stream))
    good(cu.cuCtxPopCurrent())
    kind = (ctypes.c_uint8 * like.nbytes).from_address(host)
    return np.frombuffer(bytes(kind), like.dtype).reshape(like.shape)


def test_a_lender_is_held_until_the_device_is_done(stub: Stub) -> None:
    model = prepared("double")
    exe = model.over(stub)
    (x,) = model.arguments()
    held = ByInterface(x)
    gone: list[int] = []
    weakref.finalize(held, gone.append, 1)
    result = exe(held)
    del held
    gc.collect()
    assert not gone
    result.numpy()
    exe(exe.put(x)).numpy()
    _finish(exe)
    gc.collect()
    assert gone


def _finish(exe: Executable) -> None:
    program: Any = exe.loaded()
    program.synchronize()


def test_arrays_that_cannot_be_taken(stub: Stub) -> None:
    exe = prepared("double").over(stub)
    for wrong in np.zeros((4, 5), np.float32), np.zeros((4, 6), np.int32):
        for kind in KINDS.values():
            with pytest.raises(ArgumentError):
                exe(kind(wrong))
