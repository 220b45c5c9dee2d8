"""Views of bytes as elements of another type, as NumPy sees the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import from_numpy

Called = Callable[..., Any]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f4", "i4"),
        ("f4", "i2"),
        ("f4", "f8"),
        ("u1", "f4"),
        ("f4", "c8"),
        ("c16", "f4"),
        ("c8", "c16"),
        ("?", "u2"),
        ("u1", "?"),
    ],
)
def test_bytes_are_viewed_as_elements_of_another_type(called: Called, old: str, new: str) -> None:
    x = (np.arange(48).reshape(3, 16) % 7).astype(old)
    expected = x.astype("?").view(new) if new == "?" else x.view(new)
    dtype = from_numpy(expected.dtype)
    found = called("aten.view.dtype", [(dtype, expected.shape)], x, dtype)
    np.testing.assert_array_equal(found, expected)


def test_a_scalar_and_an_empty_array_have_bytes_too(called: Called) -> None:
    bits, floats = from_numpy(np.dtype("i4")), from_numpy(np.dtype("f4"))
    one = np.array(1.5, np.float32)
    assert called("aten.view.dtype", [(bits, ())], one, bits) == one.view(np.int32)
    none = np.zeros((2, 0), np.int64)
    assert called("aten.view.dtype", [(floats, (2, 0))], none, floats).shape == (2, 0)
