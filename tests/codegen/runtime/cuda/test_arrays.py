"""Arrays on a GPU and of other libraries: taken, given back, refused; over a stand-in driver."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.cuda import strided
from nestwright.codegen.runtime.cuda.arrays import DeviceArray
from nestwright.codegen.runtime.dlpack import capsules, elements
from nestwright.ir.dtypes import bf16, f32, pred
from nestwright.ir.errors import (
    ArgumentError,
)

from .models import ADD, CHAIN, Foreign, aligned, arguments, assert_right


class Lender:
    """An array of another library through DLPack."""

    def __init__(self, array: Any, dtype: Any = f32, ordinal: int = 0) -> None:
        self.array, self.dtype, self.ordinal = array, dtype, ordinal
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return elements.CUDA, self.ordinal

    def __dlpack__(self, stream: int) -> object:
        self.streams.append(stream)
        address = self.array.ctypes.data
        return capsules.capsule(address, self.dtype, self.array.shape, self.ordinal, self.array)


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
    found = capsules.read(array.__dlpack__(stream=2))
    assert (found.address, found.dtype, found.shape) == (array.address, f32, (2, 3))
    assert fake.count()["cuStreamWaitEvent"] == 1
    assert (np.from_dlpack(HostView(array)) == array.numpy()).all()


class HostView:
    """Asks for an array's DLPack on the host, as ``np.from_dlpack(x, device="cpu")`` does."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return elements.CPU, 0

    def __dlpack__(self, **unused: object) -> object:
        return self.array.__dlpack__(dl_device=(elements.CPU, 0))


@pytest.mark.parametrize(("dtype", "code"), [(f32, "f32"), (bf16, "bf16"), (pred, "pred")])
def test_capsules_keep_their_owner_until_they_are_gone(dtype: Any, code: str) -> None:
    before = len(capsules._lent)
    owner = aligned(np.zeros(8, np.float32))
    capsule = capsules.capsule(owner.ctypes.data, dtype, (2, 3), 0, owner)
    assert len(capsules._lent) == before + 1
    found = capsules.read(capsule)
    assert found.dtype == dtype and found.shape == (2, 3) and found.address == owner.ctypes.data
    del capsule, found
    assert len(capsules._lent) == before
    with pytest.raises(ValueError, match="not a DLPack"):
        capsules.read(object())


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
