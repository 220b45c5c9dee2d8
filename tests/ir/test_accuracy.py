"""The error of a result relative to its reference, and what is accepted."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.comparison import compare


def drawn(dtype: str, largest: float) -> np.ndarray:
    """Return normal values, and a last one that is ``largest`` times their root mean square."""
    values = np.random.default_rng(0).standard_normal(4096)
    values[-1] = largest * np.sqrt(np.mean(values**2))
    return values.astype(np.dtype(dtype))


@pytest.mark.parametrize("largest", [1, 8, 15.9, 100, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_unit_in_the_last_place_is_right_at_any_size(dtype: str, largest: float) -> None:
    want = drawn(dtype, largest)
    got = want.copy()
    got.view(f"u{got.itemsize}")[-1] += 1
    assert compare(0, got, want).ok


@pytest.mark.parametrize(
    ("dtype", "off"), [("float32", 2e-3), ("float16", 4e-2), ("bfloat16", 5e-2)]
)
@pytest.mark.parametrize("largest", [0.01, 1, 8, 20])
def test_an_element_that_is_off_by_more_is_wrong(dtype: str, off: float, largest: float) -> None:
    want = drawn(dtype, largest)
    got = want.copy()
    size = max(abs(float(want[-1])), float(np.sqrt(np.mean(want.astype(np.float64) ** 2))))
    got[-1] = float(want[-1]) + off * size
    assert not compare(0, got, want).ok


def test_a_large_element_does_not_excuse_the_others() -> None:
    want = drawn("bfloat16", 30)
    got = want.copy()
    got[0] = float(want[0]) + 0.1
    assert not compare(0, got, want).ok
    assert not compare(0, np.zeros_like(want), want).ok
    assert not compare(0, (want * ml_dtypes.bfloat16(1.0625)), want).ok
