"""Calls from native code to functions of the host: the library calls of an executable.

Native code calls ``nw_library(number, pointers)``, a ctypes callback, which takes the GIL. An
exception of a function is kept, one per thread, until the run has ended; the caller then gets it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.arrays import Array
from ...ir.lazy import LazyModule
from ..plan.nodes import LibraryThunk
from ..plan.symbols import EACH

if TYPE_CHECKING:
    from ...ir.library.call import ArrayType, LibraryCall
    from ...ir.library.session import Session
    from ...ir.library.tape import Prepared
    from ...ir.target import Target
    from .collectives.communicator import Communicator

_FUNCTIONS = LazyModule("...ir.library.functions", __package__)  # a model may call none
_OPERATIONS = LazyModule(".collectives.operations", __package__)
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)


KEPT_BYTES = 1 << 20  # of a tape's buffers: for more, routines take much longer than Python


class LibraryCalls:
    """The library calls of one executable, by number, as one native function."""

    def __init__(self, thunks: Sequence[LibraryThunk], where: str, target: Target) -> None:
        self._calls = [t.call for t in thunks]
        self._prepared: list[list[Prepared] | None] = [[] for _ in thunks]
        self.communicator: Communicator | None = None
        self._target = target
        self._raised = local()
        self.callback = _CALLBACK(_answer(self, where))

    @property
    def address(self) -> int:
        """The address of the native function, which lives as long as this object."""
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def run(self, number: int, addresses: Sequence[int]) -> None:
        """Run a call on operands and results at these addresses; its exceptions propagate."""
        call = self._calls[number]
        if self._run_prepared(number, call, addresses):
            return
        count = len(call.operands)
        operands = list(map(array_to_read, addresses[:count], call.operands))
        results = list(map(array_at, addresses[count:], call.results))
        try:
            if call.is_collective:
                _OPERATIONS.run(call, operands, results, self.communicator, number)
            elif call.is_group:
                with self._mode(call):
                    _FUNCTIONS.run(call, operands, results)
            else:
                made = self._session.run(call, operands)
                for result, value in zip(results, made, strict=True):
                    np.copyto(result, value)
        finally:  # the frames of what was raised live on, the memory may not
            operands.clear()
            results.clear()

    def _mode(self, call: LibraryCall) -> AbstractContextManager[None]:
        """Return the mode of a group's function: the interpreter's is that of compiled groups."""
        if not self._target.flushes:
            return nullcontext()
        from ...ir.hlo.interp.flushing import flushing_as
        from ...ir.library.functions import INTERPRETER

        return flushing_as(self._target if call.target == INTERPRETER else None)

    def _run_prepared(self, number: int, call: LibraryCall, addresses: Sequence[int]) -> bool:
        """Run a call whose work is the same each time; False if it is none.

        Each thread that is inside has a tape of its own; small ones are kept.
        """
        free = self._prepared[number]
        if free is None or call.is_group or call.is_collective or self._session.is_users(call):
            return False
        found = _taken(free) or self._session.prepared(call)
        if found is None:
            self._prepared[number] = None
            return False
        count = len(found.operands)
        operands = list(map(array_at, addresses[:count], found.operands))
        results = list(map(array_at, addresses[count:], found.results))
        found.run(operands, results)
        if found.tape.bytes <= KEPT_BYTES:
            free.append(found)
        return True

    @cached_property
    def _session(self) -> Session:
        from ...ir.library.each import install
        from ...ir.library.session import Session
        from .process import runtime

        install(runtime().addresses[EACH])
        return Session()

    def arrays(self, number: int) -> int:
        """Return the number of a call's operands and results."""
        return len(self._calls[number].operands) + len(self._calls[number].results)

    def keep(self, error: BaseException) -> None:
        """Keep the exception of this thread's call until the run has ended."""
        self._raised.error = error

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


def _taken(free: list[Prepared]) -> Prepared | None:
    with suppress(IndexError):  # another thread may take the last one
        return free.pop()
    return None


def _answer(calls: LibraryCalls, where: str) -> Callable[[int, int], int]:
    """Return the callback, which returns 1 on success, 0 if an exception was raised."""

    def answer(number: int, pointers: int) -> int:
        try:
            count = calls.arrays(number)
            table = (ctypes.c_void_p * count).from_address(pointers) if count else ()
            calls.run(number, [p or 0 for p in table])
        except BaseException as error:
            error.add_note(f"in a call of {where}")
            calls.keep(error)
            return 0
        return 1

    return answer


def array_to_read(address: int, of: ArrayType) -> Array:
    """Return a read-only array over memory owned by someone else."""
    array = array_at(address, of)
    array.flags.writeable = False
    return array


def array_at(address: int, of: ArrayType) -> Array:
    """Return an array over memory owned by someone else."""
    size = of.bytes
    if not size:
        return np.empty(of.shape, of.dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.ndarray(of.shape, of.dtype, memory)
