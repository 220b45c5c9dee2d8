"""Arrays beside pages that may not be touched: what reads or writes one byte too far dies there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nestwright.autotune.measure.guarded import Guarded

Array = np.ndarray[Any, Any]

SEEN = 0x5A  # what lies between an array and the pages, and in it at first


class GuardedArray:
    """Memory for one array, flush against the page after it or against the page before it."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], at_end: bool) -> None:
        """``shape`` in elements; ``at_end`` puts the last byte right before a forbidden page."""
        size = math.prod(shape) * dtype.itemsize
        self._memory = Guarded(size)
        raw = self._memory.place(size, dtype.itemsize, at_end, SEEN)
        self.array: Array = raw.view(dtype).reshape(shape)

    @property
    def intact(self) -> bool:
        """Is every byte around the array what it was?"""
        return self._memory.intact


def guarded(value: Array, at_end: bool) -> GuardedArray:
    """A copy of an array in guarded memory."""
    found = GuardedArray(value.shape, value.dtype, at_end)
    found.array[...] = value
    return found
