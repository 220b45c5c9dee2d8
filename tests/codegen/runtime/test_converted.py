"""Calls that are converted first: results that share memory, and arrays beyond their bounds."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError

LATER_FIRST = """HloModule order
ENTRY e {
  x = f32[8,8] parameter(0)
  y = f32[8,8] add(x, x)
  d = f32[8,8] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[8,8], f32[8,8]) tuple(d, y)
}"""
BOUNDED = """HloModule bounded
ENTRY e {
  x = f32[<=4] parameter(0)
  ROOT y = f32[<=4] add(x, x)
}"""


def test_of_results_in_one_array_the_last_one_stays() -> None:
    """Whichever is computed first, and though the other one needs it."""
    exe = nw.build(nw.parse(LATER_FIRST), target="cpu", cache=False)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    both = np.zeros_like(x)
    exe(x, out=(both, both))
    np.testing.assert_array_equal(both, x + x)
    rows = np.zeros((12, 8), np.float32)
    exe(x, out=(rows[4:], rows[:8]))
    np.testing.assert_array_equal(rows[:8], x + x)
    np.testing.assert_array_equal(rows[8:], ((x + x) @ x)[4:])


@pytest.mark.parametrize("size", [0, 1, 4, 5, 9])
def test_an_array_is_no_longer_than_its_bound(size: int) -> None:
    exe = nw.build(nw.parse(BOUNDED), target="cpu", cache=False)
    x = np.arange(size, dtype=np.float32)
    if size > 4:
        with pytest.raises(ArgumentError, match="<=4"):
            exe(x)
    else:
        np.testing.assert_array_equal(exe(x), x + x)
