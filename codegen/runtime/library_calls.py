"""Calls from native code to functions of the host: the library calls of an executable.

Native code calls ``nw_library(number, pointers)``, a ctypes callback, which takes the GIL. An
exception of a function is kept, one per thread, until the run has ended; the caller then gets it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from threading import local
from typing import Any

import numpy as np

from ...ir.library.call import ArrayType, LibraryCall
from ...ir.library.functions import GROUP
from ...ir.library.functions import run as run_group
from ...ir.library.session import Session
from ..plan.nodes import LibraryThunk
from .arguments import Array

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)


class LibraryCalls:
    """The library calls of one executable, by number, as one native function."""

    def __init__(self, thunks: Sequence[LibraryThunk], where: str) -> None:
        self._calls = [t.call for t in thunks]
        self._session = Session()
        self._raised = local()
        self.callback = _CALLBACK(_answer(self._calls, self._session, self._raised, where))

    @property
    def address(self) -> int:
        """The address of the native function, which lives as long as this object."""
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def run(self, number: int, addresses: Sequence[int]) -> None:
        """Run a call on operands and results at these addresses; its exceptions propagate."""
        _run(self._calls[number], self._session, addresses)

    def failure(self) -> None:
        """Raise the exception of this thread's last failed call."""
        error = getattr(self._raised, "error", None)
        self._raised.error = None
        if error is None:
            raise RuntimeError("a library call failed, and left no exception")
        try:
            raise error
        finally:
            del error


def _answer(
    calls: Sequence[LibraryCall], session: Session, raised: Any, where: str
) -> Callable[[int, int], int]:
    """Return the callback, which returns 1 on success, 0 if an exception was raised."""

    def answer(number: int, pointers: int) -> int:
        try:
            call = calls[number]
            count = len(call.operands) + len(call.results)
            table = (ctypes.c_void_p * count).from_address(pointers) if count else ()
            _run(call, session, [p or 0 for p in table])
        except BaseException as error:
            error.add_note(f"in a call of {where}")
            raised.error = error
            return 0
        return 1

    return answer


def _run(call: LibraryCall, session: Session, addresses: Sequence[int]) -> None:
    count = len(call.operands)
    operands = list(map(array_to_read, addresses[:count], call.operands))
    results = list(map(array_at, addresses[count:], call.results))
    try:
        if call.opcode == GROUP:
            run_group(call, operands, results)
            return
        for result, made in zip(results, session.run(call, operands), strict=True):
            np.copyto(result, made)
    finally:  # the frames of what was raised live on, the memory may not
        operands.clear()
        results.clear()


def array_to_read(address: int, of: ArrayType) -> Array:
    """Return a read-only array over memory owned by someone else."""
    array = array_at(address, of)
    array.flags.writeable = False
    return array


def array_at(address: int, of: ArrayType) -> Array:
    """Return an array over memory owned by someone else."""
    if not of.bytes:
        return np.empty(of.shape, of.dtype)
    memory = (ctypes.c_uint8 * of.bytes).from_address(address)
    return np.ndarray(of.shape, of.dtype, buffer=memoryview(memory))
