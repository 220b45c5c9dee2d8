"""Memory between guard pages, for running code that may access memory out of bounds."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from ....ir.arrays import Array

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE


class GuardedMemory:
    """Memory for ``size`` bytes between two guard pages, an access to which is a segfault."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._room = max(PAGE, -(-size // PAGE) * PAGE)
        self._map = mmap.mmap(-1, self._room + 2 * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        self._inner = whole[PAGE : PAGE + self._room]
        start = whole.ctypes.data
        for page in (start, start + PAGE + self._room):
            _protect(page)
        self._from = self._to = 0

    def place(self, size: int, alignment: int, upper: bool, pattern: int) -> Array:
        """Return ``size`` bytes filled with ``pattern``, as is the memory around them.

        With ``upper`` they end as close to the upper guard page as ``alignment`` allows, else they
        begin at the lower one.
        """
        start = (self._room - size) // alignment * alignment if upper else 0
        self._from, self._to = start, start + size
        self._pattern = pattern
        self._inner[max(0, start - PAGE) : self._to + PAGE] = pattern
        return self._inner[start : self._to]

    @property
    def intact(self) -> bool:
        """True if the bytes around the last placement are unchanged, up to a page away."""
        before = self._inner[max(0, self._from - PAGE) : self._from]
        after = self._inner[self._to : self._to + PAGE]
        return not ((before != self._pattern).any() or (after != self._pattern).any())


def _protect(address: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), NO_ACCESS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
