"""Memory for results: small arrays from NumPy, large ones aligned and used again once unused.

A fresh large allocation costs more in page faults than many kernels cost to run. So the memory
of a large result is remembered, and when every array over it is gone it serves the next result of
that size. "Gone" is read off CPython's reference count: each array keeps the memory it stands on
alive through ``.base``. Without a GIL the count means nothing, and memory is not used again.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

LARGE = 1 << 16  # bytes from which a result gets aligned memory
ALIGNMENT = 64
KEPT_BYTES = 1 << 28  # remembered memory, all sizes together
KEPT_BUSY = 4  # pieces of one size remembered while arrays still stand on them

_Memory = np.ndarray[Any, np.dtype[np.uint8]]
_kept: OrderedDict[int, list[_Memory]] = OrderedDict()


def allocator(nbytes: int) -> Callable[..., Any]:
    """What makes a result of a size: a function of (shape, dtype)."""
    return np.empty if nbytes < LARGE else aligned_empty


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array with undefined contents whose data begin at a multiple of 64 bytes."""
    nbytes = prod(shape) * dtype.itemsize
    memory = _unused(nbytes)
    start = -int(memory.ctypes.data) % ALIGNMENT
    return np.ndarray(shape, dtype, buffer=memory, offset=start)


def _unused(nbytes: int) -> _Memory:
    if not getattr(sys, "_is_gil_enabled", bool)() and sys.version_info >= (3, 13):
        return np.empty(nbytes + ALIGNMENT, np.uint8)
    pieces = _kept.setdefault(nbytes, [])
    _kept.move_to_end(nbytes)
    for memory, references in _references(pieces):
        if references == _UNUSED:
            return memory
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
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
    """Forget the sizes that were asked for longest ago until the rest fits the limit."""
    while len(_kept) > 1 and sum(n * len(p) for n, p in _kept.items()) > KEPT_BYTES:
        _kept.popitem(last=False)
