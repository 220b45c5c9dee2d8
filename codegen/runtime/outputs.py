"""Memory for results: small arrays from NumPy, large ones at the start of a page and recycled.

A fresh large allocation costs more in page faults than many kernels cost to run. So the memory of a
large result is remembered, and when the last array over it is gone it is reused for the next result
of that size. CPython's reference count tells when: each array keeps the memory under it alive
through ``.base``. Without a GIL the count means nothing, and memory is not recycled.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...ir.arrays import LARGE, PAGE

KEPT_BYTES = 1 << 28  # remembered memory, all sizes together
KEPT_BUSY = 4  # pieces of one size remembered while arrays still use them

_Memory = np.ndarray[Any, np.dtype[np.uint8]]
_kept: OrderedDict[int, list[_Memory]] = OrderedDict()


def allocator(nbytes: int) -> Callable[..., Any]:
    """Return the function of (shape, dtype) that allocates a result of this size."""
    return np.empty if nbytes < LARGE else aligned_empty


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array with undefined contents whose data begin a page."""
    nbytes = prod(shape) * dtype.itemsize
    memory = _unused(nbytes)
    start = -int(memory.ctypes.data) % PAGE
    return np.ndarray(shape, dtype, buffer=memory, offset=start)


def _unused(nbytes: int) -> _Memory:
    if not getattr(sys, "_is_gil_enabled", bool)() and sys.version_info >= (3, 13):
        return np.empty(nbytes + PAGE, np.uint8)
    pieces = _kept.setdefault(nbytes, [])
    _kept.move_to_end(nbytes)
    for memory, references in _references(pieces):
        if references == _UNUSED:
            return memory
    memory = np.empty(nbytes + PAGE, np.uint8)
    if nbytes * (len(pieces) + 1) <= KEPT_BYTES:
        pieces.append(memory)
        del pieces[:-KEPT_BUSY]
        _trim()
    return memory


def _references(pieces: list[_Memory]) -> list[tuple[_Memory, int]]:
    return [(memory, sys.getrefcount(memory)) for memory in pieces]


# What _references counts for memory that only its list holds: this differs between Pythons.
_UNUSED = _references([np.empty(0, np.uint8)])[0][1]


def _trim() -> None:
    """Forget the least recently requested sizes until the rest fits the limit."""
    while len(_kept) > 1 and sum(n * len(p) for n, p in _kept.items()) > KEPT_BYTES:
        _kept.popitem(last=False)
