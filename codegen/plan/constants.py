"""The constants of an executable, in one piece of memory."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeAlias

import numpy as np

from ...ir.errors import LimitError
from .memory import ALIGNMENT
from .nodes import BufferSlice

CACHE_LINE = 64
HUGE = 1 << 22  # bytes from which constants are put into huge pages
HUGE_PAGE = 1 << 21

Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Packer: TypeAlias = Callable[[np.ndarray[tuple[int, ...], np.dtype[np.generic]]], Bytes]
"""Gives a constant in the layout that a kernel takes."""


def aligned_zeros(nbytes: int) -> Bytes:
    """Return zeroed bytes aligned to 64, for long-lived memory such as constants."""
    if nbytes >= HUGE and sys.platform == "linux":
        return _huge_zeros(nbytes)
    memory = np.zeros(nbytes + CACHE_LINE, np.uint8)
    start = -int(memory.ctypes.data) % CACHE_LINE
    return memory[start : start + nbytes]


def _huge_zeros(nbytes: int) -> Bytes:
    """Return zeroed bytes in huge pages where available: weights span many small pages."""
    pages = mmap.mmap(-1, nbytes + HUGE_PAGE)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    start = -int(memory.ctypes.data) % HUGE_PAGE
    return memory[start : start + nbytes]


@dataclass
class Constants:
    """The constants of an executable in one piece of memory; equal ones are stored once."""

    alignment: int = ALIGNMENT
    parts: list[Bytes] = field(default_factory=list)
    size: int = 0
    _found: dict[bytes, int] = field(default_factory=dict)

    def add(self, literal: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> BufferSlice:
        """Return a slice that holds the array's bytes, row-major."""
        data = np.ascontiguousarray(literal).reshape(-1).view(np.uint8)
        digest = sha256(data.data).digest()
        if digest not in self._found:
            self._found[digest] = self.size
            self.parts.append(data)
            self.size += -(-data.size // self.alignment) * self.alignment
        return BufferSlice("constant", self._found[digest], data.size)

    def memory(self) -> Bytes:
        """Return all constants in aligned memory, zero in between."""
        try:
            blob = aligned_zeros(self.size)
        except (MemoryError, OSError) as error:
            raise LimitError(
                f"{self.size} bytes of constants do not fit into memory",
                str(error),
                hint="compute them from smaller ones, or hand them in as arguments",
                asked=self.size,
            ) from error
        at = 0
        for part in self.parts:
            blob[at : at + part.size] = part
            at += -(-part.size // self.alignment) * self.alignment
        return blob
