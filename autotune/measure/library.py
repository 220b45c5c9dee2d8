"""Library functions as candidates: called as executables call them, checked as kernels are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...codegen.runtime.library_calls import array_at, array_to_read
from ...ir.arrays import Array
from ...ir.dtypes import to_numpy
from ...ir.library.call import GROUP, ArrayType, LibraryCall
from ...ir.library.functions import run
from ...ir.loop.nodes import Buffer
from ...ir.target import Target
from ..log.records import Json
from ..tasks.programs import Program
from .candidates import Rejected, in_short
from .guarded_buffers import same_bytes
from .machine import CheckedRun
from .memory.cache_state import CacheState, Passing
from .protocol import Outcome


def library_trace(name: str) -> list[Json]:
    """Return the trace of a group that a library function computes."""
    return [["library", [name], []]]


def library_call(program: Program, name: str) -> LibraryCall:
    """Return the call of a function for a program."""
    outputs = tuple(map(_type, program.outputs))
    return LibraryCall(GROUP, name, tuple(map(_type, program.inputs)), outputs)


def _type(b: Buffer) -> ArrayType:
    return ArrayType(tuple(map(int, b.shape)), to_numpy(b.dtype))


class LibraryRun:
    """A library function bound to a program's buffers."""

    facts: Mapping[str, Json] = {}

    def __init__(
        self,
        call: LibraryCall,
        buffers: Sequence[Array],
        steps: Sequence[Passing],
        room: Array,
        target: Target,
        spend: Callable[[float], None],
    ) -> None:
        """``buffers`` are those that timing uses; ``spend`` is told the seconds of each call that
        is timed alone. The others are as for a ``CacheState``.
        """
        self._call, self._buffers = call, buffers
        self._given = [b.ctypes.data for b in buffers]
        self._spoiled: BaseException | None = None
        self._hook = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers))(self._answer)
        self._cache_state = CacheState(steps, room, self._given, target) if steps else None
        self._spend = spend

    def _answer(self, *addresses: int | None) -> None:
        """Run the function on arrays at addresses, as an executable's native code does."""
        count = len(self._call.operands)
        places = [a or 0 for a in addresses]
        operands = list(map(array_to_read, places[:count], self._call.operands))
        results = list(map(array_at, places[count:], self._call.results))
        try:
            run(self._call, operands, results)
        except BaseException as error:
            self._spoiled = error

    def _run(self, arrays: Sequence[Array], pattern: int) -> CheckedRun:
        count = len(self._call.operands)
        outputs = arrays[count:]
        for out in outputs:
            if out.size:
                out.reshape(-1).view(np.uint8).fill(pattern)
        before = [a.copy() for a in arrays[:count]]
        self._answer(*(a.ctypes.data for a in arrays))
        self._raise()
        pairs = zip(arrays, before, strict=False)
        wrong = [n for n, (a, b) in enumerate(pairs) if not same_bytes(a, b)]
        return CheckedRun(outputs, f"it overwrites input {wrong[0]}" if wrong else "")

    def _raise(self) -> None:
        """Reject the candidate if its function raised."""
        error, self._spoiled = self._spoiled, None
        if error is not None:
            note = f"library function {self._call.target}: {in_short(_ordinary(error))}"
            raise Rejected(Outcome("wrong", note=note)) from None

    def trial(self, arguments: Sequence[Array], pattern: int, upper: bool) -> CheckedRun:
        """Run once in memory of its own, whose outputs hold a pattern."""
        made = [np.array(a, order="C") for a in arguments]
        return self._run(
            [*made, *(np.empty(t.shape, t.dtype) for t in self._call.results)], pattern
        )

    def again(self, pattern: int) -> CheckedRun:
        """Run once more on the buffers that timing uses."""
        return self._run(list(self._buffers), pattern)

    def call(self, times: int) -> None:
        """Run ``times`` times, each on caches as in the model."""
        address = ctypes.cast(self._hook, ctypes.c_void_p).value or 0
        for _ in range(times):
            if self._cache_state is None:
                self._hook(*self._given)
            else:
                self._spend(self._cache_state.seconds(address, self._given))
        self._raise()


def _ordinary(error: BaseException) -> Exception:
    """Return an error as one that says its type; a function may raise anything."""
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
