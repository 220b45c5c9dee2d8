"""Layouts of arguments and results on a GPU, with a stand-in for its driver."""

from __future__ import annotations

from typing import Any

import numpy as np

from nestwright.codegen.runtime.dlpack import capsules

TEXT = """HloModule m, entry_computation_layout={(f32[6,32]{0,1}, f32[6,32]{1,0})->f32[6,32]{0,1}}
ENTRY e { x = f32[6,32] parameter(0)
 y = f32[6,32] parameter(1)
 ROOT r = f32[6,32] add(x, y) }"""


class Foreign:
    """An array of another library, in the stand-in's device memory."""

    def __init__(self, array: Any) -> None:
        self.array = array
        facts = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": facts["data"],
            "strides": facts["strides"],
            "version": 3,
            "stream": None,
        }


def aligned(values: np.ndarray, order: str) -> np.ndarray:
    """The values in memory that begins at a multiple of 64 bytes."""
    room = np.zeros(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    flat = room[start : start + values.nbytes].view(values.dtype)
    made = flat.reshape(values.shape) if order == "C" else flat.reshape(values.T.shape).T
    made[...] = values
    return made


def draw(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((6, 32)).astype(np.float32)


def test_host_arrays_and_their_strides(fake: Any) -> None:
    exe, x, y = fake.executable(TEXT), draw(0), draw(1)
    for first in (x, np.asfortranarray(x)):
        got = exe(first, y)
        assert got.shape == (6, 32) and got.strides == (4, 24)
        np.testing.assert_allclose(got, x + y, rtol=1e-6)
    out = np.zeros((6, 32), np.float32)
    assert exe(x, y, out=out) is out
    np.testing.assert_allclose(out, x + y, rtol=1e-6)


def test_arrays_of_other_libraries_are_taken_as_they_lie(fake: Any) -> None:
    exe, x, y = fake.executable(TEXT), draw(0), draw(1)
    first, second = aligned(x, "F"), aligned(y, "C")
    got = exe(Foreign(first), Foreign(second))
    words = fake.launched[-1][2]
    assert first.ctypes.data in words and second.ctypes.data in words, "neither was copied"
    assert got.shape == (6, 32) and got.strides == (1, 6)
    np.testing.assert_allclose(got.numpy(), x + y, rtol=1e-6)
    assert got.numpy().strides == (4, 24)


def test_results_are_handed_on_with_their_strides(fake: Any) -> None:
    exe, x, y = fake.executable(TEXT), draw(0), draw(1)
    got = exe(Foreign(aligned(x, "F")), Foreign(aligned(y, "C")))
    facts = got.__cuda_array_interface__
    assert facts["shape"] == (6, 32) and facts["strides"] == (4, 24)
    lent = capsules.read(got.__dlpack__())
    assert lent.shape == (6, 32) and lent.strides == (1, 6)
    again = exe(got, Foreign(aligned(y, "C")))
    assert got.address in fake.launched[-1][2], "what lies as the layout says is taken as it is"
    np.testing.assert_allclose(again.numpy(), x + 2 * y, rtol=1e-6)
