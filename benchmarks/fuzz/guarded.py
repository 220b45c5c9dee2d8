"""Arrays beside pages that may not be touched: what reads or writes one byte too far dies there."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from nestwright.ir.arrays import Array

PAGE = mmap.PAGESIZE
SEEN = 0x5A  # what lies between an array and the page boundaries


class Guarded:
    """Memory for one array, flush against the page after it or against the page before it."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], at_end: bool) -> None:
        """``shape`` in elements; ``at_end`` puts the last byte right before a forbidden page."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        inside = max(-(-size // PAGE), 1) * PAGE
        self._map = mmap.mmap(-1, inside + 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._ends = (start, start + PAGE + inside)
        raw = np.frombuffer(self._map, np.uint8, inside, PAGE)
        raw[:] = SEEN
        first = inside - size if at_end else 0
        self._around = raw[:first], raw[first + size :]
        self.array: Array = raw[first : first + size].view(dtype).reshape(shape)
        for page in self._ends:
            _protect(page, 0)

    @property
    def intact(self) -> bool:
        """True if every byte around the array is unchanged."""
        return all((part == SEEN).all() for part in self._around)

    def close(self) -> None:
        """Make the pages accessible again, so that the memory can be reused."""
        for page in self._ends:
            _protect(page, mmap.PROT_READ | mmap.PROT_WRITE)


def _protect(page: int, how: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(page, PAGE, how):
        raise OSError(ctypes.get_errno(), "mprotect")


def guarded(value: Array, at_end: bool) -> Guarded:
    """Return a copy of an array in guarded memory."""
    found = Guarded(value.shape, value.dtype, at_end)
    found.array[...] = value
    return found
