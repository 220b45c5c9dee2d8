"""Shifts by literals around an element's width, which LLVM leaves undefined from the width on."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw

SHIFTS = """HloModule shifts
ENTRY main {{
  x = s32[20] parameter(0)
  n = s32[] constant({n})
  by = s32[20] broadcast(n), dimensions={{}}
  left = s32[20] shift-left(x, by)
  logical = s32[20] shift-right-logical(x, by)
  arithmetic = s32[20] shift-right-arithmetic(x, by)
  ROOT all = (s32[20], s32[20], s32[20]) tuple(left, logical, arithmetic)
}}
"""


@pytest.mark.parametrize("n", [0, 31, 32, 33, -1])
def test_bits_beyond_the_width_are_gone(n: int) -> None:
    x = np.arange(-10, 10, dtype=np.int32)
    left, logical, arithmetic = nw.build(nw.parse(SHIFTS.format(n=n)), "cpu -threads=1")(x)
    wide, by = x.astype(np.int64), n if 0 <= n < 32 else 32
    np.testing.assert_array_equal(left, (wide << by).astype(np.int32))
    np.testing.assert_array_equal(logical, ((wide & 0xFFFFFFFF) >> by).astype(np.int32))
    np.testing.assert_array_equal(arithmetic, wide >> by)
