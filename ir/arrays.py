"""Arrays: converting what a user passes, or refusing it with a reason; aligned memory."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from .errors import ArgumentError

Array: TypeAlias = np.ndarray[Any, Any]
Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]

ALIGNMENT = 64
"""Bytes at whose multiples the arrays of an executable begin in memory."""
LARGE = 1 << 16
"""Bytes from which an array of an executable begins a page."""
PAGE = 1 << 12
"""Bytes that differ in the last 12 bits of their addresses. By these bits processors tell whether
a load reads what an earlier store has yet to write. So a loop that reads an array and writes one
64 to 200 bytes further in its page waits for its own stores: on a Zen 4 at half its speed. Arrays
that begin pages do not, nor from NumPy's and PyTorch's, 16 and 64 bytes behind a page's start.
"""
HUGE = 1 << 22  # bytes from which constants are put into huge pages
HUGE_PAGE = 1 << 21


def alignment_of(nbytes: int) -> int:
    """Return the bytes at whose multiples an executable's array of ``nbytes`` bytes begins."""
    return PAGE if nbytes >= LARGE else ALIGNMENT


def as_bytes(array: Array) -> Bytes:
    """Return the memory of a C-contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


def as_array(
    value: object, what: str, where: str = "", dtype: np.dtype[Any] | None = None
) -> Array:
    """Convert a value to an array, of element type ``dtype`` if one is given.

    ``ArgumentError``, in which ``what`` names the value, for masked arrays, for arrays of objects,
    and if ``__array__`` raises anything.
    """
    refuse_masked(value, what, where)
    try:
        array = np.asarray(value, dtype)
    except Exception as error:  # ``__array__`` is foreign code and may raise anything
        why = f"{_kind(value)} does not convert to an array: {type(error).__name__}: {error}"
        raise ArgumentError(what, why, where) from error
    if array.dtype.hasobject:
        raise ArgumentError(what, f"{_kind(value)} does not convert to an array of numbers", where)
    return array


def refuse_masked(value: object, what: str, where: str = "") -> None:
    """Raise ``ArgumentError`` for a NumPy masked array: compiled code ignores masks."""
    module = sys.modules.get("numpy.ma")  # importing it takes longer than most calls
    if module is not None and isinstance(value, module.MaskedArray):
        why = "a masked array, whose mask would be lost"
        raise ArgumentError(what, why, where, hint="x.filled(value) gives a plain array")


def _kind(value: object) -> str:
    return type(value).__name__


BLOCK = 128
"""Rows and columns that are transposed together, so that every cache line is used while cached."""


def row_major(array: Array) -> Array:
    """Return an array as C-contiguous, the same object if it is.

    A transposed one is copied block by block: NumPy goes along one of the two axes, and misses a
    cache line for every element along the other.
    """
    if array.flags.c_contiguous:
        return array
    near = min(range(array.ndim), key=lambda d: (abs(array.strides[d]), -d))
    last = array.ndim - 1
    made = np.empty(array.shape, array.dtype)
    if near == last or min(array.shape[near], array.shape[last]) < 2:
        made[...] = array
        return made
    block: list[slice] = [slice(None)] * array.ndim
    for i in range(0, array.shape[near], BLOCK):
        block[near] = slice(i, i + BLOCK)
        for j in range(0, array.shape[last], BLOCK):
            block[last] = slice(j, j + BLOCK)
            made[tuple(block)] = array[tuple(block)]
    return made


def aligned_zeros(nbytes: int) -> Bytes:
    """Return zeroed bytes as ``alignment_of`` says, for long-lived memory such as constants."""
    if nbytes >= HUGE and sys.platform == "linux":
        return _huge_zeros(nbytes)
    step = alignment_of(nbytes)
    memory = np.zeros(nbytes + step, np.uint8)
    start = -int(memory.ctypes.data) % step
    return memory[start : start + nbytes]


def _huge_zeros(nbytes: int) -> Bytes:
    """Return zeroed bytes in huge pages where available: weights span many small pages.

    The mapping is private: a shared one, Python's default, is memory of a file system, which has
    small pages whatever is advised.
    """
    pages = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # of kernels that have none
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    start = -int(memory.ctypes.data) % HUGE_PAGE
    return memory[start : start + nbytes]
