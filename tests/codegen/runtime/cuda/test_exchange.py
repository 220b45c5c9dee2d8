"""Narrow types between a GPU's arrays and other libraries: what DLPack and NumPy have names for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nestwright.codegen.runtime.dlpack import capsules, elements
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import ArgumentError

if TYPE_CHECKING:
    from ...conftest import FakeApi

SAME = """HloModule same
ENTRY main {{ ROOT x = {name}[6] parameter(0) }}
"""
BOUNDED = """HloModule bounded
ENTRY main {
  x = f8e4m3fn[<=6] parameter(0)
  z = c64[<=6] parameter(1)
  y = f8e4m3fn[<=6] add(x, x)
  w = c64[<=6] multiply(z, z)
  ROOT t = (f8e4m3fn[<=6], c64[<=6]) tuple(y, w)
}
"""


class Packed:
    """Elements of another library that stand several to a byte."""

    def __init__(self, memory: np.ndarray[Any, Any], bits: int) -> None:
        self.memory, self.bits = memory, bits

    def __dlpack_device__(self) -> tuple[int, int]:
        return elements.CUDA, 0

    def __dlpack__(self, stream: int | None = None) -> object:
        before = set(capsules._lent)
        made = capsules.capsule(self.memory.ctypes.data, BY_NAME["s8"], (6,), 0, self.memory)
        (place,) = set(capsules._lent) - before
        capsules._lent[place].managed.tensor.bits = self.bits
        return made


@pytest.mark.parametrize("name", ["s4", "u2", "f4e2m1fn"])
def test_elements_smaller_than_a_byte_are_not_exchanged(fake: FakeApi, name: str) -> None:
    """Elsewhere they are packed: taken for ours, their memory ends before their last element."""
    exe = fake.executable(SAME.format(name=name))
    values = np.ones(6, to_numpy(BY_NAME[name]))
    array = exe.loaded().put(values)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(exe(array).numpy(), values)
    with pytest.raises(BufferError, match=f"several {name} into a byte"):
        array.__dlpack__()
    with pytest.raises(AttributeError, match=f"no {name}$"):
        _ = array.__cuda_array_interface__
    with pytest.raises(ArgumentError, match=rf"expected {name}\[6\], got unknown type\[6\]"):
        exe(Packed(np.zeros(3, np.uint8), BY_NAME[name].bits))


@pytest.mark.parametrize("name", ["bf16", "f8e5m2", "f8e4m3fn", "f8e8m0fnu"])
def test_floats_that_numpy_cannot_name_go_by_dlpack(fake: FakeApi, name: str) -> None:
    exe = fake.executable(SAME.format(name=name))
    array = exe.loaded().put(np.ones(6, to_numpy(BY_NAME[name])))  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="DLPack does"):
        _ = array.__cuda_array_interface__
    assert capsules.read(array.__dlpack__()).dtype == BY_NAME[name]


@pytest.mark.parametrize("live", [0, 1, 4, 6])
def test_bounded_narrow_and_complex_arrays_come_back_at_their_sizes(
    fake: FakeApi, live: int
) -> None:
    exe = fake.simulated(BOUNDED)
    x = np.arange(live).astype(to_numpy(BY_NAME["f8e4m3fn"]))
    z = (np.arange(live) + 1j).astype(np.complex64)
    y, w = exe(x, z)
    np.testing.assert_array_equal(y.astype(np.float32), 2 * np.arange(live))
    np.testing.assert_allclose(w, z * z, rtol=1e-6)
