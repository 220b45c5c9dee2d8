"""Routines of SciPy's BLAS and LAPACK, called for each matrix of a batch by their addresses.

SciPy exports the routines as C functions, all of whose arguments are pointers. A call of one from
Python takes some microseconds, more than the routine itself for a few rows; so native code makes
the calls where it is loaded (``install``), on several threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil
from struct import Struct
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array
from .blas_threads import libraries, one_thread

LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
"""The letter that BLAS and LAPACK have for NumPy's type of character ``dtype.char``."""

ARGUMENTS = 16
"""The pointers that a routine is called with; it takes that many or fewer."""

CHUNKS = 8
"""The parts of a batch that threads share, each with its own scratch memory."""

ALONE = 1000
"""Elements of a matrix, below which OpenBLAS starts no threads."""

LARGE = 1 << 18
"""Elements of a matrix, from which on its threads are worth what waiting for them may cost."""

_ROUNDED = 1 + 2.0**-20  # a length that is told in f32 may have been rounded down


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory of so many elements for a call, whose contents mean nothing before and after it.

    With a size of 0 it is as long as the routine asks for, which gets that as the next argument.
    """

    dtype: np.dtype[Any]
    size: int = 0


Argument: TypeAlias = str | int | Array | Workspace | None
"""A letter, a number, an array with an element for each matrix, memory, a null pointer.

An array may have a stride of 0 there; otherwise its elements lie in order."""


@cache
def scipy(name: str) -> Any:
    """A module of SciPy, as ``linalg.cython_lapack``; None where SciPy is not installed."""
    try:
        return import_module(f"scipy.{name}")
    except ImportError:
        return None


_native: list[Callable[[int, int, int, bytes], None]] = []
_scalars: dict[int | str, tuple[Array, int]] = {}  # each for ever: sizes are few
_rows = Struct(f"{3 * ARGUMENTS}q")


def install(address: int) -> None:
    """Let native code make the calls: ``void each(ptr routine, i64 count, i64 chunks, ptr table)``.

    The table has three rows of ``ARGUMENTS``: pointers, the bytes from one matrix to the next, the
    bytes from one chunk to the next.
    """
    kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p
    _native[:] = [ctypes.CFUNCTYPE(None, *kinds)(address)]


def shares(like: Array) -> bool:
    """Do threads share the matrices of a batch, ``[B, m, n]``?

    Without threadpoolctl large ones are left to OpenBLAS, whose own threads cannot be stopped then.
    """
    count, m, n = like.shape
    return bool(_native) and count > 1 and (m * n < ALONE or bool(libraries()))


def each(module: str, name: str, like: Array, *arguments: Argument) -> None:
    """Call a routine of SciPy's ``blas`` or ``lapack`` for each matrix of ``like``, ``[B, m, n]``.

    ``name`` lacks the letter of the type, which is that of ``like``. Nothing is checked: the caller
    guarantees that the arguments fit.
    """
    prepared_call(module, name, like, arguments).run({}, ())


def prepared_call(
    module: str, name: str, like: Array, arguments: Sequence[Argument]
) -> PreparedCall:
    """Return what ``each`` calls, with memory of its own where a routine needs some."""
    routine = _routine(module, LETTERS[like.dtype.char] + name)
    count, m, n = like.shape
    chunks = min(count, CHUNKS) if shares(like) else 1
    alone = m * n >= ALONE and (chunks > 1 or m * n < LARGE)
    rows, arrays, kept = _table(routine, arguments, chunks)
    return PreparedCall(routine, count, chunks, alone, rows, arrays, kept)


@dataclass(slots=True, eq=False)
class PreparedCall:
    """A call of a routine for each matrix of a batch: its table, and the memory that it names."""

    routine: _Routine
    count: int
    chunks: int
    alone: bool
    """Whether BLAS is to start no threads of its own."""
    rows: list[int]
    arrays: dict[int, Array]
    """The arrays among the arguments, by their place in the table."""
    kept: list[Array]
    _packed: bytes = b""

    @property
    def bytes(self) -> int:
        """The size of the memory that is the call's own."""
        return sum(x.nbytes for x in self.kept)

    def run(self, given: Mapping[int, int], operands: Sequence[Array]) -> None:
        """Call the routine; arguments at the places ``given`` are operands, by number."""
        with one_thread() if self.alone else nullcontext():
            self._call(given, operands)

    def _call(self, given: Mapping[int, int], operands: Sequence[Array]) -> None:
        for k, number in given.items():
            self.rows[k] = _address(operands[number])
        if not _native:
            at, steps = self.rows[:ARGUMENTS], self.rows[ARGUMENTS : 2 * ARGUMENTS]
            for k in range(self.count):
                self.routine.call(*[a + k * step for a, step in zip(at, steps, strict=True)])
            return
        if given or not self._packed:
            self._packed = _rows.pack(*self.rows)
        _native[0](self.routine.address, self.count, self.chunks, self._packed)


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


def _table(
    routine: _Routine, arguments: Sequence[Argument], chunks: int
) -> tuple[list[int], dict[int, Array], list[Array]]:
    """Return the table of ``install``, flat, the arrays in it by place, and its own memory."""
    rows, arrays, kept, k = [0] * (3 * ARGUMENTS), dict[int, Array](), list[Array](), 0
    lengths: Iterator[int] | None = None
    for x in arguments:
        if isinstance(x, np.ndarray):
            rows[k], rows[ARGUMENTS + k], arrays[k] = _address(x), x.strides[0], x
        elif isinstance(x, int | str):
            rows[k] = _scalar(x)
        elif x is not None:
            size = x.size
            if asked := not size:
                lengths = lengths or iter(_lengths(routine, _plain(arguments)))
                size = next(lengths)
            memory = np.empty((chunks, size), x.dtype)
            kept.append(memory)
            rows[k], rows[2 * ARGUMENTS + k] = _address(memory), memory.strides[0]
            if asked:
                k += 1
                rows[k] = _scalar(size)
        k += 1
    return rows, arrays, kept


def _address(x: Array) -> int:
    memory: Any = x
    try:  # three times as fast as what comes next
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))
    except (TypeError, ValueError):  # it is read-only, has gaps, or is empty
        return int(x.ctypes.data)


def _scalar(value: int | str) -> int:
    """Return the address of a number of 32 bits, or of a letter."""
    found = _scalars.get(value)
    if found is None:
        made = np.array([value], np.int32 if isinstance(value, int) else "S1")
        found = _scalars.setdefault(value, (made, _address(made)))
    return found[1]


def _plain(arguments: Sequence[Argument]) -> tuple[str | int | Workspace | None, ...]:
    """Return the arguments without arrays."""
    return tuple([None if isinstance(x, np.ndarray) else x for x in arguments])


@cache
def _lengths(routine: _Routine, arguments: Sequence[Argument]) -> list[int]:
    """Return the lengths of the workspaces that a routine asks for: it tells them if it gets -1."""
    asked, pointers = list[Array](), list[int]()
    unused = np.zeros(2)
    for x in arguments:
        if isinstance(x, int | str):
            pointers.append(_scalar(x))
        elif isinstance(x, Workspace) and not x.size:
            asked.append(np.zeros(1, x.dtype))
            pointers += [_address(asked[-1]), _scalar(-1)]
        else:
            pointers.append(_address(unused))
    routine.call(*pointers, *[0] * (ARGUMENTS - len(pointers)))
    return [max(1, ceil(float(x[0].real) * _ROUNDED)) for x in asked]
