"""Rows of ATen's sorts and what follows from them, without torch: called, held to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import from_numpy, s64

Called = Callable[..., Any]


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.float32])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("dims", "dim"), [((5, 40), 1), ((9, 3), 0), ((2, 6, 4), -2), ((7, 1), 1)])
def test_mode_is_the_smallest_of_the_most_frequent(
    called: Called, kind: Any, keep: bool, dims: tuple[int, ...], dim: int
) -> None:
    x = np.random.default_rng(len(dims)).integers(-3, 4, dims).astype(kind)
    small = tuple(1 if k == dim % len(dims) else n for k, n in enumerate(dims))
    given = small if keep else tuple(np.delete(dims, dim % len(dims)))
    values, places = called(
        "aten.mode.default", [(from_numpy(x.dtype), given), (s64, given)], x, dim, keep
    )

    def wanted(row: Any) -> Any:
        found, counts = np.unique(row, return_counts=True)
        return found[np.argmax(counts)]

    want = np.apply_along_axis(wanted, dim, x).reshape(given)
    np.testing.assert_array_equal(values, want)
    at = places.reshape(small)
    np.testing.assert_array_equal(np.take_along_axis(x, at, dim).reshape(given), want)
    last = np.arange(dims[dim]).reshape([-1 if n == 1 else 1 for n in small])
    if dims.count(1) == 0:
        later = (x == want.reshape(small)) & (last > at)
        assert not later.any(), "the last place"
