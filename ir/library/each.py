"""Routines of SciPy's BLAS and LAPACK, called for each matrix of a batch by their addresses.

SciPy exports the routines as C functions, all of whose arguments are pointers. A call of one from
Python takes some microseconds, more than the routine itself for a few rows; so native code makes
the calls where it is loaded (``install``), on several threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
"""The letter that BLAS and LAPACK have for NumPy's type of character ``dtype.char``."""

ARGUMENTS = 16
"""The pointers that a routine is called with; it takes that many or fewer."""

CHUNKS = 8
"""The parts of a batch that threads share, each with its own scratch memory."""

SHARED = 64
"""Rows, up to which threads share a batch: beyond, a routine has threads of its own."""

_ROUNDED = 1 + 2.0**-20  # a length that is told in f32 may have been rounded down


@dataclass(frozen=True, slots=True)
class Workspace:
    """So many elements of memory, whose contents mean nothing before and after a call."""

    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True, slots=True)
class AskedWorkspace:
    """Memory as long as the routine asks for, and the length, which is the next argument."""

    dtype: np.dtype[Any]


Argument: TypeAlias = str | int | Array | Workspace | AskedWorkspace | None
"""A letter, a number, an array with an element for each matrix, memory, a null pointer.

An array may have a stride of 0 there; otherwise its elements lie in order."""


@cache
def scipy(name: str) -> Any:
    """A module of SciPy, as ``linalg.cython_lapack``; None where SciPy is not installed."""
    try:
        return import_module(f"scipy.{name}")
    except ImportError:
        return None


_native: list[Callable[[int, int, int, int], None]] = []


def install(address: int) -> None:
    """Let native code make the calls: ``void each(ptr routine, i64 count, i64 chunks, ptr table)``.

    The table has three rows of ``ARGUMENTS``: pointers, the bytes from one matrix to the next, the
    bytes from one chunk to the next.
    """
    kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    _native[:] = [ctypes.CFUNCTYPE(None, *kinds)(address)]


def each(module: str, name: str, like: Array, *arguments: Argument) -> None:
    """Call a routine of SciPy's ``blas`` or ``lapack`` for each matrix of ``like``, ``[B, m, n]``.

    ``name`` lacks the letter of the type, which is that of ``like``. Nothing is checked: the caller
    guarantees that the arguments fit.
    """
    routine = _routine(module, LETTERS[like.dtype.char] + name)
    count = len(like)
    shared = bool(_native) and count > 1 and max(like.shape[1:]) <= SHARED
    chunks = min(count, CHUNKS) if shared else 1
    table, kept = _table(list(_with_lengths(routine, arguments)), chunks)
    if shared:
        _native[0](routine.address, count, chunks, table.ctypes.data)
    else:
        for k in range(count):
            routine.call(*(table[0] + k * table[1]).tolist())
    del kept


@dataclass(frozen=True, slots=True, eq=False)
class _Routine:
    address: int
    call: Callable[..., None]


@cache
def _routine(module: str, name: str) -> _Routine:
    capsule = scipy(f"linalg.cython_{module}").__pyx_capi__[name]
    named = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)
    found = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    name_of = named(("PyCapsule_GetName", ctypes.pythonapi))
    address = found(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, name_of(capsule))
    return _Routine(address, ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * ARGUMENTS)(address))


def _with_lengths(routine: _Routine, arguments: Sequence[Argument]) -> Iterator[Argument]:
    """Yield the arguments with what the routine asks for in place of ``AskedWorkspace``."""
    asks = any(isinstance(x, AskedWorkspace) for x in arguments)
    kinds = tuple([None if isinstance(x, np.ndarray) else x for x in arguments])
    lengths = iter(_lengths(routine, kinds) if asks else ())
    for x in arguments:
        if isinstance(x, AskedWorkspace):
            size = next(lengths)
            yield from (Workspace(x.dtype, size), size)
        else:
            yield x


@cache
def _lengths(routine: _Routine, arguments: Sequence[Argument]) -> list[int]:
    """Return the lengths of the memory that a routine asks for, which says so if it gets -1."""
    asked = [np.zeros(1, x.dtype) for x in arguments if isinstance(x, AskedWorkspace)]
    answers = iter(asked)
    whole: list[Argument] = []
    unused = np.zeros(1)
    for x in arguments:
        if isinstance(x, AskedWorkspace):
            whole += [next(answers), -1]
        else:
            whole.append(unused if x is None else x)
    table, kept = _table(whole, 1)
    routine.call(*table[0].tolist())
    del kept
    return [max(1, ceil(float(x[0].real) * _ROUNDED)) for x in asked]


def _table(arguments: Sequence[Argument], chunks: int) -> tuple[Array, list[Array]]:
    """Return the table of ``install``, and what must live as long as it is in use."""
    table = np.zeros((3, ARGUMENTS), np.int64)
    numbers = np.zeros(ARGUMENTS, np.int32)
    kept = [numbers]
    for k, x in enumerate(arguments):
        if isinstance(x, np.ndarray):
            table[:2, k] = x.ctypes.data, x.strides[0]
        elif isinstance(x, Workspace):
            memory = np.empty((chunks, max(1, x.size)), x.dtype)
            kept.append(memory)
            table[0, k], table[2, k] = memory.ctypes.data, memory.strides[0]
        elif x is not None:
            if isinstance(x, str):
                numbers.view(np.uint8)[numbers.itemsize * k] = ord(x)
            elif isinstance(x, int):
                numbers[k] = x
            table[0, k] = numbers.ctypes.data + numbers.itemsize * k
    return table, kept
